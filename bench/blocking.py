"""A blocking AMQP client: one socket, one thread, no hidden work.

Owns a socket and the engine behind it. Frames are gathered and written in one go, and
dispositions are sent and read as ranges, so that a message costs little more than its
own encoding. Rule: no wait is without an end; a peer that is silent for longer than
`timeout_seconds` is an `OperationTimeout`, one that says no a `RemoteError`.

It speaks to any AMQP 1.0 server. What a message means is its user's business: payloads
are encoded messages (`wire/message/sections.py`). Not for several threads at once. A
connection on which nothing is called for longer than the server's idle time is closed
by it.
"""

from __future__ import annotations

import itertools
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

from twinbus.errors import (
    Disconnected,
    OperationTimeout,
    PeerError,
    RemoteError,
    SendRefused,
)
from twinbus.wire import events
from twinbus.wire.connection import ConnectionState, Engine
from twinbus.wire.events import Answered, Delivered, Disposed
from twinbus.wire.link import Link, LinkState
from twinbus.wire.message.sections import Request, encode_request
from twinbus.wire.performatives import (
    ACCEPTED,
    Accepted,
    Attach,
    Error,
    Open,
    Rejected,
    SaslInit,
    Source,
    Target,
)
from twinbus.wire.session import SessionState

READ_BYTES = 256 * 1024
# Messages that are encoded before they are written: enough to make the system call
# cheap, few enough that the server starts on them while the next ones are encoded.
_CHUNK_MESSAGES = 128
CREDIT = 1000
_HEARTBEAT_SECONDS = 15.0
# A terminus that outlives a crash of the server; RabbitMQ makes the queue durable.
_UNSETTLED_STATE = 2
CBS = "$cbs"
_SAS_TYPE = "servicebus.windows.net:sastoken"

_numbers = itertools.count(1)


def remote_error(error: Error | None, what: str) -> RemoteError:
    """An error that the peer gave, or did not."""
    if error is None:
        return RemoteError("amqp:internal-error", f"The server ended {what}.")
    return RemoteError(error.condition, error.description or "")


