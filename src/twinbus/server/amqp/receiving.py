"""Links on which a client receives messages from a container.

Owns what a receiver may take: credit, unsettled bound, drain, a peer that does not
read. Messages are locked inside a turn (`stage`) and delivered after its commit
(`release`). Settlement is in `settling.py`, the way to a session's lock in
`sessions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.core.names import EntityPath
from twinbus.core.rights import Operation
from twinbus.errors import EntityDisabled, SessionLockLost, TwinbusError
from twinbus.server.amqp.replies import wire_error
from twinbus.server.amqp.settling import Release, ReleaseSession, SettleRun
from twinbus.server.broker.entities import Entity
from twinbus.server.broker.lock_tokens import tag_bytes, token_bytes
from twinbus.server.broker.rendering import render_stored
from twinbus.store.base import SEQUENCE_MASK, Lock, SessionGrant, Stored
from twinbus.wire.events import Disposed, Outgoing
from twinbus.wire.link import Link, LinkState
from twinbus.wire.message.rendering import render_locked
from twinbus.wire.performatives import Released

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection
    from twinbus.server.broker.namespace import Namespace


_RELEASED = Released()
_LOST_LOOK_MS = 1_000


class ReceiveNode:
    """The container's end of a link on which a client receives (`host.Consumer`)."""

    def __init__(
        self, connection: ServerConnection, link: Link, entity: Entity, container: int
    ) -> None:
        self.connection = connection
        self.link = link
        self.entity = entity
        self.container = container
        # The session lock that this link stands for, if it is a session's.
        self.grant: SessionGrant | None = None
        self.unsettled = 0
        # The right that the link needs; its claim may end.
        self.needed: tuple[Operation, EntityPath] | None = None
        # Receive and delete: gone when sent.
        self._deletes = link.settled_by_us
        self._staged: list[Stored] = []
        self._staged_bytes = 0
        self._nonce = 0
        self._until_ms = 0
        self._draining = False
        # The last look found as much as it asked for: there may be more.
        self._more = False
        self._settle_run: SettleRun | None = None
        # When deliveries with lost locks were looked for.
        self._looked_ms = 0

    def open(self) -> None:
        """The attach has been answered: take part."""
        self.connection.host.add_consumer(self.container, self)
        if self.link.credit > 0 or self.link.drain:
            self.on_flow()

    # -- events of the link ------------------------------------------------------------

    def on_flow(self) -> None:
        """The client changed its credit."""
        # A drain is answered by the turn that has seen this credit, not by one before.
        self._draining = False
        if self.link.credit > 0 or self.link.drain:
            self.connection.host.hungry(self.container)
        if self.link.echo and not self.link.drain:
            self.link.write_flow()

    def decided(self, deliveries: list[Outgoing]) -> None:
        """The client has spoken; what it says again about them is not heard."""
        unsettled = self.link.session.unsettled
        for delivery in deliveries:
            unsettled.pop(delivery.delivery_id, None)
        self.unsettled -= len(deliveries)

    def on_disposed(self, event: Disposed) -> None:
        """The client settles deliveries."""
        run = self._settle_run
        if run is None or run.taken:
            run = self._settle_run = SettleRun(self)
            run.add(event)
            self.connection.host.submit(run)
        else:
            run.add(event)

    def on_closed(self) -> None:
        """The link is gone. Locks stay until they end; a session's end at once."""
        host = self.connection.host
        host.remove_consumer(self.container, self)
        self._return_staged()
        if self.grant is not None:
            host.session_holders.pop((self.container, self.grant.nonce), None)
            host.submit(ReleaseSession(self.container, self.grant))
            self.grant = None

    def session_lost(self) -> None:
        """The session's lock has ended."""
        self.connection.host.remove_consumer(self.container, self)
        self.grant = None
        self.link.detach(wire_error(SessionLockLost()))
        self.connection.flush_soon()

    # -- a turn of the host ------------------------------------------------------------

    def stage(self, namespace: Namespace, now_ms: int, share: int) -> bool:
        """Lock what the client has credit for."""
        link = self.link
        if link.state is not LinkState.ATTACHED or self.connection.congested:
            return False
        if namespace.entities.find(self.entity.key) is not self.entity:
            return False
        self._draining = link.drain
        self._more = False
        if not self.entity.description.status.can_receive:
            link.detach(
                wire_error(EntityDisabled(f"'{self.entity.name}' is disabled."))
            )
            self.connection.flush_soon()
            return False
        if self._unsent():
            return False
        if link.credit > 0 and self.unsettled >= limits.UNSETTLED_PER_LINK_MAX:
            self._forget_lost(namespace, now_ms)
        room = min(share, link.credit, limits.UNSETTLED_PER_LINK_MAX - self.unsettled)
        if room > 0:
            room = self._fitting(namespace, room)
            if room > 0:
                self._take(namespace, now_ms, room)
        return bool(self._staged) or self._draining

    def _unsent(self) -> bool:
        """Whether so much waits for the client's window that no more is taken."""
        engine = self.connection.engine
        if not self.link.session.blocked and (
            engine.blocked_bytes <= limits.STAGE_BYTES_MAX
        ):
            return False
        engine.on_unblocked[self._go_on] = None
        return True

    def _go_on(self) -> None:
        if self.link.state is LinkState.ATTACHED:
            self.connection.host.hungry(self.container)

    def _forget_lost(self, namespace: Namespace, now_ms: int) -> None:
        """Deliveries whose locks have ended take no place, though nobody settles them.

        The Python SDK never speaks of them again. Looked at once a second at most.
        """
        if abs(now_ms - self._looked_ms) < _LOST_LOOK_MS:
            return
        self._looked_ms = now_ms
        session = self.link.session
        mine = [each for each in session.unsettled.values() if each.link is self.link]
        held = namespace.store.holding([each.cookie for each in mine], now_ms)
        lost = [each for each, ok in zip(mine, held, strict=True) if not ok]
        self.decided(lost)
        for delivery in lost:
            session.settle(delivery.delivery_id, delivery.delivery_id, _RELEASED)
        self.connection.flush_soon()

    def _fitting(self, namespace: Namespace, room: int) -> int:
        """How many of `room` messages fit into memory; the rest has the next turn."""
        counts = namespace.store.counts(self.container)
        left_bytes = limits.STAGE_BYTES_MAX - self.connection.staged_bytes
        if counts.size_bytes <= left_bytes:
            return room
        if left_bytes <= 0:
            self._more = True
            self.connection.host.hungry(self.container)
            return 0
        held = counts.active + counts.deferred + counts.scheduled
        average_bytes = counts.size_bytes // max(held, 1)
        return min(room, max(left_bytes // max(average_bytes, 1), 1))

    def _take(self, namespace: Namespace, now_ms: int, room: int) -> None:
        store = namespace.store
        grant = self.grant
        if self._deletes:
            self._staged = store.take(self.container, room, now_ms, grant)
        else:
            self._until_ms = now_ms + self.entity.lock_ms
            if grant is not None:
                self._until_ms = grant.until_ms
            self._nonce, self._staged = store.lock(
                self.container, room, self._until_ms, now_ms, grant
            )
        if self._staged:
            store.touch(self.container, now_ms)
            self._staged_bytes = sum(len(stored.bare) for stored in self._staged)
            self.connection.staged_bytes += self._staged_bytes
        self._more = len(self._staged) == room
        if self._more:
            self.connection.host.hungry(self.container)

    def release(self) -> None:
        """Deliver what was staged."""
        self._unstage()
        if self.link.state is not LinkState.ATTACHED:
            self._return_staged()
            return
        staged, self._staged = self._staged, []
        self.entity.delivered += len(staged)
        if self._deletes:
            for stored in staged:
                self.link.send(render_stored(stored, None, None), b"\0" * 16)
        else:
            self._deliver_locked(staged)
        if self._draining and self.link.drain and not self._more:
            self.link.drained()
        self.connection.flush_soon()

    def _deliver_locked(self, staged: list[Stored]) -> None:
        nonce = self._nonce
        until_ms = self._until_ms
        send = self.link.send
        for stored in staged:
            key = stored.id
            token = token_bytes(key, nonce)
            sequence = key & SEQUENCE_MASK
            numbers = (
                sequence,
                stored.origin or sequence,
                stored.enqueued_ms,
                stored.deliveries,
            )
            front = None
            if (
                stored.source is None
                and stored.state == 0
                and stored.expires_ms is None
            ):
                front = render_locked(numbers, token, until_ms, stored.head)
            if front is None:
                payload = render_stored(stored, token, until_ms)
            else:
                payload = front + stored.bare
            send(payload, tag_bytes(key, nonce), Lock(key, nonce))
        self.unsettled += len(staged)

    def _return_staged(self) -> None:
        """What was locked for a client that is gone goes back uncounted."""
        staged, self._staged = self._staged, []
        if staged and not self._deletes:
            locks = [Lock(stored.id, self._nonce) for stored in staged]
            self.connection.host.submit(Release(locks))

    def fail(self, error: TwinbusError) -> None:
        """The turn did not happen: nothing was locked."""
        del error
        self._staged = []
        self._unstage()

    def _unstage(self) -> None:
        self.connection.staged_bytes -= self._staged_bytes
        self._staged_bytes = 0
