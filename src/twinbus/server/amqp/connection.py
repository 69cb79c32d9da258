"""One client's connection: bytes from the transport, events to the nodes behind links.

Owns the engine, the claims, and the bounds on a peer: bytes and seconds before its
first claim, idle time, what it lets pile up unread. Who may attach where is decided in
`attaching.py`; what a node does with a delivery is the node's own business.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import cast

from twinbus import limits
from twinbus.core.rights import Claim
from twinbus.core.sas import Secret
from twinbus.errors import (
    FrameError,
    LimitExceeded,
    PeerError,
    TwinbusError,
    Unauthorized,
)
from twinbus.ledger.schema import AMQP
from twinbus.server.access.memory import MemoryAccount, check_connection
from twinbus.server.access.port import CONNECTION_KIND, NamespacePort
from twinbus.server.amqp.attaching import answer_attach, attach_or_refuse
from twinbus.server.amqp.claims import Claims
from twinbus.server.amqp.describing import describe_connection
from twinbus.server.amqp.node import Needed, Node
from twinbus.server.amqp.receiving import ReceiveNode
from twinbus.server.amqp.replies import ReplyKey, ReplyNode, UnreadBytes, wire_error
from twinbus.server.amqp.transactions import Transactions
from twinbus.server.broker.clients import HasRoom
from twinbus.server.broker.commands import SessionKey
from twinbus.server.broker.directory.placement import unwatch_rules, watch_rules
from twinbus.server.broker.host import Host
from twinbus.server.broker.turn import Room
from twinbus.store.base import SessionGrant
from twinbus.wire.connection import ConnectionState, Engine
from twinbus.wire.events import (
    Attached,
    Closed,
    Delivered,
    Detached,
    Disposed,
    Ended,
    Event,
    Flowed,
    LoggedIn,
    Opened,
    Unsettled,
)
from twinbus.wire.link import Link, LinkState
from twinbus.wire.message.names import PING_CAPABILITY
from twinbus.wire.performatives import (
    Attach,
    Error,
    Open,
    Received,
    TransactionalState,
)
from twinbus.wire.session import Session

log = logging.getLogger("twinbus.connection")

# What a client may say of a delivery without deciding about it.
_NO_OUTCOMES = (type(None), Received)


class ServerConnection(asyncio.Protocol):
    """A client's connection to a namespace."""

    describe = describe_connection

    def __init__(self, port: NamespacePort) -> None:
        self.port = port
        # The host of the namespace; entities have theirs (`Node.host`).
        self.host: Host = port.host
        self.engine = Engine(server=True, container_id=port.host.namespace.name)
        self.claims = Claims(self)
        self.transactions = Transactions(self)
        # Whether its last command took a large part of a turn (`submissions.Owner`).
        self.costly = False
        # The peer does not read what it is sent.
        self.congested = False
        # Whether messages are taken for the client; shared with turns.
        self.room = Room()
        # Session locks that links of this connection hold, by container and name.
        self.grants: dict[SessionKey, SessionGrant] = {}
        # Replies on links that wait for credit, and all that the client has not read.
        self.reply_bytes = 0
        self._unread = UnreadBytes()
        # How many links it has asked for.
        self._attaches = 0
        # Deliveries that the client has not settled.
        self.unsettled = 0
        self._account: MemoryAccount | None = None
        # The links on which requests are answered, by what requests say of them.
        self.reply_nodes: dict[ReplyKey, dict[ReplyNode, None]] = {}
        # All links by the right that they need.
        self.needs: dict[Needed, dict[Node, None]] = {}
        self.peer = "?"
        self.address = ""
        # What the ledger calls it.
        self.kind = AMQP
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._flushing = False
        # A rehearsed fault keeps it from reading and writing.
        self._silent = False
        # What was read is not taken in yet, or too much of it waits for a host.
        self._behind = False
        self._crowded = False
        # The socket is gone.
        self._lost = False
        # Sessions whose links are still to be closed, once the connection is over.
        self._ending: deque[Session] | None = None
        self._trusted = False
        self._bytes_before_claim = 0
        self._received_at = self._loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._claim_timer: asyncio.TimerHandle | None = None
        # When the next claim ends, as far as the timer knows.
        self._claim_end_s: int | None = None
        self._closing_timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    # -- transport ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer)
        self.kind = transport.get_extra_info(CONNECTION_KIND) or AMQP
        self.address = str(peer[0]) if peer else ""
        if (reason := self.port.admit(self.address)) is not None:
            log.warning("refused %s: %s", self.peer, reason)
            self._transport.abort()
            return
        self.port.enter(self, self.address)
        self._account = self.port.memory.open(self, self.address)
        self._transport.set_write_buffer_limits(high=limits.WRITE_BUFFER_BYTES_MAX)
        later = self._loop.call_later
        self._claim_timer = later(limits.HANDSHAKE_SECONDS_MAX, self._check_claimed)
        self._idle_timer = later(limits.IDLE_LOOK_SECONDS, self._check_idle)
        if self.port.is_silent:
            self.fall_silent()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._received_at = self._loop.time()
        engine = self.engine
        try:
            if self._trusted:
                self.port.active_at = self._received_at
            else:
                self._count_before_claim(len(data))
            engine.feed(data)
        except PeerError as error:
            self._refuse(error)
        if not self._behind:
            self._work_off()
        if len(data) >= limits.READ_GO_BYTES:
            # The event loop would read again and again before it does anything else.
            self._pause_reading()
            self._loop.call_soon(self._resume_reading)

    def _work_off(self) -> None:
        """Take in what the client has sent, and let other clients in between.

        While it waits for its next go, no more is read from this client. One that
        attaches many links, or has begun much that it does not end, waits for some
        time: the server does other work meanwhile.
        """
        engine = self.engine
        left = limits.READ_WORK_MAX
        attaches = self._attaches
        try:
            while left > 0 and (event := engine.next_event()) is not None:
                if type(event) is Delivered:
                    left -= self._deliver(event)
                else:
                    left -= limits.READ_WORK_OF_EVENT
                    self._handle(event)
                left -= engine.steps
                engine.steps = 0
        except PeerError as error:
            self._refuse(error)
        self.flush()
        begun = not self._behind and engine.assembly_bytes > limits.PACED_ASSEMBLY_BYTES
        if (left <= 0 or begun) and engine.state is not ConnectionState.CLOSED:
            if not self._behind:
                self._behind = True
                self._pause_reading()
            if begun or attaches < self._attaches:
                self._loop.call_later(limits.READ_PAUSE_SECONDS, self._work_off)
            else:
                self._loop.call_soon(self._work_off)
        elif self._behind:
            self._behind = False
            self._resume_reading()
            if self._lost:
                self._leave()

    def _deliver(self, delivery: Delivered) -> int:
        """Hand a message to its node; one that cannot be read costs its link alone.

        Returns the steps that it took.
        """
        link = delivery.link
        node = link.owner
        if not isinstance(node, Node):
            return 1
        try:
            node.on_delivery(delivery)
        except PeerError as error:
            log.warning("detaching a link of %s: %s", self.peer, error.text)
            link.detach(wire_error(error))
            self.close_link(link)
        return node.delivery_steps

    def eof_received(self) -> bool:
        """The client will send no more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; nothing more can be said to it."""
        del exc
        self._lost = True
        watches = (self._claim_timer, self._idle_timer, self._closing_timer)
        for timer in (*watches, self._stall):
            if timer is not None:
                timer.cancel()
        # What it has sent before is taken in all the same.
        if not self._behind:
            self._leave()

    def _leave(self) -> None:
        self.port.leave(self, self.address)
        unwatch_rules(self.host, self)
        self.engine.state = ConnectionState.CLOSED
        self._close_links()

    def _close_links(self) -> None:
        """Nothing more is taken for a client that could not be told of it."""
        if self._ending is not None:
            return
        self._ending = deque(self.engine.sessions.values())
        self.room.closed = True
        # What a turn in hand has taken for a link that is not attached goes back.
        for session in self._ending:
            session.forget_all()
        self._close_some()

    def _close_some(self) -> None:
        """Close some of the links, and let other clients in between."""
        assert self._ending is not None
        left = limits.LINKS_CLOSED_PER_GO_MAX
        while self._ending and left > 0:
            session = self._ending.popleft()
            left -= 1 + len(session.links)
            for link in list(session.links.values()):
                self.close_link(link)
            # Not left to the garbage collector, which comes late.
            self.engine.forget(session)
        if self._ending:
            self._loop.call_soon(self._close_some)
            return
        self.engine.forget_all()
        self.transactions.forget_all()
        if self._account is not None:
            self._account.close()

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self.congested = True
        self.check_room()
        self._pause_reading()
        assert self._transport is not None
        seconds = limits.WRITE_STALL_SECONDS_MAX
        self._stall = self._loop.call_later(seconds, self._transport.abort)

    def resume_writing(self) -> None:
        """The peer reads again."""
        self.congested = False
        self._resume_reading()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self.check_room()

    def check_room(self) -> None:
        """Have no more messages taken while the client does not read those it has."""
        room = self.room
        blocked = self.engine.blocked_bytes > limits.STAGE_BYTES_MAX
        if blocked:
            self.engine.on_unblocked[self.check_room] = None
        room.closed = blocked or self.congested or self._ending is not None
        if not room.closed and room.passed_over:
            waiting, room.passed_over = room.passed_over, {}
            for shard, container in list(waiting):
                self.host.hosts[shard].serve_soon(container)

    # -- writing -----------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Write what there is, with all that the same turn has for the client."""
        if not self._flushing:
            self._flushing = True
            self.host.answers.soon(self.flush)

    def flush(self) -> None:
        """Write what there is."""
        self._flushing = False
        transport = self._transport
        if transport is None or transport.is_closing() or self._silent:
            return
        data = self.engine.take()
        if data:
            transport.write(data)
        if self._account is not None:
            self._account.note(self._held_bytes())
        if self.engine.state is ConnectionState.CLOSED:
            self._close_transport(transport)

    def close(self, error: Error | None = None) -> None:
        """Close the connection; the client is told why and has a moment to answer."""
        if self._silent:
            # Even its end would be a word.
            return
        self._close_links()
        self.engine.close(error)
        self.flush()
        if self._transport is not None and not self._transport.is_closing():
            self._close_transport(self._transport)

    def _close_transport(self, transport: asyncio.Transport) -> None:
        transport.close()
        # A client that does not read the rest would keep the socket for ever.
        seconds = limits.WRITE_STALL_SECONDS_MAX
        self._closing_timer = self._loop.call_later(seconds, transport.abort)

    def drop(self, reason: str) -> None:
        """End the connection at once, without a word to the client."""
        log.warning("dropping %s: %s", self.peer, reason)
        self.port.leave(self, self.address)
        self.engine.state = ConnectionState.CLOSED
        if self._transport is not None:
            self._transport.abort()

    def fall_silent(self) -> None:
        """Read no more and write no more, and stay: a rehearsed fault."""
        self._silent = True
        self._pause_reading()

    def note_unread(self) -> UnreadBytes:
        """What waits for the client to read, replies that are not written included."""
        transport = self._transport
        written = 0 if transport is None else transport.get_write_buffer_size()
        self._unread.waiting = self.reply_bytes + written
        return self._unread

    def wait_for_room(self, crowd: HasRoom) -> None:
        """Too much waits for a host or a line: read no more until it has caught up."""
        if not self._crowded:
            self._crowded = True
            self._pause_reading()
            crowd.on_room.append(self._has_room)

    def _has_room(self) -> None:
        self._crowded = False
        self._resume_reading()

    def _pause_reading(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()

    def _resume_reading(self) -> None:
        """Read on, unless there is another reason not to."""
        waits = self.congested or self._silent or self._behind or self._crowded
        transport = self._transport
        if transport is not None and not transport.is_closing() and not waits:
            transport.resume_reading()

    # -- memory ------------------------------------------------------------------------

    def _held_bytes(self) -> int:
        """What the client makes the server hold."""
        engine = self.engine
        transport = self._transport
        written = 0 if transport is None else transport.get_write_buffer_size()
        engine.other_bytes = (
            engine.blocked_bytes
            + written
            + self.reply_bytes
            + self.transactions.held_bytes
            + self.unsettled * limits.UNSETTLED_BYTES
            + engine.link_count * limits.LINK_BYTES
            + engine.attach_bytes
            + len(engine.sessions) * limits.SESSION_BYTES
        )
        return engine.other_bytes + engine.assembly_bytes

    def check_memory(self) -> None:
        """Raise `LimitExceeded` if nothing more may be held for the client."""
        check_connection(self._held_bytes())

    def _refuse(self, error: TwinbusError) -> None:
        """Close, and say why; before a claim the log says it as seldom as of tokens."""
        steady_ms = self.host.token_clock.now().steady_ms
        if self._trusted or self.port.failures.may_log(self.address, steady_ms):
            log.warning("closing %s: %s", self.peer, error.text)
        self.close(wire_error(error))

    def give_up(self, error: LimitExceeded) -> None:
        """End, because others need the memory."""
        if self.congested or self._silent:
            self.drop(error.text)
        else:
            self._refuse(error)
        self._close_links()

    # -- bounds ------------------------------------------------------------------------

    def _count_before_claim(self, size: int) -> None:
        self._bytes_before_claim += size
        if self._bytes_before_claim > limits.HANDSHAKE_BYTES_MAX:
            raise LimitExceeded("Too many bytes before a token was put to $cbs.")

    def _check_claimed(self) -> None:
        if not self._trusted:
            self._refuse(Unauthorized("No token was put to $cbs in time."))

    def trust(self) -> None:
        """The client has proved a key: it is no stranger any more."""
        if not self._trusted:
            self._trusted = True
            self.engine.trust()
            self.port.unclaimed.pop(self, None)
            watch_rules(self.host, self)

    def claimed(self, claim: Claim) -> None:
        """A token was accepted; its links end with it."""
        self.trust()
        if self._claim_end_s is None or claim.expires_s < self._claim_end_s:
            self._watch_claims(claim.expires_s)

    def _watch_claims(self, end_s: int | None) -> None:
        """Look at the links when a claim ends; one timer, however many claims."""
        if self._claim_timer is not None:
            self._claim_timer.cancel()
        self._claim_end_s = end_s
        if end_s is None:
            return
        left_s = end_s - self.host.token_clock.now().wall_ms / 1000
        # A day ahead is far enough: it looks again.
        delay = min(max(left_s, 0), 86_400) + 0.5
        self._claim_timer = self._loop.call_later(delay, self.check_claims)

    def check_claims(self) -> None:
        """Detach the links that no live claim covers any more."""
        self.engine.steps += len(self.needs)
        for needed, nodes in list(self.needs.items()):
            try:
                self.claims.allow(*needed)
            except Unauthorized as error:
                for node in list(nodes):
                    # One that waits for a session is refused when it has waited.
                    if node.link.state is LinkState.ATTACHED:
                        node.link.detach(wire_error(error))
                        self.close_link(node.link)
        self._watch_claims(self.claims.next_end_s())
        self.flush()

    def rules_changed(self) -> None:
        """Claims may have lost their keys, and links end with them."""
        self.claims.drop_revoked()
        self.check_claims()

    def _check_idle(self) -> None:
        now = self._loop.time()
        if now - self._received_at > 2 * limits.IDLE_TIMEOUT_MS / 1000:
            log.warning("closing %s: idle", self.peer)
            self.close(Error(condition="amqp:connection:forced", description="Idle."))
            return
        self.engine.heartbeat()
        self.flush()
        peer_ms = self.engine.peer_open.idle_time_out or 60_000
        delay = min(limits.IDLE_LOOK_SECONDS, max(peer_ms / 3000, 0.5))
        self._idle_timer = self._loop.call_later(delay, self._check_idle)

    # -- events ------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        kind = type(event)
        if kind is Flowed:
            node = cast("Flowed", event).link.owner
            if isinstance(node, Node):
                node.on_flow()
        elif kind is Disposed:
            self._dispose(cast("Disposed", event))
        elif kind is Attached:
            self._attach(cast("Attached", event).link)
        elif kind is Detached:
            self.close_link(cast("Detached", event).link)
        elif kind is Ended:
            for link in list(cast("Ended", event).session.links.values()):
                self.close_link(link)
        elif kind is Opened:
            self._open(cast("Opened", event).performative)
        elif kind is LoggedIn:
            self._log_in(cast("LoggedIn", event))
        elif kind is Closed:
            self._close_links()
            self.flush()

    def _log_in(self, login: LoggedIn) -> None:
        """The client has a name and a key instead of tokens."""
        host = self.port.choose(login.hostname)
        try:
            self.claims.log_in(host, login.name, Secret(login.password))
        except Unauthorized as error:
            self.engine.answer_login(False)
            raise FrameError(f"The login was refused. {error.text}") from None
        self.engine.answer_login(True)

    def _open(self, peer: Open) -> None:
        self.host = self.port.choose(peer.hostname)
        self.engine.container_id = self.host.namespace.name
        self.engine.open(
            Open(
                hostname=peer.hostname,
                idle_time_out=limits.IDLE_TIMEOUT_MS,
                offered_capabilities=[PING_CAPABILITY],
                properties=self.port.properties_of(self.host),
            )
        )
        try:
            self.claims.opened()
        except Unauthorized as error:
            # The key was one of another namespace, or is gone since.
            self._refuse(error)

    def _attach(self, link: Link) -> None:
        self.engine.steps += limits.READ_WORK_OF_ATTACH - limits.READ_WORK_OF_EVENT
        self._attaches += 1
        try:
            self.check_memory()
        except LimitExceeded as error:
            link.refuse(wire_error(error))
            return
        attach_or_refuse(self, link)

    def tell_missing(self, path: str) -> None:
        """Let the log say that the client asked for what does not exist."""
        steady_ms = self.host.token_clock.now().steady_ms
        self.port.failures.missing(self.address, steady_ms, path)

    def answer_attach(self, link: Link) -> Attach:
        """The usual answer to an attach: what the client said, and our limits."""
        return answer_attach(link)

    def _dispose(self, event: Disposed) -> None:
        """Hand settlements to the links that they belong to."""
        if not event.settled and type(event.state) in _NO_OUTCOMES:
            # Only a word on how far the client has come.
            return
        links = {delivery.link for delivery in event.deliveries}
        parts = [(link, event) for link in links]
        if len(links) > 1:
            by_link: dict[Link, list[Unsettled]] = {}
            for delivery in event.deliveries:
                by_link.setdefault(delivery.link, []).append(delivery)
            parts = [
                (link, event._replace(deliveries=own)) for link, own in by_link.items()
            ]
        for link, part in parts:
            node = link.owner
            if not isinstance(node, ReceiveNode):
                continue
            node.decided(part)
            if type(event.state) is TransactionalState:
                self.transactions.add_settle(node, part)
            else:
                node.on_disposed(part)

    def close_link(self, link: Link) -> None:
        """Forget what stood behind a link that is gone."""
        node, link.owner = link.owner, None
        if link.state is not LinkState.DETACHING:
            link.state = LinkState.DETACHED
        if isinstance(node, Node):
            node.forget()
            node.on_closed()
        self.flush_soon()