class BlockingConnection:
    """A connection to one server."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        hostname: str | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        self.host = host
        self.port = port
        # The name that the server is known by, for `open` and TLS.
        self.hostname = hostname or host
        self.timeout_seconds = timeout_seconds
        self.engine = Engine(server=False, container_id=f"twinbus-{next(_numbers)}")
        self._tls = tls
        self._socket: socket.socket | None = None
        self._readable = select.poll()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._failure: RemoteError | None = None

    # -- life --------------------------------------------------------------------

    def open(self, user: str | None = None, password: str = "") -> Self:
        """Connect and log in: as no user (claims come by `put_token`), or by name."""
        address = (self.host, self.port)
        try:
            bare = socket.create_connection(address, self.timeout_seconds)
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = bare
            if self._tls is not None:
                name = self.hostname
                self._socket = self._tls.wrap_socket(bare, server_hostname=name)
        except OSError as error:
            self._drop()
            raise Disconnected(
                f"{self.host}:{self.port} cannot be reached ({error})."
            ) from error
        self._readable.register(self._socket, select.POLLIN)
        init = SaslInit(mechanism="ANONYMOUS", initial_response=b"")
        if user is not None:
            response = f"\0{user}\0{password}".encode()
            init = SaslInit(mechanism="PLAIN", initial_response=response)
        init.hostname = self.hostname
        self.engine.start(init, Open(hostname=self.hostname))
        self.wait(lambda: self.engine.state is ConnectionState.OPEN, "open")
        return self

    def close(self) -> None:
        """Say goodbye if the server still listens, and let go of the socket."""
        if self._socket is None:
            return
        try:
            if self._failure is None:
                self.engine.close()
                done = ConnectionState.CLOSED
                self.wait(lambda: self.engine.state is done, "close")
        except (RemoteError, OperationTimeout, PeerError):
            # It is gone either way, and everything that mattered was answered before.
            pass
        finally:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self) -> None:
        taken, self._socket = self._socket, None
        if taken is not None:
            taken.close()

    # -- links -------------------------------------------------------------------

    def sender(self, address: str, *, window: int | None = None) -> BlockingSender:
        """Attach a link to send on.

        `window` is how many messages may be without an outcome at one time, if that
        should be fewer than the server gives credit for.
        """
        return BlockingSender(self, address, window)

    def receiver(
        self,
        address: str,
        *,
        credit: int = CREDIT,
        count: int = sys.maxsize,
        deletes: bool = False,
    ) -> BlockingReceiver:
        """Attach a link to receive on.

        `credit` is how many messages may be on their way; it is refilled at half.
        `count`: no more than so many are asked for in all.
        `deletes`: messages are gone when they are sent, and need no settlement.
        """
        return BlockingReceiver(self, address, Asked(credit, count), deletes)

    def attach(self, owner: _Owner, sends: bool, attach: Attach) -> Link:
        """Ask for a link in a session of its own; used by senders and receivers."""
        session = self.engine.begin()
        self.wait(lambda: session.state is SessionState.BEGUN, "begin")
        link = session.attach(f"twinbus-{next(_numbers)}", sends, attach)
        link.owner = owner
        self.wait(
            lambda: owner.failure is not None or link.state is LinkState.ATTACHED,
            "attach",
        )
        # A refusal is an attach to nowhere; the detach with the reason follows.
        answer = link.peer_attach
        if (answer.target if sends else answer.source) is None:
            self.wait(lambda: owner.failure is not None, "attach")
        if owner.failure is not None:
            raise owner.failure
        return link

    def put_token(self, audience: str, token: str) -> None:
        """Show the server a token (`core.sas.make_token`) for an entity."""
        reply_to = f"cbs-{next(_numbers)}"
        replies = BlockingReceiver(self, CBS, Asked(1), True, reply_to)
        requests = self.sender(CBS)
        properties = {"operation": "put-token", "type": _SAS_TYPE, "name": audience}
        requests.send([encode_request(reply_to, properties, token)])
        delivered = replies.receive(1)
        if not delivered:
            raise OperationTimeout("The server did not answer a token in time.")
        reply = Request(delivered[0].payload).application_properties
        status = reply.get("status-code")
        text = str(reply.get("status-description") or "")
        if status not in (200, 202):
            raise RemoteError("amqp:unauthorized-access", f"{status}: {text}")
        requests.detach()
        replies.detach()

    # -- bytes -------------------------------------------------------------------

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Read until something has happened, or the time for it is over."""
        deadline = time.monotonic() + self.timeout_seconds
        while not ready():
            if not self.read(deadline):
                raise OperationTimeout(
                    f"The server did not answer '{what}' within "
                    f"{self.timeout_seconds:g} seconds."
                )

    def flush(self) -> None:
        """Write what there is."""
        data = self.engine.take()
        if not data:
            return
        peer = self._peer()
        try:
            peer.settimeout(self.timeout_seconds)
            peer.sendall(data)
        except TimeoutError as error:
            self._failure = Disconnected("The server does not read.")
            raise self._failure from error
        except OSError as error:
            raise self._lost(error) from error

    def read(self, deadline: float) -> bool:
        """Write what there is and take in what the server says; False: time is over."""
        self.flush()
        peer = self._peer()
        while True:
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0:
                return False
            try:
                peer.settimeout(min(left_seconds, self._heartbeat_seconds()))
                size = peer.recv_into(self._buffer)
            except TimeoutError:
                self.engine.heartbeat()
                self.flush()
                continue
            except OSError as error:
                raise self._lost(error) from error
            break
        if size == 0:
            raise self._lost(None)
        self.engine.feed(bytes(self._buffer[:size]))
        self._take_events()
        return True

    def read_ready(self) -> None:
        """Take in what is there already, without waiting."""
        if self._readable.poll(0):
            self.read(time.monotonic() + self.timeout_seconds)

    def _heartbeat_seconds(self) -> float:
        idle_ms = self.engine.peer_open.idle_time_out
        return _HEARTBEAT_SECONDS if not idle_ms else max(idle_ms / 3000, 0.1)

    def _peer(self) -> socket.socket:
        if self._failure is not None:
            raise self._failure
        if self._socket is None:
            raise Disconnected("The connection is not open.")
        return self._socket

    def _lost(self, error: OSError | None) -> RemoteError:
        if self._failure is None:
            reason = f" ({error})" if error is not None else ""
            self._failure = Disconnected(f"The connection is gone{reason}.")
        return self._failure

    # -- events ------------------------------------------------------------------

    def _take_events(self) -> None:
        next_event = self.engine.next_event
        try:
            while (event := next_event()) is not None:
                if type(event) is Delivered:
                    _owner(event.link).delivered.append(event)
                else:
                    self._take(event)
        except PeerError as error:
            self._failure = RemoteError(error.condition, error.text)
            raise

    def _take(self, event: events.Event) -> None:
        if isinstance(event, Disposed):
            # A session has one link.
            for link in event.session.links.values():
                _owner(link).on_disposed(event)
        elif isinstance(event, Answered):
            for link in event.session.links.values():
                _owner(link).on_answered(event)
        elif isinstance(event, events.Detached):
            _owner(event.link).failure = remote_error(event.error, "the link")
        elif isinstance(event, events.Ended):
            for link in event.session.links.values():
                _owner(link).failure = remote_error(event.error, "the session")
        elif isinstance(event, events.Closed):
            failure = remote_error(event.error, "the connection")
            self._failure = self._failure or failure


