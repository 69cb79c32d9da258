"""Suite: random histories, compared step by step with the model.

Owns the steps of a history: any order of calls on two containers, with and without
sessions, and for other stores, with commits, rollbacks, undone parts and restarts in
between. Time passes on both clocks, and the wall clock is set, forward and back.
After each step all counts and all messages must be those of the model.
Knows no database, and not where its choices come from: a seed walks far, hypothesis
finds a short history for what fails.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.suites.store_model import Holder, Model
from tests.suites.store_suite import Backend
from twinbus.clock import Now
from twinbus.errors import MessageNotFound
from twinbus.store.base import (
    FOREVER_MS,
    EntityRow,
    Lock,
    Mirrored,
    Purged,
    SessionGrant,
    State,
    Store,
    Stored,
)
from twinbus.store.records import AlikeRecords, Record

T = TypeVar("T")

ALL = 1000
PARTS = [0, 0, 1]
NAMES = ["s", ""]
LIMITS = [1, 2, 9, 0]
# Long enough that most locks outlast some steps, short enough that all of them end.
SPANS = [10, 3, 50]
WAITS = [1, 5, 20]
CLOCK_STEPS = [-3, 30, -40]
# Before any message expires.
EARLIEST = Now.at(-FOREVER_MS)
YES_OR_NO = [True, False]
MOSTLY = [True, True, False]
OTHERS = [1, 2]
ENDINGS = [*["commit"] * 6, "rollback", "rollback", "restart"]
# Some steps are worth more than others.
STEPS = [
    *["append", "append_alike", "receive", "receive", "receive"],
    *["append", "append", "lock", "lock", "accept", "accept", "wait", "wait", "take"],
    *["end_transaction", "end_locks", "end_sessions", "expire", "expire", "move_due"],
    *["put_state", "remember", "purge", "purge_some", "set_clock", "part", "part"],
    *["post", "post", "forget_posted", "put_applied", "mirror"],
]
STEPS_ON_MESSAGES = ["replace_or_remove", "lock_deferred"]
STEPS_ON_LOCKS = ["complete", "release", "release", "renew", "defer", "defer"]
STEPS_ON_GRANTS = ["lock_session", "lock_session", "release_session", "renew_session"]


class Choice(Protocol):
    """Picks one of several."""

    def __call__(self, options: Sequence[T], /) -> T: ...


class History:
    """One history of a store."""

    def __init__(self, backend: Backend, choose: Choice) -> None:
        self.backend = backend
        self.choose = choose
        self.store: Store = backend.open()
        self.model = Model()
        self.now = Now(0, 0)
        # Every lock and session lock that was ever given out, held or not.
        self.locks: list[Lock] = []
        self.grants: list[tuple[int, SessionGrant]] = []
        # The marks of the parts that are open.
        self.parts: list[int] = []
        self.store.begin()
        self.queue = self.store.insert_entity("queue", "orders", "{}", 0)
        self.containers = (self.queue, self.queue + 1)
        self.commit()

    def close(self) -> None:
        self.store.rollback()
        self.store.close()

    def step(self) -> None:
        steps = list(STEPS)
        if self.model.messages:
            steps += STEPS_ON_MESSAGES
        if self.locks:
            steps += STEPS_ON_LOCKS
        if self.grants:
            steps += STEPS_ON_GRANTS
        getattr(self, self.choose(steps))()
        self.check()

    # -- transactions ------------------------------------------------------------

    def part(self) -> None:
        """Some steps, which may be undone; they may have parts of their own."""
        before = copy.deepcopy(self.model)
        self.parts.append(self.store.begin_part())
        for _ in range(self.choose([1, 2])):
            self.step()
        mark = self.parts.pop()
        if self.choose(YES_OR_NO):
            self.store.undo_part(mark)
            self.model = before
        else:
            self.store.end_part()

    def end_transaction(self) -> None:
        ending, is_sealed = self.choose(ENDINGS), self.choose(YES_OR_NO)
        if self.parts:
            return
        if is_sealed:
            self.store.seal()
        if ending == "commit":
            self.commit()
            return
        if ending == "rollback":
            self.store.rollback()
        else:
            self.store.close()
            self.store = self.backend.open()
        self.model = copy.deepcopy(self.before)
        self.store.begin()

    def commit(self) -> None:
        self.store.commit()
        self.store.checkpoint()
        self.before = copy.deepcopy(self.model)
        self.store.begin()

    def wait(self) -> None:
        span_ms = self.choose(WAITS)
        steady_ms, wall_ms = self.now
        self.now = Now(steady_ms + span_ms, wall_ms + span_ms)

    def set_clock(self) -> None:
        step_ms = self.choose(CLOCK_STEPS)
        self.now = self.now._replace(wall_ms=self.now.wall_ms + step_ms)

    # -- messages ------------------------------------------------------------------

    def append(self) -> None:
        at = self.queue + self.choose(PARTS)
        count = self.choose([1, 2, 6])
        given = [self.some_record() for _ in range(count)]
        if self.choose(YES_OR_NO):
            given = self.records_alike(self.choose([2, 6, 11]))
        first = self.store.append(at, given, self.now)
        assert first == self.model.append(at, given, self.now)

    def append_alike(self) -> None:
        at = self.queue + self.choose(PARTS)
        groups = [self.some_group() for _ in range(self.choose([1, 2]))]
        first = self.store.append_alike(at, groups, self.now)
        given = [record for group in groups for record in group.records()]
        assert first == self.model.append(at, given, self.now)

    def some_group(self) -> AlikeRecords:
        records = self.records_alike(self.choose([1, 6, 11]))
        bares = [record.bare for record in records]
        first = records[0]
        sizes = list(map(len, bares))
        return AlikeRecords(first.head, sizes, b"".join(bares), first.origin)

    def records_alike(self, count: int) -> list[Record]:
        """As a sender or a topic hands them in: a store may keep them together."""
        head, origin = self.choose([b"head", b""]), self.choose([None, 7])
        numbers = [None] * count if origin is None else range(origin, origin + count)
        return [
            Record(head, self.choose([b"bare", b"b", b""]), origin=number)
            for number in numbers
        ]

    def some_record(self) -> Record:
        def later(options: Sequence[int | None]) -> int | None:
            span_ms = self.choose(options)
            return None if span_ms is None else self.now.wall_ms + span_ms

        return Record(
            head=self.choose([b"head", b""]),
            bare=self.choose([b"bare", b"b"]),
            session=self.choose([None, *NAMES]),
            expires_ms=later([None, None, *SPANS]),
            due_ms=later([None, None, None, None, 3, 10]),
            origin=self.choose([None, 7]),
            source=self.choose([None, "topic"]),
            deliveries=self.choose([0, 2]),
        )

    def lock(self) -> None:
        part = self.choose(PARTS)
        limit = self.choose(LIMITS)
        span_ms = self.choose(SPANS)
        at, until_ms = self.queue + part, self.now.steady_ms + span_ms
        expected = self.model.ready(at, limit, self.now, None)
        nonce, messages = self.store.lock(at, limit, until_ms, self.now)
        assert list(messages) == expected
        self.note_locked(at, messages, Holder(nonce, until_ms))

    def lock_session(self) -> None:
        limit = self.choose(LIMITS)
        at, grant = self.some_grant()
        expected = self.model.ready(at, limit, self.now, grant)
        nonce, messages = self.store.lock(at, limit, 0, self.now, grant)
        assert (nonce, list(messages)) == (grant.nonce, expected)
        self.note_locked(at, messages, Holder(nonce, FOREVER_MS))

    def note_locked(self, at: int, messages: Sequence[Stored], holder: Holder) -> None:
        self.model.lock(messages, holder)
        self.locks += [Lock(message.id, holder.nonce) for message in messages]
        if messages:
            self.model.accessed_ms[at] = self.now.wall_ms

    def take(self) -> None:
        part = self.choose(PARTS)
        limit = self.choose(LIMITS)
        at, grant = self.queue + part, None
        with_session = self.choose(YES_OR_NO)
        if self.grants and with_session:
            at, grant = self.some_grant()
        expected = self.model.ready(at, limit, self.now, grant)
        assert self.store.take(at, limit, self.now, grant) == expected
        self.model.remove([message.id for message in expected])
        if expected:
            self.model.accessed_ms[at] = self.now.wall_ms

    def replace_or_remove(self) -> None:
        head = self.choose([b"new", b""])
        key = self.choose(sorted(self.model.messages))
        if head:
            self.store.replace(key, head, b"new")
            changed = self.model.messages[key]._replace(head=head, bare=b"new")
            self.model.messages[key] = changed
        else:
            self.store.remove([key])
            self.model.remove([key])

    # -- settling --------------------------------------------------------------------

    def some_lock(self) -> Lock:
        """A lock, more often than not one that is held."""
        held = [
            lock for lock in self.locks if self.model.held(lock, self.now.steady_ms)
        ]
        often = self.choose(MOSTLY)
        if held and often:
            return self.choose(held)
        return self.choose(self.locks[-9:])

    def some_locks(self) -> list[Lock]:
        """A few from anywhere, or several as they were given out."""
        if self.choose(YES_OR_NO):
            return [self.some_lock() for _ in range(self.choose([1, 2, 4]))]
        start = self.choose(range(len(self.locks)))
        return self.locks[start : start + self.choose([3, 9])]

    def some_grant(self) -> tuple[int, SessionGrant]:
        """A session lock, more often than not one that is held."""
        held = [
            at for at in self.grants if self.model.session_held(*at, self.now.steady_ms)
        ]
        often = self.choose(MOSTLY)
        if held and often:
            return self.choose(held)
        return self.choose(self.grants[-9:])

    def receive(self) -> None:
        """As receivers do: lock some, and complete them in order, some at a time."""
        known = len(self.locks)
        self.lock()
        given = self.locks[known:]
        while self.choose(MOSTLY) and given:
            count = self.choose([1, 3, 9])
            self.complete_these(given[:count])
            given = given[count:]

    def complete(self) -> None:
        self.complete_these(self.some_locks())

    def complete_these(self, locks: Sequence[Lock]) -> None:
        answers = self.store.complete(locks, self.now)
        for lock, answer in zip(locks, answers, strict=True):
            assert answer == self.model.held(lock, self.now.steady_ms)
            if answer:
                self.model.remove([lock.id])

    def release(self) -> None:
        count = self.choose(YES_OR_NO)
        locks = self.some_locks()
        ended = self.store.release(locks, self.now, count)
        expected = []
        for lock in locks:
            if self.model.held(lock, self.now.steady_ms):
                expected += self.model.give_back([lock.id], count=count)
        assert ended == expected

    def renew(self) -> None:
        span_ms = self.choose(SPANS)
        lock = self.some_lock()
        held = self.model.held(lock, self.now.steady_ms)
        assert self.store.renew(lock, self.now.steady_ms + span_ms, self.now) == held
        if held and self.model.locks[lock.id].until_ms < FOREVER_MS:
            self.model.locks[lock.id].until_ms = self.now.steady_ms + span_ms

    def defer(self) -> None:
        lock = self.some_lock()
        held = self.model.held(lock, self.now.steady_ms)
        expected = self.model.defer(lock.id) if held else None
        assert self.store.defer(lock, self.now) == expected

    def lock_deferred(self) -> None:
        span_ms = self.choose(SPANS)
        known = sorted(self.model.messages)
        deferred = [
            key for key in known if self.model.messages[key].state == State.DEFERRED
        ]
        ids = [self.choose(deferred or known) for _ in range(self.choose([1, 2]))]
        until_ms = self.now.steady_ms + span_ms
        holders = {key: self.model.locks.get(key) for key in ids}
        if deferred and not any(
            holder and self.model.held(Lock(key, holder.nonce), self.now.steady_ms)
            for key, holder in holders.items()
        ):
            nonce = self.store.lock_deferred(ids, until_ms, self.now)
            self.note_deferred(list(dict.fromkeys(ids)), Holder(nonce, until_ms))
        else:
            try:
                self.store.lock_deferred(ids, until_ms, self.now)
            except MessageNotFound:
                return
            raise AssertionError

    def note_deferred(self, ids: list[int], holder: Holder) -> None:
        ended = [key for key in ids if key in self.model.locks]
        self.model.give_back(ended, count=True)
        messages = [self.model.messages[key] for key in ids]
        owners = {(message.container, message.session) for message in messages}
        at, name = owners.pop()
        if not owners and name is not None:
            session = self.model.holders.get((at, name))
            if session is not None and session.until_ms > self.now.steady_ms:
                assert holder.nonce == session.nonce
                holder = Holder(session.nonce, FOREVER_MS)
        self.model.lock(messages, holder)
        self.locks += [Lock(key, holder.nonce) for key in ids]

    # -- time --------------------------------------------------------------------------

    def end_locks(self) -> None:
        limit = self.choose(LIMITS)
        past = sorted(
            (holder.until_ms, key)
            for key, holder in self.model.locks.items()
            if holder.until_ms <= self.now.steady_ms
        )
        ids = [key for _, key in past[:limit]]
        expected = self.model.give_back(ids, count=True)
        assert self.store.end_locks(self.now, limit) == expected

    def end_sessions(self) -> None:
        limit = self.choose(LIMITS)
        past = sorted(
            (holder.until_ms, key, holder.nonce)
            for key, holder in self.model.holders.items()
            if holder.until_ms <= self.now.steady_ms
        )[:limit]
        ended = self.store.end_sessions(self.now, limit)
        assert [each[:3] for each in ended] == [(*key, nonce) for _, key, nonce in past]
        for _, key, _ in past:
            self.model.end_session(key, self.now.steady_ms, count=True)

    def expire(self) -> None:
        limit = self.choose(LIMITS)
        removed = self.choose(YES_OR_NO)
        past = sorted(
            (message.expires_ms, message.id, message)
            for message in self.model.messages.values()
            if message.expires_ms is not None
            and message.expires_ms <= self.now.wall_ms
            and message.id not in self.model.locks
        )[:limit]
        expected = [message for _, _, message in past]
        assert self.store.expired(self.now, limit) == expected
        if removed:
            ids = [message.id for message in expected]
            self.store.remove(ids)
            self.model.remove(ids)

    def move_due(self) -> None:
        limit = self.choose(LIMITS)
        past = sorted(
            (message.due_ms, message.id, message)
            for message in self.model.messages.values()
            if message.due_ms is not None and message.due_ms <= self.now.wall_ms
        )[:limit]
        expected = [message for _, _, message in past]
        assert self.store.due(self.now, limit) == expected
        for message in expected:
            record = Record(message.head, message.bare, message.session)
            self.store.remove([message.id])
            self.store.append(message.container, [record], self.now)
            self.model.remove([message.id])
            self.model.append(message.container, [record], self.now)

    # -- sessions ----------------------------------------------------------------------

    def accept(self) -> None:
        part = self.choose(PARTS)
        name = self.choose([None, *NAMES])
        span_ms = self.choose(SPANS)
        at, until_ms = self.queue + part, self.now.steady_ms + span_ms
        wanted = self.model.waiting(at, self.now.steady_ms) if name is None else name
        holder = None if wanted is None else self.model.holders.get((at, wanted))
        if holder is not None and holder.until_ms > self.now.steady_ms:
            wanted = None
        grant = self.store.accept_session(at, name, until_ms, self.now)
        assert (grant and grant.name) == wanted
        if grant is not None:
            assert grant.until_ms == until_ms
            self.model.accept(at, grant, self.now.steady_ms)
            self.grants.append((at, grant))

    def release_session(self) -> None:
        count = self.choose(YES_OR_NO)
        at, grant = self.some_grant()
        ended = self.store.release_session(at, grant, self.now, count)
        holder = self.model.holders.get((at, grant.name))
        if holder is None or holder.nonce != grant.nonce:
            assert ended == []
        else:
            key = (at, grant.name)
            assert ended == self.model.end_session(key, self.now.steady_ms, count=count)

    def renew_session(self) -> None:
        span_ms = self.choose(SPANS)
        at, grant = self.some_grant()
        held = self.model.session_held(at, grant, self.now.steady_ms)
        until_ms = self.now.steady_ms + span_ms
        assert self.store.session_held(at, grant, self.now) == held
        assert self.store.renew_session(at, grant, until_ms, self.now) == held
        if held:
            self.model.holders[at, grant.name].until_ms = until_ms

    def put_state(self) -> None:
        part = self.choose(PARTS)
        name = self.choose(NAMES)
        state = self.choose([None, b"state", b""])
        key = (self.queue + part, name)
        self.store.put_session_state(*key, state, self.now)
        if state is None:
            self.model.states.pop(key, None)
        else:
            self.model.states[key] = (state, self.now.wall_ms)

    def remember(self) -> None:
        part = self.choose(PARTS)
        keys = [self.choose(NAMES) for _ in range(self.choose([1, 2]))]
        span_ms = self.choose(SPANS)
        call = (self.queue + part, keys, self.now.steady_ms + span_ms)
        expected = self.model.remember(*call, self.now.steady_ms)
        assert self.store.remember(*call, self.now) == expected

    def purge(self) -> None:
        part = self.choose(PARTS)
        if self.choose(range(10)) != 9:
            return
        at = self.queue + part
        expected = self.model.of(at)
        assert self.store.purge(at) == len(expected)
        for kept in (self.model.holders, self.model.states, self.model.seen):
            for key in [key for key in kept if key[0] == at]:
                del kept[key]
        self.model.remove([message.id for message in expected])

    def purge_some(self) -> None:
        at = self.queue + self.choose(PARTS)
        until, limit = self.choose([5, 20, ALL]), self.choose([1, 4, 9])
        there = [each.id for each in self.model.of(at) if each.sequence <= until]
        # With fewer, session states and duplicates go, too.
        if len(there) >= limit and self.choose(range(4)) == 3:
            assert self.store.purge_some(at, until, limit) == Purged(limit, False)
            self.model.remove(there[:limit])

    # -- other stores ------------------------------------------------------------

    def post(self) -> None:
        call = (self.choose(OTHERS), "send", self.choose([b"body", b""]))
        assert self.store.post(*call) == self.model.post(*call)

    def forget_posted(self) -> None:
        target = self.choose(OTHERS)
        until = self.choose(range(self.model.last_posted.get(target, 0) + 1))
        self.store.forget_posted(target, until)
        self.model.forget_posted(target, until)

    def put_applied(self) -> None:
        source = self.choose(OTHERS)
        number = self.model.applied.get(source, 0) + self.choose([1, 5])
        self.store.put_applied(source, number)
        self.model.applied[source] = number

    def mirror(self) -> None:
        shard, key = self.choose(OTHERS), self.choose(NAMES)
        if self.choose(MOSTLY):
            entity = EntityRow(4, "queue", key, self.choose(["{}", "[]"]), 1, 2)
            self.store.mirror(shard, entity)
            self.model.mirrored[shard, key] = entity
        else:
            self.store.unmirror(shard, key)
            self.model.mirrored.pop((shard, key), None)

    # -- what must always hold ---------------------------------------------------

    def check(self) -> None:
        for at in self.containers:
            assert self.store.counts(at) == self.model.counts(at)
            assert self.store.peek(at, 1, ALL, EARLIEST, None) == self.model.of(at)
            assert self.store.sessions(at, None, 0, ALL) == self.model.sessions(at)
            assert self.store.audit(at, ALL) is None
        sizes = [self.model.counts(at).size_bytes for at in self.containers]
        assert self.store.size_bytes(self.queue) == sum(sizes)
        assert self.store.stored_bytes() == sum(sizes)
        self.check_other_stores()
        # Not after each step: to look at a lock may change how it is kept.
        for lock in self.locks[-9:] if self.choose(range(6)) == 5 else []:
            message = self.store.held(lock, self.now)
            held = self.model.held(lock, self.now.steady_ms)
            assert message == (self.model.messages[lock.id] if held else None)
        latest, real = self.model.next_wait_ms(self.now)
        if not self.store.is_remote:
            # Other nodes may have added what ends sooner.
            known = self.store.known_wait_ms(self.now)
            assert latest is None or (known is not None and known <= latest)
        given = self.store.next_wait_ms(self.now)
        assert given is None or given in real
        assert latest is None or (given is not None and given <= latest)

    def check_other_stores(self) -> None:
        assert self.store.outbox() == self.model.outbox()
        for other in OTHERS:
            rows = self.store.posted(other, ALL, ALL)
            assert rows == self.model.posted.get(other, [])
            assert self.store.applied(other) == self.model.applied.get(other, 0)
        assert self.store.mirrored() == [
            Mirrored(shard, entity)
            for (shard, _), entity in sorted(self.model.mirrored.items())
        ]


def walk(backend: Backend, seed: int, steps: int) -> None:
    """One history whose choices come from a seed."""
    history = History(backend, random.Random(seed).choice)
    try:
        for step in range(steps):
            try:
                history.step()
            except AssertionError as error:
                raise AssertionError(f"seed {seed} fails at step {step}") from error
    finally:
        history.close()


def machine(new_backend: Callable[[], Backend]) -> type[RuleBasedStateMachine]:
    """Histories whose choices come from hypothesis.

    One rule draws all steps. With a rule for each, hypothesis leaves out many of them
    in each history, and most histories come to nothing.
    """

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.history = History(new_backend(), self.draw)

        def draw(self, options: Sequence[T], /) -> T:
            return self.data.draw(st.sampled_from(options))

        @rule(data=st.data())
        def step(self, data: st.DataObject) -> None:
            self.data = data
            self.history.step()

        def teardown(self) -> None:
            self.history.close()

    return Machine
