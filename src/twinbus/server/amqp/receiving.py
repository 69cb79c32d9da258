"""Links on which a client receives messages from a container.

Owns what a receiver may take: credit, unsettled bound, drain, a peer that does not
read. The link says what it wants; messages are locked inside a turn and delivered after
its commit. What a settlement does is in `settling.py`, the way to a session's lock in
`sessions.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.errors import EntityNotFound, LimitExceeded, SessionLockLost, TwinbusError
from twinbus.ledger.counts import LedgerAccount
from twinbus.ledger.schema import RECEIVE
from twinbus.server.amqp.node import Node
from twinbus.server.amqp.polls import LinkPolls
from twinbus.server.amqp.replies import wire_error
from twinbus.server.amqp.settling import Settle, SettleReply
from twinbus.server.broker.commands import (
    MessageWant,
    Quarantine,
    SessionKey,
    SharedCredit,
    TakenMessages,
    UnlockSession,
)
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.lock_tokens import locks_of, tags_of, token_bytes
from twinbus.server.broker.rendering import render_stored
from twinbus.server.broker.submissions import UNHEARD, Submission
from twinbus.store.base import (
    Lock,
    SessionGrant,
    State,
    Stored,
    is_sub_queue,
    sequence_of,
)
from twinbus.store.received import AlikeStored
from twinbus.wire.events import Disposed, Unsettled
from twinbus.wire.link import Link, LinkState
from twinbus.wire.message.rendering import render_locked, render_locked_run
from twinbus.wire.performatives import Accepted, Released

if TYPE_CHECKING:
    from twinbus.server.amqp.connection import ServerConnection


_RELEASED = Released()
_ACTIVE = State.ACTIVE


class ReceiveNode(Node):
    """The container's end of a link on which a client receives (`host.Consumer`)."""

    def __init__(
        self, connection: ServerConnection, link: Link, entity: Entity, container: int
    ) -> None:
        super().__init__(connection, link, connection.host.hosts[entity.shard])
        self.entity = entity
        self.container = container
        # The session lock that this link holds, if it is a session's.
        self.grant: SessionGrant | None = None
        self.unsettled = 0
        # Credit that brings no message, for the ledger.
        self.polls = LinkPolls(self)
        # What it may take together with others; None if it is alone.
        self.shared_credit: SharedCredit | None = None
        # Receive and delete: gone when sent.
        self._deletes = link.settled_by_us
        self._key: int | None = None
        # What the host was told last.
        self._want: MessageWant | None = None
        # The command that dispositions join until the host takes it.
        self._settle = Settle(container, False, None)
        self._reply = SettleReply(self)
        self._submission: Submission | None = None

    def open(self) -> None:
        """The attach has been answered: take part."""
        self._key = self.host.add_consumer(self.container, self)
        if self.host.fault is not None:
            self.store_failed(self.host.fault)
        if self.link.credit > 0 or self.link.drain:
            self.on_flow()

    # -- events of the link ------------------------------------------------------------

    def on_flow(self) -> None:
        """The client changed its credit."""
        self.polls.flowed()
        self.want()
        if self.link.echo and not self.link.drain:
            self.link.write_flow()

    def decided(self, event: Disposed) -> None:
        """The client has settled these; later dispositions of them are ignored."""
        if not event.settled:
            self.link.session.forget(event.deliveries)
        self.count(-len(event.deliveries))

    def count(self, more: int) -> None:
        """So many more deliveries are not settled."""
        self.unsettled += more
        self.connection.unsettled += more

    def parts_of(
        self, deliveries: list[Unsettled]
    ) -> list[tuple[ReceiveNode, list[Unsettled]]]:
        """The nodes that deliveries belong to: this one, unless it is divided."""
        return [(self, deliveries)]

    def on_disposed(self, event: Disposed) -> None:
        """The client settles deliveries; very many are several commands."""
        most = limits.SETTLED_DELIVERIES_MAX
        if type(event.state) is Accepted:
            most = limits.COMPLETED_DELIVERIES_MAX
        waiting = event.deliveries
        while waiting:
            submission = self._submission
            is_full = len(self._reply.ids) >= most
            is_new = submission is None or submission.taken or is_full
            if is_new:
                self._settle = Settle(self.container, self._by_session, self.grant)
                self._reply = SettleReply(self)
            room = most - len(self._reply.ids)
            taken, waiting = waiting[:room], waiting[room:]
            self._settle.items.append((event.state, [each.cookie for each in taken]))
            self._reply.add(taken, event.settled)
            if is_new:
                self._submission = self.host.submit(
                    self._settle, self._reply, owner=self.connection
                )

    @property
    def _by_session(self) -> bool:
        """Whether locks belong to a session's."""
        return self.entity.requires_session and not is_sub_queue(self.container)

    def on_closed(self) -> None:
        """The link is gone. Locks stay until they end; a session's end at once."""
        self.polls.ended()
        self.leave()
        self.count(-self.unsettled)
        grant = self.grant
        if grant is not None:
            host = self.host
            host.session_holders.pop((self.container, grant.nonce), None)
            # First what is being taken for the link goes back, uncounted.
            unlock = UnlockSession(self.container, grant)
            host.after_turn(partial(host.submit, unlock, UNHEARD))
            self._forget_grant()

    # -- the session -------------------------------------------------------------------

    def hold(self, grant: SessionGrant) -> None:
        """The link holds a session's lock, or one that was renewed."""
        self.grant = grant
        self.connection.grants[self._session_key(grant.name)] = grant
        self.host.session_holders[self.container, grant.nonce] = self

    def _session_key(self, name: str) -> SessionKey:
        return SessionKey(self.host.namespace.shard, self.container, name)

    @property
    def peer(self) -> str:
        """Who holds the session."""
        return self.connection.peer

    def session_lost(self) -> None:
        """The session's lock has ended."""
        self.leave()
        self._forget_grant()
        self.link.detach(wire_error(SessionLockLost()))
        self.connection.flush_soon()

    def _forget_grant(self) -> None:
        grant, self.grant = self.grant, None
        if grant is not None:
            key = self._session_key(grant.name)
            held = self.connection.grants.get(key)
            # Another link of the connection may hold the session by now.
            if held is not None and held.nonce == grant.nonce:
                del self.connection.grants[key]

    # -- deliveries --------------------------------------------------------------------

    def want(self) -> None:
        """Say what the client can take now."""
        link = self.link
        if self._key is None or link.state is not LinkState.ATTACHED:
            return
        room = min(link.credit, limits.UNSETTLED_PER_LINK_MAX - self.unsettled)
        if link.credit <= 0 and not link.drain:
            self._want = None
            self.host.unwant(self.container, self._key)
            return
        if link.session.blocked:
            # The client's window is closed: no more is taken until it opens.
            self._want = None
            self.host.unwant(self.container, self._key)
            link.session.on_unblocked[self.want] = None
            return
        self._want = MessageWant(
            self._key,
            self.container,
            self.entity,
            self.connection.room,
            max(room, 0),
            grant=self.grant,
            deletes=self._deletes,
            answer_empty=link.drain,
            unsettled=self._locks() if room <= 0 < link.credit else (),
            shared_credit=self.shared_credit,
        )
        self.host.want(self._want)

    def _locks(self) -> Sequence[Lock]:
        """The locks of what the client has not settled."""
        return [each.cookie for each in self.link.unsettled()]

    def deliver(self, want: MessageWant, taken: TakenMessages) -> None:
        """Send what was taken."""
        link = self.link
        if taken.error is not None:
            # With its entity gone, the link is detached anyway.
            if not isinstance(taken.error, EntityNotFound):
                link.detach(wire_error(taken.error))
                self.connection.flush_soon()
            return
        if link.state is not LinkState.ATTACHED:
            self.host.give_back(taken)
            return
        if taken.lost:
            self._forget_lost(set(taken.lost))
        if taken.nonce is None:
            sizes = self._send_deleted(taken.messages)
        else:
            sizes = []
            for part in taken.messages.parts:
                sizes += self._send_part(part, taken.nonce, taken.until_ms)
        if sizes and self.account is not None:
            self._count(self.account, sizes)
        self.connection.check_room()
        try:
            self.connection.check_memory()
        except LimitExceeded as error:
            link.detach(wire_error(error))
            self.connection.close_link(link)
        self.sent(want, taken)
        self.connection.flush_soon()

    def sent(self, want: MessageWant, taken: TakenMessages) -> None:
        """What was taken is on its way; say what can be taken now."""
        # A drain is answered by the turn that has seen this credit, not by one before.
        link = self.link
        if want is self._want and want.answer_empty and link.drain and not taken.more:
            link.drained()
            self.polls.ended()
        self.want()

    def _count(self, account: LedgerAccount, sizes: list[int]) -> None:
        self.polls.delivered()
        if max(sizes) <= limits.LEDGER_UNIT_BYTES:
            account.run_out(RECEIVE, len(sizes), sum(sizes))
        else:
            account.messages_out(RECEIVE, sizes)

    def _send_deleted(self, messages: Iterable[Stored]) -> list[int]:
        """Send messages that are gone from the store; returns their sizes."""
        sizes: list[int] = []
        base = self.entity.number_base
        for stored in messages:
            payload = render_stored(stored, b"", None, base)
            self.link.send(payload, b"\0" * 16)
            sizes.append(len(payload))
        return sizes

    def _send_part(
        self, part: list[Stored] | AlikeStored, nonce: int, until_ms: int
    ) -> list[int]:
        """Send locked messages, alike ones at less cost; returns their sizes."""
        if isinstance(part, list):
            return self._send_locked(part, nonce, until_ms)
        ids, base = part.ids, self.entity.number_base
        sequences = range(base | sequence_of(ids[0]), (base | sequence_of(ids[-1])) + 1)
        stamp = (nonce, part.enqueued_ms, until_ms)
        fronts = render_locked_run(ids, sequences, stamp, part.head, part.origins)
        if fronts is None:
            return self._send_locked(part.messages(), nonce, until_ms)
        front_bytes, bares = len(fronts[0]), part.apart()
        # Of what is there: a damaged row may say otherwise, and frames must not.
        sizes = [front_bytes + len(bare) for bare in bares]
        run = list(zip(tags_of(ids, nonce), fronts, bares, strict=True))
        self.link.send_run(run, sizes, locks_of(ids, nonce))
        self.count(len(run))
        return sizes

    def _send_locked(
        self, messages: Sequence[Stored], nonce: int, until_ms: int
    ) -> list[int]:
        """Send messages that are locked; returns their sizes."""
        run: list[tuple[bytes, bytes, bytes]] = []
        sizes: list[int] = []
        locks: list[Lock] = []
        base = self.entity.number_base
        ids = [stored[0] for stored in messages]
        named = zip(messages, locks_of(ids, nonce), tags_of(ids, nonce), strict=True)
        for stored, lock, tag in named:
            (
                key,
                enqueued_ms,
                state,
                deliveries,
                expires_ms,
                _due_ms,
                _session,
                origin,
                source,
                head,
                bare,
            ) = stored
            front = None
            try:
                if source is None and state == _ACTIVE and expires_ms is None:
                    sequence = base | sequence_of(key)
                    numbers = (sequence, enqueued_ms, deliveries)
                    front = render_locked(numbers, lock, until_ms, head, origin)
                if front is None:
                    front = render_stored(stored, token_bytes(*lock), until_ms, base)
                    bare = b""
            except Exception as error:  # noqa: BLE001
                # Its bytes are damaged: those behind it must not wait for it.
                self.host.submit(Quarantine(lock, error), UNHEARD)
                continue
            run.append((tag, front, bare))
            sizes.append(len(front) + len(bare))
            locks.append(lock)
        if run:
            self.link.send_run(run, sizes, locks)
        self.count(len(run))
        return sizes

    def _forget_lost(self, lost: set[Lock]) -> None:
        """Deliveries whose locks have ended take no place, though not settled.

        The Python SDK never speaks of them again.
        """
        session = self.link.session
        gone = [each for each in self.link.unsettled() if each.cookie in lost]
        self.count(-len(gone))
        for delivery in gone:
            session.settle(delivery.delivery_id, delivery.delivery_id, _RELEASED)

    def store_failed(self, error: TwinbusError) -> None:
        """The store has stopped. With others beside it, the client has to ask again.

        The only one of a namespace takes nothing else either: what is wanted waits.
        """
        if len(self.host.hosts) > 1:
            self.leave()
            self.link.detach(wire_error(error))
            self.connection.flush_soon()

    def leave(self) -> None:
        """Take part no longer."""
        key, self._key = self._key, None
        if key is not None:
            self.host.remove_consumer(self.container, key)