class _Owner:
    """What senders and receivers have in common."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection
        # Why the link is no longer there.
        self.failure: RemoteError | None = None
        # Messages that came and were not asked for yet.
        self.delivered: list[Delivered] = []
        self.link: Link

    def detach(self) -> None:
        """End the link and its session."""
        self.link.detach()
        gone = LinkState.DETACHED
        self.connection.wait(lambda: self.link.state is gone, "detach")
        session = self.link.session
        session.end()
        self.connection.wait(lambda: session.state is SessionState.ENDED, "end")

    def check(self) -> None:
        """Raise what has ended the link."""
        if self.failure is not None:
            raise self.failure

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Read until something has happened, or the link is gone."""
        self.connection.wait(lambda: ready() or self.failure is not None, what)
        self.check()

    def wait_for_none(self, left: Callable[[], int], what: str) -> None:
        """Read until nothing is left. The time starts anew with every answer."""
        while before := left():
            self.wait(lambda: left() < before, what)

    def on_disposed(self, event: Disposed) -> None:
        """The server's word on what we sent."""

    def on_answered(self, event: Answered) -> None:
        """The server's answer to what we said about its deliveries."""


class BlockingSender(_Owner):
    """A link on which messages are sent."""

    def __init__(
        self, connection: BlockingConnection, address: str, window: int | None
    ) -> None:
        super().__init__(connection)
        self._window = sys.maxsize if window is None else window
        self._unsettled = 0
        self._failures: dict[int, RemoteError] = {}
        self.link = connection.attach(
            self,
            True,
            Attach(
                snd_settle_mode=0,
                source=Source(address=f"from-{address}"),
                target=Target(address=address, durable=_UNSETTLED_STATE),
            ),
        )

    def send(self, messages: Iterable[bytes]) -> int:
        """Send encoded messages, many at a time, and wait until each is accepted.

        Returns how many. Raises `SendRefused` when all have their outcome and some were
        refused; any other error leaves open what became of the unanswered ones.
        """
        link = self.link
        connection = self.connection
        rest = iter(messages)
        sent = 0
        self._unsettled = 0
        self._failures = {}
        while True:
            self.check()
            room = min(self._room(), _CHUNK_MESSAGES)
            if room <= 0:
                self.wait(lambda: self._room() > 0, "transfer, or credit for more")
                continue
            before = sent
            for payload in itertools.islice(rest, room):
                link.send(payload, sent.to_bytes(4, "big"), sent)
                sent += 1
            self._unsettled += sent - before
            connection.flush()
            if sent - before < room:
                break
            connection.read_ready()
        self.wait_for_none(lambda: self._unsettled, "transfer")
        if self._failures:
            raise SendRefused(self._failures)
        return sent

    def _room(self) -> int:
        """How many more may be sent now."""
        return min(self.link.credit, self._window - self._unsettled)

    def on_disposed(self, event: Disposed) -> None:
        """Outcomes came; accepted ones are only counted."""
        self._unsettled -= len(event.deliveries)
        if type(event.state) is not Accepted:
            for each in event.deliveries:
                self._failures[each.cookie] = _refusal(event.state)
        if not event.settled:
            for each in event.deliveries:
                number = each.delivery_id
                self.link.session.settle(number, number, event.state)


