"""One connection from its socket to its end. It fails once, and is never used again.

Owns the engine, the channel of bytes, the heartbeat, and the way of every event to the
link that it is for. A failure is told to all links at once, each with its reason.
Rule: a server that lets a deadline pass and has said nothing at all for a while is
taken for gone, so that the next call starts on a new connection.
Knows nothing about what links are for; `connection.py` makes the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from twinbus import limits
from twinbus.client.transport.deadline import Deadline, answer
from twinbus.client.transport.endpoint import Endpoint
from twinbus.client.transport.stream import Channel, Say, connect
from twinbus.client.transport.websocket import WebSocketChannel
from twinbus.errors import DeadlineExceeded, Disconnected, PeerError, RemoteError
from twinbus.wire.connection import ConnectionState, Engine
from twinbus.wire.events import (
    Answered,
    Attached,
    Begun,
    Closed,
    Delivered,
    Detached,
    Disposed,
    Drained,
    Ended,
    Event,
    Flowed,
    Opened,
)
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import Error, Open, SaslInit
from twinbus.wire.performatives import Received as InTransit
from twinbus.wire.session import Session, SessionState
from twinbus.wire.types import Symbol

if TYPE_CHECKING:
    from twinbus.client.link import LiveLink

_PROPERTIES = {Symbol("product"): "twinbus"}


def remote_error(error: Error | None, what: str) -> RemoteError:
    """The reason that the server gave, or that it gave none."""
    if error is None:
        return RemoteError("amqp:link:detach-forced", f"The server ended {what}.")
    return RemoteError(str(error.condition), error.description or "")


class LiveConnection:
    """A connection that lives, or has ended for a reason."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self.endpoint = endpoint
        # No other connection may have this name, nor links' names that start with it.
        self.engine = Engine(server=False, container_id=f"{name}-{uuid4().hex}")
        # Why the connection is no longer there.
        self.failure: RemoteError | None = None
        self.links: set[LiveLink] = set()
        # How often something was written: what was added since was not.
        self.writes = 0
        # Bytes of messages that were added since.
        self.unwritten_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._flushing = False
        self._heard_at = self._wrote_at = self._loop.time()
        self._beat: asyncio.TimerHandle | None = None
        # Sessions that were given up before the server had answered.
        self._unwanted: set[Session] = set()
        self._say: Say = lambda _stage: None
        # Told when the connection has ended.
        self.on_failed: list[Callable[[], None]] = []

    # -- life --------------------------------------------------------------------------

    async def open(self, say: Say) -> None:
        """Connect, log in and open; whatever ends it early leaves nothing behind."""
        try:
            await self._open(say)
        except RemoteError as error:
            self.fail(error)
            raise
        except BaseException:
            self.fail(Disconnected("The connection was given up."))
            raise

    async def _open(self, say: Say) -> None:
        endpoint = self.endpoint
        self._say = say
        host = endpoint.host
        self.engine.start(
            SaslInit(mechanism="ANONYMOUS", initial_response=b"", hostname=host),
            Open(
                hostname=host,
                idle_time_out=limits.CLIENT_IDLE_MS,
                properties=dict(_PROPERTIES),
            ),
        )
        channel: Channel
        if endpoint.websocket:
            channel = WebSocketChannel(self, endpoint, say)
        else:
            channel = Channel(self)
        await connect(endpoint, channel, say)
        self._channel = channel
        say("SASL")
        self.flush()
        await self._opened
        self._keep_alive()

    async def close(self, deadline: Deadline) -> None:
        """Say goodbye, and let go of the socket in time whatever the server does."""
        if self.failure is None:
            self.engine.close()
            self.flush()
            try:
                await answer(self._closed, deadline, "close")
            except DeadlineExceeded:
                pass
            finally:
                self.fail(Disconnected("The connection was closed."))

    def fail(self, failure: RemoteError) -> None:
        """End the connection; the first reason is the one that is told."""
        if self.failure is not None:
            return
        self.failure = failure
        if self._beat is not None:
            self._beat.cancel()
        if not self._opened.done():
            self._opened.set_exception(failure)
            # No caller may be waiting: one that was cancelled does not ask.
            self._opened.exception()
        if not self._closed.done():
            self._closed.set_result(None)
        links, self.links = self.links, set()
        for link in links:
            link.on_ended(failure)
        for tell in self.on_failed:
            tell()
        if self._channel is not None:
            self._channel.abort()

    def missed(self) -> None:
        """A deadline has passed without its answer."""
        silent_seconds = self._loop.time() - self._heard_at
        if silent_seconds >= limits.CLIENT_SILENCE_SECONDS:
            text = f"The server has said nothing for {silent_seconds:.1f} seconds."
            self.fail(Disconnected(text))

    def begin(self) -> Session:
        """A session for a new link, or for two."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        sessions_max = self.engine.peer_open.channel_max + 1
        if len(self.engine.sessions) >= sessions_max:
            raise RemoteError(
                "amqp:resource-limit-exceeded",
                f"The server takes {sessions_max} links on one connection. Close some, "
                "or make another connection.",
            )
        return self.engine.begin()

    def give_up(self, session: Session) -> None:
        """End a session that is no longer used, as soon as it can be ended."""
        if session.state is SessionState.BEGINNING:
            self._unwanted.add(session)
        else:
            session.end()
            self.flush_soon()

    # -- writing -----------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the server reads too slowly for more, or it waits to be written."""
        if self._channel is None or self._channel.full:
            return True
        return self.unwritten_bytes > limits.WRITE_BUFFER_BYTES_MAX

    def flush_soon(self) -> None:
        """Write what there is when the loop comes round: many calls, one write."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what there is."""
        self._flushing = False
        data = self.engine.take()
        if data and self._channel is not None:
            self._wrote_at = self._loop.time()
            self.writes += 1
            others_wait = self.full
            self.unwritten_bytes = 0
            self._channel.write(data)
            if others_wait and not self.full:
                self.on_room()

    def _keep_alive(self) -> None:
        """Show that we live, and see whether the server does."""
        now = self._loop.time()
        if now - self._heard_at > 2 * limits.CLIENT_IDLE_MS / 1000:
            self.fail(Disconnected("The server is silent for longer than agreed."))
            return
        pause_seconds = limits.CLIENT_IDLE_MS / 1000
        peer_ms = self.engine.peer_open.idle_time_out
        if peer_ms:
            pause_seconds = min(pause_seconds, max(peer_ms / 4000, 0.05))
            if now - self._wrote_at >= pause_seconds:
                self.engine.heartbeat()
                self.flush()
        self._beat = self._loop.call_later(pause_seconds, self._keep_alive)

    # -- transport.Reader --------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        """Bytes came."""
        self._heard_at = self._loop.time()
        engine = self.engine
        try:
            engine.feed(data)
            while (event := engine.next_event()) is not None:
                if type(event) is Disposed:
                    self._dispose(event)
                elif type(event) is Delivered:
                    _end_of(event.link).on_delivered(event)
                else:
                    self._handle(event)
        except PeerError as error:
            engine.close(Error(error.condition, error.text))
            self.flush()
            failure = Disconnected(f"The server broke the protocol: {error.text}")
            failure.__cause__ = error
            self.fail(failure)
        self.flush()
        if engine.state in (ConnectionState.HEADER, ConnectionState.OPENING):
            self._say("open")

    def on_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        reason = f" ({error})" if error is not None else ""
        self.fail(Disconnected(f"The connection is gone{reason}."))

    def on_room(self) -> None:
        """The server reads again."""
        for link in list(self.links):
            link.on_flow()
        self.flush_soon()

    # -- events ------------------------------------------------------------------------

    def _dispose(self, event: Disposed) -> None:
        """Outcomes of what we sent; each delivery knows who waits for it."""
        if type(event.state) is InTransit:
            return
        for delivery in event.deliveries:
            delivery.cookie.decide(event.state)
            if not event.settled:
                number = delivery.delivery_id
                event.session.settle(number, number, event.state)

    def _handle(self, event: Event) -> None:
        if isinstance(event, Flowed | Drained):
            _end_of(event.link).on_flow()
        elif isinstance(event, Answered):
            for link in event.session.links.values():
                _end_of(link).on_answered(event)
        elif isinstance(event, Attached):
            self._attached(event.link)
        elif isinstance(event, Detached):
            self._detached(event)
        elif isinstance(event, Ended):
            for link in list(event.session.links.values()):
                self._ended(link, remote_error(event.error, "the session"))
        elif isinstance(event, Begun):
            if event.session in self._unwanted:
                self._unwanted.discard(event.session)
                event.session.end()
        elif isinstance(event, Opened):
            if not self._opened.done():
                self._opened.set_result(None)
        elif isinstance(event, Closed):
            self._close(event.error)

    def _attached(self, link: Link) -> None:
        if link.owner is not None:
            _end_of(link).on_attached()
        elif link.state is LinkState.ASKED:
            link.refuse(Error("amqp:not-allowed", "A client takes no links."))

    def _detached(self, event: Detached) -> None:
        """A link ended: so do its session and the link that shares it."""
        failure = remote_error(event.error, "the link")
        session = event.link.session
        for link in (event.link, *session.links.values()):
            self._ended(link, failure)
        session.end()

    def _ended(self, link: Link, failure: RemoteError) -> None:
        if link.owner is not None:
            end = _end_of(link)
            self.links.discard(end)
            end.on_ended(failure)

    def _close(self, error: Error | None) -> None:
        self.flush()
        text = "The server closed the connection."
        if error is not None and error.description:
            text = error.description
        failure = Disconnected(text)
        if error is not None:
            failure.condition = str(error.condition)
        self.fail(failure)


def _end_of(link: Link) -> LiveLink:
    """The client's end of a link."""
    return cast("LiveLink", link.owner)
