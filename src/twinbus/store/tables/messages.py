"""Messages of a store: kept, locked, settled, looked at, removed.

Owns the methods of the contract that name messages or their locks. The hot path is
`append`, `lock` and `complete`: they insert and delete rows in groups, and update none
but the counters, which are in memory. Knows nothing of time but what is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from twinbus import limits
from twinbus.clock import Now
from twinbus.errors import MessageNotFound, QuotaExceeded
from twinbus.store.base import (
    FOREVER_MS,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    EndedLock,
    Lock,
    Purged,
    SessionGrant,
    State,
    Stored,
)
from twinbus.store.received import ReceivedMessages
from twinbus.store.records import AlikeRecords, Record
from twinbus.store.tables.containers import Container
from twinbus.store.tables.rows import (
    LEAVING_TEXTS,
    Hold,
    Leaving,
    Rows,
    guarded,
)

NONCE_MAX = (1 << 63) - 1


class LockTerms(NamedTuple):
    """How messages are locked."""

    nonce: int
    until_ms: int


class Messages(Rows):
    """The part of the store that keeps and settles messages."""

    # -- in --------------------------------------------------------------------

    @guarded
    def append(self, container: int, records: Sequence[Record], now: Now) -> int:
        wall_ms = now.wall_ms
        counters = self._containers.change(container)
        first = next_sequence(counters, len(records))
        next_id = container << SEQUENCE_BITS | first
        plain: list[tuple[object, ...]] = []
        active: list[tuple[object, ...]] = []
        scheduled: list[tuple[object, ...]] = []
        size_bytes = 0
        for record in records:
            head, bare, session, expires_ms, due_ms, origin, source, deliveries = record
            size_bytes += len(head) + len(bare)
            # The driver has a short way for integers, text and bytearrays. Anything
            # else, None and bytes too, costs half a microsecond more.
            tail: tuple[object, ...] = (bytearray(head), bytearray(bare))
            if due_ms is not None:
                tail = (due_ms, session, origin, source, *tail)
                scheduled.append((next_id, wall_ms, deliveries, expires_ms, *tail))
                self._note_due(due_ms)
            elif session is None and source is None:
                end_ms = FOREVER_MS if expires_ms is None else expires_ms
                tail = (origin or 0, *tail)
                plain.append((next_id, wall_ms, deliveries, end_ms, *tail))
            else:
                tail = (session, origin, source, *tail)
                active.append((next_id, wall_ms, deliveries, expires_ms, *tail))
            if expires_ms is not None:
                self._note_expiry(expires_ms)
            next_id += 1
        if plain:
            self._insert(self._sql["append_plain"], plain)
        if active:
            self._insert(self._sql["append_message"], active)
        if scheduled:
            self._insert(self._sql["append_scheduled"], scheduled)
        if active or scheduled:
            self._count_sessions(container, records, now.steady_ms)
        counters.last_sequence += len(records)
        counters.active += len(plain) + len(active)
        counters.scheduled += len(scheduled)
        counters.size_bytes += size_bytes
        self._containers.stored_bytes += size_bytes
        counters.accessed_ms = wall_ms
        return first

    def append_alike(
        self, container: int, groups: Sequence[AlikeRecords], now: Now
    ) -> int:
        records = [record for each in groups for record in each.records()]
        return self.append(container, records, now)

    def _count_sessions(
        self, container: int, records: Sequence[Record], steady_ms: int
    ) -> None:
        sessions: dict[str, list[int]] = {}
        for record in records:
            if record.session is not None:
                counters = sessions.setdefault(record.session, [0, 0])
                counters[0] += record.due_ms is None
                counters[1] += 1
        for name, (active, messages) in sessions.items():
            row = (container, name, active, messages, steady_ms)
            self._run(self._sql["count_session"], row)

    def number(self, container: int, count: int) -> int:
        counters = self._containers.change(container)
        first = next_sequence(counters, count)
        counters.last_sequence += count
        return first

    # -- out -------------------------------------------------------------------

    @guarded
    def lock(
        self,
        container: int,
        limit: int,
        until_ms: int,
        now: Now,
        session: SessionGrant | None = None,
    ) -> tuple[int, ReceivedMessages]:
        nonce = self._new_nonce() if session is None else session.nonce
        end_ms = min(until_ms, FOREVER_MS - 1) if session is None else FOREVER_MS
        terms = LockTerms(nonce, end_ms)
        return nonce, self._receive(container, limit, now, session, terms)

    @guarded
    def take(
        self,
        container: int,
        limit: int,
        now: Now,
        session: SessionGrant | None = None,
    ) -> ReceivedMessages:
        return self._receive(container, limit, now, session, None)

    def _receive(
        self,
        container: int,
        limit: int,
        now: Now,
        session: SessionGrant | None,
        terms: LockTerms | None,
    ) -> ReceivedMessages:
        """The next ready messages, locked on these terms; without any, removed.

        They are not ready any more: the heads move past them.
        """
        counters = self._containers.get(container)
        received = ReceivedMessages()
        if limit <= 0 or not counters.active:
            return received
        if now.wall_ms != self._seen_wall_ms:
            self._see(now.wall_ms)
        if session is not None:
            messages = self._ready_in_session(counters, limit, now, session)
            self._hold(messages, terms)
            received.add(messages)
        else:
            self._receive_any(received, counters, limit, now.wall_ms, terms)
        if received:
            self._containers.change(container).accessed_ms = now.wall_ms
        return received

    def _receive_any(
        self,
        received: ReceivedMessages,
        counters: Container,
        limit: int,
        wall_ms: int,
        terms: LockTerms | None,
    ) -> None:
        """Add messages of any session or none: first those at or below the head."""
        if counters.head:
            base = counters.id << SEQUENCE_BITS
            at = (base, base | counters.head, wall_ms, limit)
            messages = self._stored(self._sql["ready_returned"], at)
            if messages:
                ids = self._ids([message[0] for message in messages])
                self._run(self._sql["delete_returned"], (ids,))
                self._hold(messages, terms)
                received.add(messages)
        if len(received) < limit and counters.head != counters.last_sequence:
            self._receive_above(received, counters, limit, wall_ms, terms)

    def _receive_above(
        self,
        received: ReceivedMessages,
        counters: Container,
        limit: int,
        wall_ms: int,
        terms: LockTerms | None,
    ) -> None:
        """Add messages above the head, which moves past them, up to the limit."""
        missing, last = limit - len(received), counters.last_sequence
        received.add(self._receive_rows(counters, last, missing, wall_ms, terms))

    def _receive_rows(
        self,
        counters: Container,
        last: int,
        limit: int,
        wall_ms: int,
        terms: LockTerms | None,
    ) -> list[Stored]:
        """The same, up to a sequence number."""
        base = counters.id << SEQUENCE_BITS
        at = (base | counters.head, base | last, wall_ms, limit)
        query = self._sql["ready_unlocked" if counters.held_sessions else "ready"]
        messages = self._stored(query, at)
        counters = self._containers.change(counters.id)
        counters.head = messages[-1].sequence if len(messages) == limit else last
        self._hold(messages, terms)
        return messages

    def _hold(self, messages: Sequence[Stored], terms: LockTerms | None) -> None:
        """Lock messages that have rows, or remove them."""
        if terms is None:
            self._forget([_leaving(message) for message in messages])
        elif messages:
            ids = self._ids([message[0] for message in messages])
            self._run(self._sql["insert_locks"], (*terms, ids))

    def _ready_in_session(
        self, counters: Container, limit: int, now: Now, session: SessionGrant
    ) -> list[Stored]:
        key = (counters.id, session.name)
        row = self._run(self._sql["session"], key).fetchone()
        if row is None or row[0] != session.nonce or row[1] <= now.steady_ms:
            return []
        head = row[2]
        base = counters.id << SEQUENCE_BITS
        at = (session.name, base | head, base | SEQUENCE_MASK, now.wall_ms, limit)
        messages = self._stored(self._sql["ready_in_session"], at)
        moved = counters.last_sequence
        if len(messages) == limit:
            moved = messages[-1].sequence
        if moved != head:
            self._containers.change(counters.id)
            self._run(self._sql["set_session_head"], (moved, *key))
        self._unlist(message.id for message in messages)
        return messages

    # -- looked at -------------------------------------------------------------

    @guarded
    def find(self, container: int, sequences: Sequence[int]) -> list[Stored]:
        base = container << SEQUENCE_BITS
        # A number that is too large would be one of another container.
        wanted = [base | key for key in sequences if 0 < key <= SEQUENCE_MASK]
        there = {message.id: message for message in self._find(wanted)}
        return [there[key] for key in wanted if key in there]

    def _find(self, ids: Sequence[int]) -> list[Stored]:
        self._unpack(ids)
        array = self._ids(ids)
        return self._stored(self._sql["find"], (array, array))

    @guarded
    def peek(
        self, container: int, start: int, limit: int, now: Now, session: str | None
    ) -> list[Stored]:
        if start > SEQUENCE_MASK:
            return []
        at = {
            "first": container << SEQUENCE_BITS | max(start, 0),
            "end": (container + 1) << SEQUENCE_BITS,
            "now_ms": now.wall_ms,
            "session": session,
            "limit": max(limit, 0),
        }
        query = self._sql["peek" if session is None else "peek_session"]
        return self._stored(query, at)

    @guarded
    def held(self, lock: Lock, now: Now) -> Stored | None:
        if self._holds([lock], now.steady_ms)[0] is None:
            return None
        return self._find([lock.id])[0]

    @guarded
    def holding(self, locks: Sequence[Lock], now: Now) -> list[bool]:
        return [hold is not None for hold in self._holds(locks, now.steady_ms)]

    # -- settled ---------------------------------------------------------------

    @guarded
    def lock_deferred(self, ids: Sequence[int], until_ms: int, now: Now) -> int:
        steady_ms = now.steady_ms
        wanted = list(dict.fromkeys(ids))
        array = self._ids(wanted)
        messages = self._fetch(self._sql["sizes"], (array, array), LEAVING_TEXTS)
        if len(messages) < len(wanted) or any(
            message[1] != State.DEFERRED for message in messages
        ):
            raise MessageNotFound
        holds = self._locked(wanted)
        if any(self._lasts(hold, steady_ms) for hold in holds):
            raise MessageNotFound
        # A lock whose end has come and that was not given back yet.
        self._give_back(holds, count=True)
        nonce, end_ms = self._new_nonce(), min(until_ms, FOREVER_MS - 1)
        for key in wanted:
            self._containers.change(key >> SEQUENCE_BITS)
        owners = {(key >> SEQUENCE_BITS, name) for key, _, name, _ in messages}
        if len(owners) == 1 and None not in (owner := owners.pop()):
            holder = self._holder(*owner, steady_ms)
            if holder is not None:
                nonce, end_ms = holder, FOREVER_MS
        self._run(self._sql["insert_locks"], (nonce, end_ms, array))
        return nonce

    def _lasts(self, hold: Hold, steady_ms: int) -> bool:
        return self._holds([Lock(hold.id, hold.nonce)], steady_ms)[0] is not None

    @guarded
    def renew(self, lock: Lock, until_ms: int, now: Now) -> bool:
        hold = self._holds([lock], now.steady_ms)[0]
        if hold is None:
            return False
        # The lock of a session's message has no end of its own to move.
        if hold.until_ms != FOREVER_MS:
            self._containers.change(lock.id >> SEQUENCE_BITS)
            end_ms = min(until_ms, FOREVER_MS - 1)
            self._run(self._sql["renew_lock"], (end_ms, lock.id))
        return True

    @guarded
    def complete(self, locks: Sequence[Lock], now: Now) -> list[bool]:
        steady_ms = now.steady_ms
        answers: list[bool] = []
        others: list[Lock] = []
        for run in runs_of(locks):
            if len(run) < limits.STORE_RUN_MESSAGES_MIN and len(run) < len(locks):
                others += run
                continue
            # In order, because a lock may be named twice.
            answers += self._complete_each(others, steady_ms)
            others = []
            if self._complete_run(run, steady_ms):
                answers += [True] * len(run)
            else:
                others += run
        return answers + self._complete_each(others, steady_ms)

    def _complete_run(self, run: Sequence[Lock], steady_ms: int) -> bool:
        """Complete messages in a row, if all are plain and held; else change nothing.

        This is how receivers settle, and three statements do it for any number.
        """
        first, nonce = run[0]
        last = run[-1].id
        container = first >> SEQUENCE_BITS
        if not self._containers.has(container) or nonce > NONCE_MAX:
            return False
        counters = self._containers.change(container)
        if counters.held_sessions:
            return False
        at = (first, last, nonce, steady_ms)
        messages, size_bytes = self._run(self._sql["held_run"], at).fetchone()
        if messages != len(run):
            return False
        self._run(self._sql["delete_lock_run"], (first, last))
        self._run(self._sql["delete_message_run"], (first, last))
        counters.active -= messages
        counters.size_bytes -= size_bytes
        self._containers.stored_bytes -= size_bytes
        return True

    def _complete_each(self, locks: Sequence[Lock], steady_ms: int) -> list[bool]:
        if not locks:
            return []
        holds = self._holds(locks, steady_ms)
        held = [hold for hold in holds if hold is not None]
        if held:
            ids = self._ids([hold.id for hold in held])
            self._run(self._sql["delete_locks"], (ids,))
            self._forget(held)
        return [hold is not None for hold in holds]

    @guarded
    def release(self, locks: Sequence[Lock], now: Now, count: bool) -> list[EndedLock]:
        holds = self._holds(locks, now.steady_ms)
        return self._give_back([hold for hold in holds if hold is not None], count)

    @guarded
    def defer(self, lock: Lock, now: Now) -> EndedLock | None:
        hold = self._holds([lock], now.steady_ms)[0]
        if hold is None:
            return None
        counters = self._containers.change(lock.id >> SEQUENCE_BITS)
        if hold.state == State.ACTIVE:
            self._run(self._sql["set_deferred"], (lock.id,))
            counters.active -= 1
            counters.deferred += 1
            if hold.session is not None:
                fewer = (1, 0, counters.id, hold.session)
                self._run(self._sql["lower_session"], fewer)
        aside = hold._replace(state=State.DEFERRED)
        return self._give_back([aside], count=True)[0]

    # -- changed and gone ------------------------------------------------------

    @guarded
    def replace(self, id: int, head: bytes, bare: bytes) -> None:
        self._unpack([id])
        array = self._ids([id])
        rows = self._fetch(self._sql["sizes"], (array, array), LEAVING_TEXTS)
        if not rows:
            raise MessageNotFound
        message = Leaving._make(rows[0])
        scheduled = message.state == State.SCHEDULED
        query = self._sql["replace_scheduled" if scheduled else "replace_message"]
        self._run(query, (head, bare, id))
        counters = self._containers.change(id >> SEQUENCE_BITS)
        grown_bytes = len(head) + len(bare) - message.size_bytes
        counters.size_bytes += grown_bytes
        self._containers.stored_bytes += grown_bytes

    @guarded
    def remove(self, ids: Iterable[int]) -> None:
        wanted = list(ids)
        self._unpack(wanted)
        array = self._ids(wanted)
        rows = self._fetch(self._sql["sizes"], (array, array), LEAVING_TEXTS)
        # A number that was named twice is there twice.
        messages = [Leaving._make(row) for row in dict.fromkeys(rows)]
        scheduled = [m for m in messages if m.state == State.SCHEDULED]
        others = [m for m in messages if m.state != State.SCHEDULED]
        if scheduled:
            self._run(self._sql["delete_scheduled"], (array,))
            self._discount(scheduled)
        if others:
            self._run(self._sql["delete_locks"], (array,))
            self._unlist(m.id for m in others)
            self._forget(others)

    @guarded
    def purge(self, container: int) -> int:
        counters = self._containers.change(container)
        messages = counters.active + counters.deferred + counters.scheduled
        self._empty(container, container + 1)
        self._containers.stored_bytes -= counters.size_bytes
        counters.active = counters.deferred = counters.scheduled = 0
        counters.size_bytes = counters.held_sessions = 0
        counters.head = counters.last_sequence
        return messages

    @guarded
    def purge_some(self, container: int, until: int, limit: int) -> Purged:
        messages = self._purge_messages(container, until, limit)
        left = limit - messages
        for table in ("session_states", "duplicates"):
            if left > 0:
                left -= self._changes(self._sql[f"some_{table}"], (container, left))
        return Purged(messages, left > 0)

    def _purge_messages(self, container: int, until: int, limit: int) -> int:
        """Forget up to `limit` messages up to a number; returns how many."""
        first = container << SEQUENCE_BITS
        at = {"first": first, "last": first + until, "limit": limit}
        ids = [row[0] for row in self._run(self._sql["first_messages"], at).fetchall()]
        if ids:
            self.remove(ids)
        return len(ids)

    def _empty(self, container: int, end: int) -> None:
        """Delete all rows of the containers from `container` up to `end`."""
        ids = (container << SEQUENCE_BITS, end << SEQUENCE_BITS)
        for table in ("messages", "scheduled", "locks", "returned"):
            self._run(self._sql[f"empty_{table}"], ids)
        for table in ("sessions", "session_states", "duplicates"):
            self._run(self._sql[f"empty_{table}"], (container, end))


def next_sequence(counters: Container, count: int) -> int:
    """The number that the next of `count` messages gets."""
    if counters.last_sequence + count > SEQUENCE_MASK:
        raise QuotaExceeded("The sequence numbers of this entity are used up.")
    return counters.last_sequence + 1


def runs_of(locks: Sequence[Lock]) -> Iterator[Sequence[Lock]]:
    """Split locks where the ids do not count up or the nonce changes."""
    start = 0
    id_before = nonce_before = -1
    for position, (message_id, nonce) in enumerate(locks):
        if message_id != id_before + 1 or nonce != nonce_before:
            if position:
                yield locks[start:position]
            start = position
        id_before, nonce_before = message_id, nonce
    if locks:
        yield locks[start:]


def _leaving(message: Stored) -> Leaving:
    size_bytes = len(message.head) + len(message.bare)
    return Leaving(message.id, message.state, message.session, size_bytes)
