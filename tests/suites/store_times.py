"""Suite: what time does to locks, messages and schedules."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.suites.store_suite import (
    LATER,
    NOW,
    Backend,
    StoreSuite,
    at,
    bodies,
    locks,
    part,
    record,
    records,
)
from twinbus import limits
from twinbus.clock import Now
from twinbus.store.base import DEAD_LETTER, POSTPONED, EndedLock, State, Store


class EndLocksSuite(StoreSuite):
    """Locks that end without a settlement."""

    def test_an_ended_lock_gives_the_message_back_with_its_count_raised(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))
        nonce, held = store.lock(queue, 1, NOW + 5, at(NOW))

        assert store.end_locks(at(NOW + 4), 10) == []
        assert store.end_locks(at(NOW + 5), 10) == [EndedLock(held[0].id, 1, None)]
        assert store.end_locks(at(NOW + 5), 10) == []

        assert store.complete(locks(nonce, held), at(NOW)) == [False]
        assert self.receive(store, queue) == "ab"
        assert store.find(queue, [1])[0].deliveries == 1

    def test_no_more_locks_end_than_the_limit(self, store: Store, queue: int) -> None:
        store.append(queue, records("abc"), at(NOW))
        store.lock(queue, 3, NOW + 5, at(NOW))

        assert len(store.end_locks(at(NOW + 5), 2)) == 2
        assert len(store.end_locks(at(NOW + 5), 2)) == 1

    def test_locks_of_all_containers_end(
        self, store: Store, queue: int, other: int
    ) -> None:
        for container in (queue, queue + 1, other):
            store.append(container, records("a"), at(NOW))
            store.lock(container, 1, NOW + 5, at(NOW))

        ended = store.end_locks(at(NOW + 5), 10)

        assert [end.id >> 40 for end in ended] == [queue, queue + 1, other]

    def test_locks_of_dead_letters_end_without_a_count(
        self, store: Store, queue: int
    ) -> None:
        dead = queue + DEAD_LETTER
        store.append(dead, records("ab"), at(NOW))
        store.append(queue, records("c"), at(NOW))
        for container in (dead, queue):
            store.lock(container, 2, NOW + 5, at(NOW))

        ended = store.end_locks(at(NOW + 5), 10)

        assert [lock.deliveries for lock in ended] == [1, 0, 0]
        assert [each.deliveries for each in store.find(dead, [1, 2])] == [0, 0]

    def test_an_ended_lock_leaves_a_deferred_message_deferred(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a"), at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        store.defer(locks(nonce, held)[0], at(NOW))
        store.lock_deferred([held[0].id], NOW + 5, at(NOW))

        assert store.end_locks(at(NOW + 5), 10) == [EndedLock(held[0].id, 2, None)]

        assert self.receive(store, queue) == ""
        assert store.find(queue, [1])[0].state == State.DEFERRED


class ExpirySuite(StoreSuite):
    """Messages past their time."""

    def test_a_limit_of_zero_skips_no_expired_message(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW), at(NOW))
        assert store.expired(at(NOW), 0) == []

        assert bodies(store.expired(at(NOW), 10)) == "a"

    def test_a_rollback_brings_back_what_may_expire(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW), at(NOW - 1))
        store.commit()
        store.begin()
        store.lock(queue, 1, LATER, at(NOW - 1))
        assert store.expired(at(NOW), 10) == []
        store.rollback()

        store.begin()

        assert bodies(store.expired(at(NOW), 10)) == "a"

    def test_messages_expire_at_their_time_in_order(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", expires_ms=NOW + 9), record("x")], at(NOW))
        store.append(queue, [record("b", expires_ms=NOW + 5)], at(NOW))

        assert store.expired(at(NOW + 4), 10) == []
        assert bodies(store.expired(at(NOW + 5), 10)) == "b"
        assert bodies(store.expired(at(NOW + 9), 10)) == "ba"
        assert bodies(store.expired(at(NOW + 9), 1)) == "b"

    def test_expired_messages_are_listed_until_they_are_removed(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", expires_ms=NOW)], at(NOW - 1))

        found = store.expired(at(NOW), 10)
        assert store.expired(at(NOW), 10) == found

        store.remove(message.id for message in found)
        assert store.expired(at(NOW), 10) == []

    def test_a_held_message_does_not_expire(self, store: Store, queue: int) -> None:
        store.append(queue, records("ab", expires_ms=NOW + 5), at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))

        assert bodies(store.expired(at(NOW + 5), 10)) == "b"
        store.remove([held[0].id + 1])
        assert store.expired(at(NOW + 5), 10) == []

        store.release(locks(nonce, held), at(NOW + 6), count=True)
        assert bodies(store.expired(at(NOW + 6), 10)) == "a"

    def test_a_message_expires_after_its_lock_has_ended(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW + 5), at(NOW))
        store.lock(queue, 1, NOW + 8, at(NOW))
        assert store.expired(at(NOW + 8), 10) == []

        store.end_locks(at(NOW + 8), 10)

        assert bodies(store.expired(at(NOW + 8), 10)) == "a"

    def test_messages_of_a_session_expire_after_its_lock_has_ended(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", session="s", expires_ms=NOW + 5), at(NOW))
        grant = store.accept_session(queue, "s", NOW + 8, at(NOW))
        store.lock(queue, 1, LATER, at(NOW), grant)
        assert store.expired(at(NOW + 8), 10) == []

        store.end_sessions(at(NOW + 8), 10)

        assert bodies(store.expired(at(NOW + 8), 10)) == "a"

    def test_deferred_and_scheduled_messages_expire(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW + 5), at(NOW))
        store.append(queue, records("b", expires_ms=NOW + 5, due_ms=LATER), at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        assert bodies(store.expired(at(NOW + 5), 10)) == "b"
        store.remove([held[0].id + 1])
        assert store.expired(at(NOW + 5), 10) == []

        store.defer(locks(nonce, held)[0], at(NOW))

        assert bodies(store.expired(at(NOW + 5), 10)) == "a"

    def test_a_message_that_comes_in_expired_is_found(
        self, store: Store, queue: int
    ) -> None:
        assert store.expired(at(NOW), 10) == []

        store.append(queue, records("a", expires_ms=NOW - 5), at(NOW))
        store.append(queue, records("b", expires_ms=NOW - 6, due_ms=LATER), at(NOW))

        assert bodies(store.expired(at(NOW), 10)) == "ba"

    def test_times_before_the_epoch_have_passed(self, store: Store, queue: int) -> None:
        store.append(queue, records("a", expires_ms=-1), at(NOW))
        store.append(queue, records("b", expires_ms=-9, session="s"), at(NOW))
        store.append(queue, records("c", due_ms=-5), at(NOW))
        store.commit()
        store.begin()

        assert self.receive(store, queue) == ""
        assert bodies(store.expired(at(NOW), 10)) == "ba"
        assert bodies(store.due(at(NOW), 10)) == "c"
        assert store.next_wait_ms(at(0)) == -9


class ClockSuite(StoreSuite):
    """The wall clock is set; the steady clock goes on."""

    def test_locks_end_by_the_steady_clock(self, store: Store, queue: int) -> None:
        store.append(queue, records("ab"), at(NOW))
        nonce, held = store.lock(queue, 2, NOW + 5, at(NOW))

        for wall_ms in (NOW + 100_000, NOW - 100_000):
            now = Now(NOW + 4, wall_ms)
            assert store.end_locks(now, 10) == []
            assert store.holding(locks(nonce, held), now) == [True, True]
            assert store.next_wait_ms(now) == 1
            assert len(store.peek(queue, 1, 10, now, None)) == 2

        assert len(store.end_locks(Now(NOW + 5, NOW), 10)) == 2

    def test_session_locks_end_by_the_steady_clock(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", session="s"), at(NOW))
        grant = store.accept_session(queue, "s", NOW + 5, at(NOW))
        assert grant is not None

        for wall_ms in (NOW + 100_000, NOW - 100_000):
            now = Now(NOW + 4, wall_ms)
            assert store.end_sessions(now, 10) == []
            assert store.session_held(queue, grant, now)
            assert store.accept_session(queue, "s", LATER, now) is None

        assert len(store.end_sessions(Now(NOW + 5, NOW), 10)) == 1

    def test_a_postponed_message_waits_for_no_time(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, [record("a", due_ms=LATER)], at(NOW))
        store.append(other, [record(each, due_ms=POSTPONED) for each in "bc"], at(NOW))

        first, second = store.postponed(0, 10, 1_000)

        assert first.container == other
        assert [first.sequence, second.sequence] == [1, 2]
        assert store.postponed(first.id, 10, 1_000) == [second]
        assert store.postponed(second.id, 10, 1_000) == []
        assert store.is_postponing(other)
        assert not store.is_postponing(queue)
        assert [each.container for each in store.due(at(LATER), 10)] == [queue]

    def test_postponed_messages_are_read_in_bounded_groups(
        self, store: Store, queue: int, other: int
    ) -> None:
        for container in (queue, other):
            texts = [record(each * 10, due_ms=POSTPONED) for each in "abcd"]
            store.append(container, texts, at(NOW))

        size = len(store.postponed(0, 1, 1)[0].head + b"a" * 10)
        groups = [
            store.postponed(0, *most)
            for most in ((3, 1_000), (10, 2 * size), (10, 2 * size - 1), (10, 1_000))
        ]

        # The last one ends with the container.
        assert [len(group) for group in groups] == [3, 2, 1, 4]
        assert {each.container for group in groups for each in group} == {queue}

    def test_duplicate_history_goes_little_by_little(
        self, store: Store, queue: int
    ) -> None:
        store.remember(queue, ["1", "2", "3"], NOW + 5, at(NOW))

        found = [store.forget_duplicates(at(NOW + 5), 2) for _ in range(3)]

        assert found == [2, 1, 0]

    def test_duplicate_windows_end_by_the_steady_clock(
        self, store: Store, queue: int
    ) -> None:
        store.remember(queue, ["m"], NOW + 5, at(NOW))

        for wall_ms in (NOW + 100_000, NOW - 100_000):
            now = Now(NOW + 4, wall_ms)
            store.forget_duplicates(now, 10)
            assert store.remember(queue, ["m"], LATER, now) == [False]

        assert store.remember(queue, ["m"], LATER, Now(NOW + 5, NOW)) == [True]

    def test_schedules_and_times_to_live_follow_the_wall_clock(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", due_ms=NOW + 100), at(NOW))
        store.append(queue, records("b", expires_ms=NOW + 100), at(NOW))

        late, early = Now(NOW, NOW + 100), Now(LATER, NOW + 99)
        assert store.due(early, 10) == []
        assert store.expired(early, 10) == []
        assert store.next_wait_ms(early) == 1
        assert bodies(store.due(late, 10)) == "a"
        assert bodies(store.expired(late, 10)) == "b"
        assert store.lock(queue, 10, LATER, late)[1] == []

    @pytest.mark.parametrize("session", [None, "s"])
    def test_a_passed_over_message_is_ready_when_the_clock_is_set_back(
        self, store: Store, queue: int, session: str | None
    ) -> None:
        store.append(
            queue,
            [
                record("a", session=session, expires_ms=NOW + 5),
                record("b", session=session),
            ],
            at(NOW),
        )
        grant = None
        if session is not None:
            grant = store.accept_session(queue, session, LATER, at(NOW))
        assert bodies(store.lock(queue, 10, LATER, at(NOW + 5), grant)[1]) == "b"
        before = Now(NOW + 6, NOW + 4)

        with suppress(ZeroDivisionError), part(store):
            assert bodies(store.lock(queue, 10, LATER, before, grant)[1]) == "a"
            raise ZeroDivisionError

        assert bodies(store.lock(queue, 10, LATER, before, grant)[1]) == "a"
        assert store.lock(queue, 10, LATER, before, grant)[1] == []

    def test_the_clock_is_set_back_while_the_store_is_closed(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Where turns are folded: then only the tables say what was seen.
        monkeypatch.setattr(limits, "PG_FOLD_TURNS", 1)
        store = backend.open()
        store.begin()
        queue = store.insert_entity("queue", "orders", "{}", NOW)
        store.append(queue, records("ab", expires_ms=NOW + 5), at(NOW))
        store.commit()
        store.begin()
        assert self.receive(store, queue, now_ms=NOW + 5) == ""
        store.commit()
        store.begin()
        # Used after that, by an earlier clock.
        store.append(queue, records("c"), Now(NOW + 6, NOW - 100))
        store.commit()
        store.close()

        store = backend.open()
        store.begin()
        before = Now(NOW + 7, NOW + 4)
        assert bodies(store.lock(queue, 1, LATER, before)[1]) == "a"
        store.rollback()
        store.begin()
        assert bodies(store.lock(queue, 9, LATER, before)[1]) == "abc"
        store.rollback()
        store.close()

    def test_locks_are_cut(self, store: Store, queue: int) -> None:
        store.append(queue, [*records("ab"), record("c", session="s")], at(NOW))
        grant = store.accept_session(queue, "s", NOW + 900, at(NOW))
        store.lock(queue, 1, NOW + 5, at(NOW))
        store.lock(queue, 1, NOW + 800, at(NOW))
        store.lock(queue, 1, LATER, at(NOW), grant)

        store.cut_locks(NOW + 100)

        assert len(store.end_locks(at(NOW + 99), 10)) == 1
        assert len(store.end_locks(at(NOW + 100), 10)) == 1
        assert [end.name for end in store.end_sessions(at(NOW + 100), 10)] == ["s"]


class DueSuite(StoreSuite):
    """Scheduled messages."""

    def test_scheduled_messages_are_due_at_their_time_in_order(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, [record("a", due_ms=NOW + 9), record("x")], at(NOW))
        store.append(other, [record("b", due_ms=NOW + 5)], at(NOW))

        assert store.due(at(NOW + 4), 10) == []
        assert bodies(store.due(at(NOW + 5), 10)) == "b"
        assert bodies(store.due(at(NOW + 9), 10)) == "ba"
        assert bodies(store.due(at(NOW + 9), 1)) == "b"

    def test_a_due_message_stays_until_the_caller_moves_it(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", due_ms=NOW), record("b")], at(NOW))
        due = store.due(at(NOW), 10)
        assert store.due(at(NOW), 10) == due

        store.remove([due[0].id])
        store.append(queue, [record("a")], at(NOW))

        assert store.due(at(NOW), 10) == []
        assert self.receive(store, queue) == "ba"


class NextTimeSuite(StoreSuite):
    """When the caller has to look again."""

    def test_next_time_is_none_when_no_lock_or_message_ends(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))

        assert store.next_wait_ms(at(0)) is None

    def test_the_next_time_is_the_earliest_of_all_ends(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record(due_ms=NOW + 9)], at(NOW))
        assert store.next_wait_ms(at(0)) == NOW + 9
        store.append(queue, [record(expires_ms=NOW + 8)], at(NOW))
        assert store.next_wait_ms(at(0)) == NOW + 8
        store.append(queue, [record(expires_ms=NOW + 7, due_ms=LATER)], at(NOW))
        assert store.next_wait_ms(at(0)) == NOW + 7
        store.accept_session(queue, "s", NOW + 6, at(NOW))
        assert store.next_wait_ms(at(0)) == NOW + 6
        store.lock(queue, 1, NOW + 5, at(NOW))
        assert store.next_wait_ms(at(0)) == NOW + 5

    def test_messages_of_a_session_have_no_lock_end_of_their_own(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab", session="s"), at(NOW))
        grant = store.accept_session(queue, "s", NOW + 9, at(NOW))
        store.lock(queue, 2, NOW + 3, at(NOW), grant)

        assert store.next_wait_ms(at(0)) == NOW + 9
        assert store.end_locks(at(NOW + 8), 10) == []

    def test_an_expired_message_that_is_held_sets_no_timer(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW + 5), at(NOW))
        store.lock(queue, 1, LATER, at(NOW))

        assert store.expired(at(NOW + 5), 10) == []

        assert store.next_wait_ms(at(0)) == LATER

    def test_next_time_stays_until_ended_messages_are_handled(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW + 5), at(NOW))
        store.append(queue, records("b", due_ms=NOW + 6), at(NOW))
        store.expired(at(NOW + 9), 10)
        assert store.next_wait_ms(at(0)) == NOW + 5

        store.remove([queue << 40 | 1])
        assert store.next_wait_ms(at(0)) == NOW + 6

        store.remove([queue << 40 | 2])
        assert store.next_wait_ms(at(0)) is None