def _refusal(state: Any) -> RemoteError:
    if isinstance(state, Rejected):
        return remote_error(state.error, "a delivery")
    name = type(state).__name__.lower()
    return RemoteError(f"amqp:{name}", f"The server answered '{name}'.")


class Asked(NamedTuple):
    """How many messages may come: on their way at one time, and in all."""

    credit: int
    total: int = sys.maxsize


class BlockingReceiver(_Owner):
    """A link on which messages are received."""

    def __init__(
        self,
        connection: BlockingConnection,
        address: str,
        asked: Asked,
        deletes: bool,
        reply_to: str | None = None,
    ) -> None:
        super().__init__(connection)
        # Deliveries that we have accepted and the server has not yet confirmed.
        self.unconfirmed = 0
        self._refusals: list[RemoteError] = []
        self.link = connection.attach(
            self,
            False,
            Attach(
                snd_settle_mode=1 if deletes else 0,
                source=Source(address=address, durable=_UNSETTLED_STATE),
                target=Target(address=reply_to or f"to-{address}"),
            ),
        )
        self._credit = asked.credit
        # The link's count of deliveries when no more may come.
        self._last = self.link.delivery_count + asked.total
        self.link.credit_window = asked.credit
        self.link.grant(min(asked.credit, asked.total))
        self._ask_no_more_than_left()

    def _ask_no_more_than_left(self) -> None:
        """Near the end, give credit by hand: the link would give all of it again."""
        link = self.link
        left = self._last - link.delivery_count
        if left < link.credit + self._credit:
            link.credit_window = 0
            if link.credit <= self._credit >> 1 and link.credit < left:
                link.grant(min(self._credit, left))

    def receive(
        self, count_max: int, timeout_seconds: float | None = None
    ) -> list[Delivered]:
        """What has come, `count_max` at most; empty if nothing came in time."""
        if not self.delivered:
            seconds = self.connection.timeout_seconds
            if timeout_seconds is not None:
                seconds = timeout_seconds
            deadline = time.monotonic() + seconds
            while not self.delivered and self.connection.read(deadline):
                self.check()
                self._ask_no_more_than_left()
        taken = self.delivered
        self.delivered = taken[count_max:]
        return taken[:count_max] if self.delivered else taken

    def accept(self, deliveries: Sequence[Delivered], settled: bool = False) -> None:
        """Complete deliveries, neighbours together.

        Without `settled` the server confirms each when it is durable: `confirm` waits
        for that. With it, the outcome stays unknown.
        """
        dispose = self.link.session.dispose
        runs: list[list[int]] = []
        for each in deliveries:
            if runs and each.delivery_id == runs[-1][1] + 1:
                runs[-1][1] += 1
            else:
                runs.append([each.delivery_id, each.delivery_id])
        for first, last in runs:
            dispose(first, last, settled, ACCEPTED)
        if not settled:
            self.unconfirmed += len(deliveries)

    def confirm(self) -> None:
        """Wait until all accepted deliveries are confirmed."""
        self.wait_for_none(lambda: self.unconfirmed, "disposition")
        if self._refusals:
            refusals, self._refusals = self._refusals, []
            raise refusals[0]

    def on_answered(self, event: Answered) -> None:
        """The server has done what we said, or says why not."""
        if not event.settled:
            return
        self.unconfirmed -= event.last - event.first + 1
        if event.state is not None and type(event.state) is not Accepted:
            self._refusals.append(_refusal(event.state))


def _owner(link: Link) -> Any:
    """The sender or receiver behind a link."""
    return link.owner
