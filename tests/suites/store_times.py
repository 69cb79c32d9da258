"""Suite: what time does to locks, messages and schedules."""

from __future__ import annotations

from tests.suites.store_suite import (
    LATER,
    NOW,
    StoreSuite,
    bodies,
    locks,
    record,
    records,
)
from twinbus.store.base import EndedLock, State, Store


class EndLocksSuite(StoreSuite):
    """Locks that end without a settlement."""

    def test_an_ended_lock_gives_the_message_back_with_its_count_raised(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab"), NOW)
        nonce, held = store.lock(queue, 1, NOW + 5, NOW)

        assert store.end_locks(NOW + 4, 10) == []
        assert store.end_locks(NOW + 5, 10) == [EndedLock(held[0].id, 1, None)]
        assert store.end_locks(NOW + 5, 10) == []

        assert store.complete(locks(nonce, held), NOW) == [False]
        assert self.receive(store, queue) == "ab"
        assert store.find(queue, [1])[0].deliveries == 1

    def test_no_more_locks_end_than_the_limit(self, store: Store, queue: int) -> None:
        store.append(queue, records("abc"), NOW)
        store.lock(queue, 3, NOW + 5, NOW)

        assert len(store.end_locks(NOW + 5, 2)) == 2
        assert len(store.end_locks(NOW + 5, 2)) == 1

    def test_locks_of_all_containers_end(
        self, store: Store, queue: int, other: int
    ) -> None:
        for container in (queue, queue + 1, other):
            store.append(container, records("a"), NOW)
            store.lock(container, 1, NOW + 5, NOW)

        ended = store.end_locks(NOW + 5, 10)

        assert [end.id >> 40 for end in ended] == [queue, queue + 1, other]

    def test_an_ended_lock_leaves_a_deferred_message_deferred(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a"), NOW)
        nonce, held = store.lock(queue, 1, LATER, NOW)
        store.defer(locks(nonce, held)[0], NOW)
        store.lock_deferred([held[0].id], NOW + 5, NOW)

        assert store.end_locks(NOW + 5, 10) == [EndedLock(held[0].id, 1, None)]

        assert self.receive(store, queue) == ""
        assert store.find(queue, [1])[0].state == State.DEFERRED


class ExpirySuite(StoreSuite):
    """Messages past their time."""

    def test_a_limit_of_zero_skips_no_expired_message(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW), NOW)
        assert store.expired(NOW, 0) == []

        assert bodies(store.expired(NOW, 10)) == "a"

    def test_a_rollback_brings_back_what_may_expire(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW), NOW - 1)
        store.commit()
        store.begin()
        store.lock(queue, 1, LATER, NOW - 1)
        assert store.expired(NOW, 10) == []
        store.rollback()

        store.begin()

        assert bodies(store.expired(NOW, 10)) == "a"

    def test_messages_expire_at_their_time_in_order(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", expires_ms=NOW + 9), record("x")], NOW)
        store.append(queue, [record("b", expires_ms=NOW + 5)], NOW)

        assert store.expired(NOW + 4, 10) == []
        assert bodies(store.expired(NOW + 5, 10)) == "b"
        assert bodies(store.expired(NOW + 9, 10)) == "ba"
        assert bodies(store.expired(NOW + 9, 1)) == "b"

    def test_expired_messages_are_listed_until_they_are_removed(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", expires_ms=NOW)], NOW - 1)

        found = store.expired(NOW, 10)
        assert store.expired(NOW, 10) == found

        store.remove(message.id for message in found)
        assert store.expired(NOW, 10) == []

    def test_a_held_message_does_not_expire(self, store: Store, queue: int) -> None:
        store.append(queue, records("ab", expires_ms=NOW + 5), NOW)
        nonce, held = store.lock(queue, 1, LATER, NOW)

        assert bodies(store.expired(NOW + 5, 10)) == "b"
        store.remove([held[0].id + 1])
        assert store.expired(NOW + 5, 10) == []

        store.release(locks(nonce, held), NOW + 6, count=True)
        assert bodies(store.expired(NOW + 6, 10)) == "a"

    def test_a_message_expires_after_its_lock_has_ended(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW + 5), NOW)
        store.lock(queue, 1, NOW + 8, NOW)
        assert store.expired(NOW + 8, 10) == []

        store.end_locks(NOW + 8, 10)

        assert bodies(store.expired(NOW + 8, 10)) == "a"

    def test_messages_of_a_session_expire_after_its_lock_has_ended(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", session="s", expires_ms=NOW + 5), NOW)
        grant = store.accept_session(queue, "s", NOW + 8, NOW)
        store.lock(queue, 1, LATER, NOW, grant)
        assert store.expired(NOW + 8, 10) == []

        store.end_sessions(NOW + 8, 10)

        assert bodies(store.expired(NOW + 8, 10)) == "a"

    def test_deferred_and_scheduled_messages_expire(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW + 5), NOW)
        store.append(queue, records("b", expires_ms=NOW + 5, due_ms=LATER), NOW)
        nonce, held = store.lock(queue, 1, LATER, NOW)
        assert bodies(store.expired(NOW + 5, 10)) == "b"
        store.remove([held[0].id + 1])
        assert store.expired(NOW + 5, 10) == []

        store.defer(locks(nonce, held)[0], NOW)

        assert bodies(store.expired(NOW + 5, 10)) == "a"

    def test_a_message_that_comes_in_expired_is_found(
        self, store: Store, queue: int
    ) -> None:
        assert store.expired(NOW, 10) == []

        store.append(queue, records("a", expires_ms=NOW - 5), NOW)
        store.append(queue, records("b", expires_ms=NOW - 6, due_ms=LATER), NOW)

        assert bodies(store.expired(NOW, 10)) == "ba"

    def test_times_before_the_epoch_have_passed(self, store: Store, queue: int) -> None:
        store.append(queue, records("a", expires_ms=-1), NOW)
        store.append(queue, records("b", expires_ms=-9, session="s"), NOW)
        store.append(queue, records("c", due_ms=-5), NOW)
        store.commit()
        store.begin()

        assert self.receive(store, queue) == ""
        assert bodies(store.expired(NOW, 10)) == "ba"
        assert bodies(store.due(NOW, 10)) == "c"
        assert store.next_time_ms() == -9


class DueSuite(StoreSuite):
    """Scheduled messages."""

    def test_scheduled_messages_are_due_at_their_time_in_order(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, [record("a", due_ms=NOW + 9), record("x")], NOW)
        store.append(other, [record("b", due_ms=NOW + 5)], NOW)

        assert store.due(NOW + 4, 10) == []
        assert bodies(store.due(NOW + 5, 10)) == "b"
        assert bodies(store.due(NOW + 9, 10)) == "ba"
        assert bodies(store.due(NOW + 9, 1)) == "b"

    def test_a_due_message_stays_until_the_caller_moves_it(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", due_ms=NOW), record("b")], NOW)
        due = store.due(NOW, 10)
        assert store.due(NOW, 10) == due

        store.remove([due[0].id])
        store.append(queue, [record("a")], NOW)

        assert store.due(NOW, 10) == []
        assert self.receive(store, queue) == "ba"


class NextTimeSuite(StoreSuite):
    """When the caller has to look again."""

    def test_next_time_is_none_when_no_lock_or_message_ends(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab"), NOW)

        assert store.next_time_ms() is None

    def test_the_next_time_is_the_earliest_of_all_ends(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record(due_ms=NOW + 9)], NOW)
        assert store.next_time_ms() == NOW + 9
        store.append(queue, [record(expires_ms=NOW + 8)], NOW)
        assert store.next_time_ms() == NOW + 8
        store.append(queue, [record(expires_ms=NOW + 7, due_ms=LATER)], NOW)
        assert store.next_time_ms() == NOW + 7
        store.accept_session(queue, "s", NOW + 6, NOW)
        assert store.next_time_ms() == NOW + 6
        store.lock(queue, 1, NOW + 5, NOW)
        assert store.next_time_ms() == NOW + 5

    def test_messages_of_a_session_have_no_lock_end_of_their_own(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab", session="s"), NOW)
        grant = store.accept_session(queue, "s", NOW + 9, NOW)
        store.lock(queue, 2, NOW + 3, NOW, grant)

        assert store.next_time_ms() == NOW + 9
        assert store.end_locks(NOW + 8, 10) == []

    def test_an_expired_message_that_is_held_sets_no_timer(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW + 5), NOW)
        store.lock(queue, 1, LATER, NOW)

        assert store.expired(NOW + 5, 10) == []

        assert store.next_time_ms() == LATER

    def test_next_time_stays_until_ended_messages_are_handled(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a", expires_ms=NOW + 5), NOW)
        store.append(queue, records("b", due_ms=NOW + 6), NOW)
        store.expired(NOW + 9, 10)
        assert store.next_time_ms() == NOW + 5

        store.remove([queue << 40 | 1])
        assert store.next_time_ms() == NOW + 6

        store.remove([queue << 40 | 2])
        assert store.next_time_ms() is None
