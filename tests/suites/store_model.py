"""A store in plain Python: slow, small, and obviously right.

Owns the expected answers of `store_machine`. Rule: it holds messages, locks and
sessions in dictionaries and looks at all of them for each answer, so that it shares no
idea of speed with a real store. Knows nothing of transactions: the machine copies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinbus.clock import Now
from twinbus.store.base import (
    FOREVER_MS,
    Counts,
    EndedLock,
    EntityRow,
    Lock,
    OutboxCounts,
    Posted,
    SessionGrant,
    State,
    Stored,
    is_sub_queue,
)
from twinbus.store.records import Record


@dataclass
class Holder:
    """Who holds something, and until when."""

    nonce: int
    until_ms: int


@dataclass
class Model:
    """What a store should hold."""

    messages: dict[int, Stored] = field(default_factory=dict)
    locks: dict[int, Holder] = field(default_factory=dict)
    holders: dict[tuple[int, str], Holder] = field(default_factory=dict)
    states: dict[tuple[int, str], tuple[bytes, int]] = field(default_factory=dict)
    # Since when a session waits; it has an entry while it has messages or a holder.
    served: dict[tuple[int, str], int] = field(default_factory=dict)
    last_sequence: dict[int, int] = field(default_factory=dict)
    accessed_ms: dict[int, int] = field(default_factory=dict)
    seen: dict[tuple[int, str], int] = field(default_factory=dict)
    posted: dict[int, list[Posted]] = field(default_factory=dict)
    last_posted: dict[int, int] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)
    mirrored: dict[tuple[int, str], EntityRow] = field(default_factory=dict)

    # -- rules -----------------------------------------------------------------

    def of(self, container: int) -> list[Stored]:
        return [m for _, m in sorted(self.messages.items()) if m.container == container]

    def ready(
        self, container: int, limit: int, now: Now, session: SessionGrant | None
    ) -> list[Stored]:
        if session and not self.session_held(container, session, now.steady_ms):
            return []
        return [
            message
            for message in self.of(container)
            if message.state == State.ACTIVE
            and message.id not in self.locks
            and (message.expires_ms is None or message.expires_ms > now.wall_ms)
            and (session is None or message.session == session.name)
        ][:limit]

    def session_held(self, container: int, grant: SessionGrant, steady_ms: int) -> bool:
        holder = self.holders.get((container, grant.name))
        return (
            holder is not None
            and holder.nonce == grant.nonce
            and holder.until_ms > steady_ms
        )

    def held(self, lock: Lock, steady_ms: int) -> bool:
        holder = self.locks.get(lock.id)
        if holder is None or holder.nonce != lock.nonce or holder.until_ms <= steady_ms:
            return False
        if holder.until_ms < FOREVER_MS:
            return True
        message = self.messages[lock.id]
        assert message.session is not None
        grant = SessionGrant(message.session, lock.nonce, 0)
        return self.session_held(message.container, grant, steady_ms)

    def counts(self, container: int) -> Counts:
        messages = self.of(container)
        states = [message.state for message in messages]
        return Counts(
            states.count(State.ACTIVE),
            states.count(State.DEFERRED),
            states.count(State.SCHEDULED),
            sum(len(message.head) + len(message.bare) for message in messages),
            self.last_sequence.get(container, 0),
            self.accessed_ms.get(container, 0),
        )

    def sessions(self, container: int) -> list[str]:
        names = {m.session for m in self.of(container) if m.session is not None}
        names |= {name for at, name in self.states if at == container}
        return sorted(names)

    def next_wait_ms(self, now: Now) -> tuple[int | None, set[int]]:
        """The longest that is right, and all that name something real."""
        ends = [h.until_ms for h in self.locks.values() if h.until_ms < FOREVER_MS]
        ends += [holder.until_ms for holder in self.holders.values()]
        must = [until_ms - now.steady_ms for until_ms in ends]
        due = [m.due_ms for m in self.messages.values() if m.due_ms is not None]
        must += [due_ms - now.wall_ms for due_ms in due]
        may = list(must)
        for message in self.messages.values():
            if message.expires_ms is not None:
                may.append(message.expires_ms - now.wall_ms)
                if message.id not in self.locks:
                    must.append(message.expires_ms - now.wall_ms)
        return min(must, default=None), set(may)

    def outbox(self) -> dict[int, OutboxCounts]:
        return {
            target: OutboxCounts(
                len(rows), sum(len(row.body) for row in rows), self.last_posted[target]
            )
            for target, rows in self.posted.items()
        }

    # -- moves -----------------------------------------------------------------

    def append(self, container: int, given: Sequence[Record], now: Now) -> int:
        first = self.last_sequence.get(container, 0) + 1
        for sequence, record in enumerate(given, first):
            state = State.ACTIVE if record.due_ms is None else State.SCHEDULED
            self.messages[container << 40 | sequence] = Stored(
                container << 40 | sequence,
                now.wall_ms,
                state,
                record.deliveries,
                record.expires_ms,
                record.due_ms,
                record.session,
                record.origin,
                record.source,
                record.head,
                record.bare,
            )
            if record.session is not None:
                self.served.setdefault((container, record.session), now.steady_ms)
        self.last_sequence[container] = first + len(given) - 1
        self.accessed_ms[container] = now.wall_ms
        return first

    def lock(self, messages: Sequence[Stored], holder: Holder) -> None:
        for message in messages:
            assert message.id not in self.locks
            self.locks[message.id] = Holder(holder.nonce, holder.until_ms)

    def remove(self, ids: Sequence[int]) -> None:
        for key in ids:
            self.locks.pop(key, None)
            self.messages.pop(key, None)
        self.tidy()

    def give_back(self, ids: Sequence[int], *, count: bool) -> list[EndedLock]:
        ended = []
        for key in ids:
            del self.locks[key]
            message = self.messages[key]
            more = int(count and not is_sub_queue(message.container))
            message = message._replace(deliveries=message.deliveries + more)
            self.messages[key] = message
            ended.append(EndedLock(key, message.deliveries, message.session))
        return ended

    def defer(self, key: int) -> EndedLock:
        self.messages[key] = self.messages[key]._replace(state=State.DEFERRED)
        return self.give_back([key], count=True)[0]

    def waiting(self, container: int, steady_ms: int) -> str | None:
        """The free session with active messages that waited longest."""
        names = set()
        for message in self.of(container):
            if message.state == State.ACTIVE and message.session is not None:
                holder = self.holders.get((container, message.session))
                if holder is None or holder.until_ms <= steady_ms:
                    names.add(
                        (self.served[container, message.session], message.session)
                    )
        return min(names)[1] if names else None

    def accept(self, container: int, grant: SessionGrant, steady_ms: int) -> None:
        key = (container, grant.name)
        if key in self.holders:
            self.end_session(key, steady_ms, count=True)
        self.holders[key] = Holder(grant.nonce, grant.until_ms)
        self.served[key] = steady_ms

    def end_session(
        self, key: tuple[int, str], steady_ms: int, *, count: bool
    ) -> list[EndedLock]:
        nonce = self.holders.pop(key).nonce
        ids = [
            id_
            for id_, holder in sorted(self.locks.items())
            if holder == Holder(nonce, FOREVER_MS)
        ]
        self.served[key] = steady_ms
        ended = self.give_back(ids, count=count)
        self.tidy()
        return ended

    def tidy(self) -> None:
        """Forget since when sessions wait that have neither messages nor a holder."""
        there = {(m.container, m.session) for m in self.messages.values()}
        for key in list(self.served):
            if key not in there and key not in self.holders:
                del self.served[key]

    def remember(
        self, container: int, keys: Sequence[str], until_ms: int, steady_ms: int
    ) -> list[bool]:
        new = []
        for key in keys:
            new.append(self.seen.get((container, key), 0) <= steady_ms)
            if new[-1]:
                self.seen[container, key] = until_ms
        return new

    def post(self, target: int, kind: str, body: bytes) -> int:
        number = self.last_posted.get(target, 0) + 1
        self.last_posted[target] = number
        self.posted.setdefault(target, []).append(Posted(number, kind, body))
        return number

    def forget_posted(self, target: int, until: int) -> None:
        rows = self.posted.get(target, [])
        rows[:] = [row for row in rows if row.number > until]
