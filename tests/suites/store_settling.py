"""Suite: locks are held, renewed, settled and given back."""

from __future__ import annotations

import pytest

from tests.suites.store_suite import (
    LATER,
    NOW,
    StoreSuite,
    at,
    bodies,
    locks,
    record,
    records,
)
from twinbus.errors import MessageNotFound
from twinbus.store.base import FOREVER_MS, EndedLock, Lock, State, Store, Stored


class HoldSuite(StoreSuite):
    """When a lock is held, and what a late settlement does: nothing."""

    @pytest.fixture
    def held(self, store: Store, queue: int) -> tuple[Lock, Stored]:
        """A message that is locked until NOW + 10."""
        store.append(queue, records("ab"), at(NOW))
        nonce, messages = store.lock(queue, 1, NOW + 10, at(NOW))
        return Lock(messages[0].id, nonce), messages[0]

    def test_a_lock_is_held_until_its_end(
        self, store: Store, held: tuple[Lock, Stored]
    ) -> None:
        lock, message = held

        assert store.held(lock, at(NOW + 9)) == message
        assert store.held(lock, at(NOW + 10)) is None

    def test_another_nonce_or_message_holds_nothing(
        self, store: Store, held: tuple[Lock, Stored]
    ) -> None:
        lock, _ = held

        assert store.held(Lock(lock.id, lock.nonce ^ 1), at(NOW)) is None
        assert store.held(Lock(lock.id + 1, lock.nonce), at(NOW)) is None

    def test_many_locks_are_told_apart_at_once(
        self, store: Store, held: tuple[Lock, Stored]
    ) -> None:
        lock, _ = held
        other = Lock(lock.id, lock.nonce ^ 1)
        nothing = Lock(lock.id + 1, lock.nonce)

        assert store.holding([other, nothing, lock], at(NOW + 9)) == [
            False,
            False,
            True,
        ]
        assert store.holding([lock], at(NOW + 10)) == [False]
        assert store.holding([], at(NOW)) == []

    def test_renewal_moves_the_end(
        self, store: Store, held: tuple[Lock, Stored]
    ) -> None:
        lock, _ = held

        assert store.renew(lock, NOW + 20, at(NOW + 9))

        assert store.next_wait_ms(at(0)) == NOW + 20
        assert store.held(lock, at(NOW + 19)) is not None
        assert store.held(lock, at(NOW + 20)) is None

    def test_a_lock_that_has_ended_is_not_renewed(
        self, store: Store, held: tuple[Lock, Stored]
    ) -> None:
        lock, _ = held

        assert not store.renew(lock, NOW + 20, at(NOW + 10))
        assert not store.renew(Lock(lock.id, lock.nonce ^ 1), NOW + 20, at(NOW))
        assert store.next_wait_ms(at(0)) == NOW + 10

    def test_a_held_message_is_completed_once(
        self, store: Store, queue: int, held: tuple[Lock, Stored]
    ) -> None:
        lock, _ = held

        assert store.complete([lock], at(NOW + 9)) == [True]
        assert store.complete([lock], at(NOW + 9)) == [False]
        assert bodies(store.peek(queue, 1, 10, at(NOW), None)) == "b"
        assert store.next_wait_ms(at(0)) is None

    def test_a_late_settlement_changes_nothing(
        self, store: Store, queue: int, held: tuple[Lock, Stored]
    ) -> None:
        lock, message = held

        assert store.complete([lock], at(NOW + 10)) == [False]
        assert store.release([lock], at(NOW + 10), count=True) == []
        assert not store.defer(lock, at(NOW + 10))
        assert store.find(queue, [1]) == [message]

    def test_a_lock_of_an_earlier_delivery_settles_nothing(
        self, store: Store, queue: int, held: tuple[Lock, Stored]
    ) -> None:
        lock, _ = held
        store.release([lock], at(NOW), count=True)
        nonce, again = store.lock(queue, 1, LATER, at(NOW))

        assert again[0].id == lock.id
        assert store.complete([lock, Lock(lock.id, nonce)], at(NOW)) == [False, True]


class CompleteSuite(StoreSuite):
    """Completion in groups."""

    def test_each_lock_of_a_group_is_answered_for_itself(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("abc"), at(NOW))
        store.append(other, records("d"), at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        other_nonce, others = store.lock(other, 1, LATER, at(NOW))
        group = locks(nonce, held) + locks(other_nonce, others)
        unknown = Lock(queue << 40 | 3, nonce)
        forged = Lock(held[1].id, nonce ^ 1)

        answers = store.complete(
            [group[0], unknown, forged, group[1], group[0], group[2]], at(NOW)
        )

        assert answers == [True, False, False, True, False, True]
        assert bodies(store.peek(queue, 1, 10, at(NOW), None)) == "c"
        assert store.counts(other).active == 0

    def test_a_forged_lock_in_a_group_is_refused_alone(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abc"), at(NOW))
        first, second, third = locks(*store.lock(queue, 3, LATER, at(NOW)))
        forged = second._replace(nonce=second.nonce ^ 1)

        assert store.complete([first, forged, third], at(NOW)) == [True, False, True]
        assert bodies(store.peek(queue, 1, 10, at(NOW), None)) == "b"

    @pytest.mark.parametrize("number", [1, 2, 5, 9])
    def test_a_forged_nonce_completes_nothing(
        self, store: Store, queue: int, number: int
    ) -> None:
        store.append(queue, records("abcdefghi"), at(NOW))
        nonce, held = store.lock(queue, number, LATER, at(NOW))

        assert store.complete(locks(nonce ^ 1, held), at(NOW)) == [False] * number
        assert store.complete(locks(nonce, held), at(NOW)) == [True] * number

    def test_messages_between_completed_ones_stay(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("aAbBcCdDeE"), at(NOW))
        group = locks(*store.lock(queue, 10, LATER, at(NOW)))
        store.release(group[1::2], at(NOW), count=False)

        assert store.complete(group[::2], at(NOW)) == [True] * 5

        assert self.receive(store, queue) == "ABCDE"

    def test_answers_stand_in_the_order_of_the_locks(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abcdefghij"), at(NOW))
        group = locks(*store.lock(queue, 10, LATER, at(NOW)))
        late = group[0]
        store.release([late], at(NOW), count=False)

        assert store.complete([late, *group[5:], *group[:5], group[5]], at(NOW)) == [
            *[False, True, True, True, True, True],
            *[False, True, True, True, True, False],
        ]
        assert self.receive(store, queue) == "a"

    def test_locks_of_an_entity_that_is_gone_are_not_held(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))
        gone = locks(*store.lock(queue, 2, LATER, at(NOW)))

        store.delete_entity(queue)

        assert store.complete(gone, at(NOW)) == [False, False]
        assert store.release(gone, at(NOW), count=True) == []
        assert store.held(gone[0], at(NOW)) is None
        assert not store.renew(gone[0], LATER, at(NOW))
        assert not store.defer(gone[0], at(NOW))

    def test_locks_with_numbers_out_of_range_are_not_held(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a"), at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        most = (1 << 64) - 1
        forged = [Lock(held[0].id, most), Lock(most, nonce), Lock(0, 0)]

        assert store.complete(forged, at(NOW)) == [False] * 3
        assert store.release(forged, at(NOW), count=True) == []
        for lock in forged:
            assert store.complete([lock], at(NOW)) == [False]
            assert store.held(lock, at(NOW)) is None
            assert not store.renew(lock, LATER, at(NOW))
            assert not store.defer(lock, at(NOW))

    def test_a_lock_may_last_for_ever(self, store: Store, queue: int) -> None:
        store.append(queue, records("a", session="s"), at(NOW))
        nonce, held = store.lock(queue, 1, FOREVER_MS, at(NOW))

        assert store.held(Lock(held[0].id, nonce), at(NOW)) == held[0]
        assert store.renew(Lock(held[0].id, nonce), FOREVER_MS, at(NOW))
        assert store.complete(locks(nonce, held), at(LATER)) == [True]

    def test_completing_nothing_is_harmless(self, store: Store) -> None:
        assert store.complete([], at(NOW)) == []

    def test_a_large_group_with_gaps_is_completed(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record() for _ in range(2000)], at(NOW))
        nonce, held = store.lock(queue, 2000, LATER, at(NOW))
        odd = locks(nonce, held)[1::2]
        middle = locks(nonce, held)[0:1000:2]

        assert all(store.complete(odd[::-1], at(NOW)))
        assert all(store.complete(middle, at(NOW)))

        left = store.peek(queue, 1, 2000, at(NOW), None)
        assert [message.sequence for message in left] == list(range(1001, 2001, 2))
        assert store.counts(queue).active == 500


class ReleaseSuite(StoreSuite):
    """Locks that are given back."""

    def test_a_released_message_is_ready_with_its_count_raised(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))

        ended = store.release(locks(nonce, held), at(NOW), count=True)

        assert ended == [EndedLock(held[0].id, 1, None)]
        assert store.lock(queue, 1, LATER, at(NOW))[1] == [
            held[0]._replace(deliveries=1)
        ]

    def test_without_count_the_delivery_count_stays(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record(deliveries=3)], at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))

        ended = store.release(locks(nonce, held), at(NOW), count=False)

        assert ended == [EndedLock(held[0].id, 3, None)]
        assert store.lock(queue, 1, LATER, at(NOW))[1] == held

    def test_locks_that_are_not_held_are_left_out_of_the_answer(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abc"), at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        first, second = locks(nonce, held)

        ended = store.release(
            [Lock(first.id, nonce ^ 1), second, second, Lock(second.id + 1, nonce)],
            at(NOW),
            count=True,
        )

        assert ended == [EndedLock(second.id, 1, None)]
        assert store.held(first, at(NOW)) is not None
        assert self.receive(store, queue) == "bc"

    def test_the_ended_message_names_its_session(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record(session="s")], at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))

        ended = store.release(locks(nonce, held), at(NOW), count=False)

        assert ended == [EndedLock(held[0].id, 0, "s")]

    def test_a_released_message_may_expire(self, store: Store, queue: int) -> None:
        store.append(queue, [record("a", expires_ms=NOW + 5)], at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        assert store.expired(at(NOW + 6), 10) == []

        store.release(locks(nonce, held), at(NOW + 7), count=False)

        assert bodies(store.expired(at(NOW + 7), 10)) == "a"


class DeferSuite(StoreSuite):
    """Messages that are set aside."""

    @pytest.fixture
    def deferred(self, store: Store, queue: int) -> list[int]:
        """Two deferred messages of three."""
        store.append(queue, records("abc"), at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        for lock in locks(nonce, held):
            assert store.defer(lock, at(NOW))
        return [message.id for message in held]

    def test_a_deferred_message_is_not_ready_and_not_locked(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        assert self.receive(store, queue) == "c"
        assert [message.state for message in store.find(queue, [1, 2])] == [
            State.DEFERRED,
            State.DEFERRED,
        ]

    def test_each_deferral_raises_the_delivery_count(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        assert store.find(queue, [1])[0].deliveries == 1

        nonce = store.lock_deferred(deferred[:1], LATER, at(NOW))
        ended = store.defer(Lock(deferred[0], nonce), at(NOW))

        assert ended == EndedLock(deferred[0], 2, None)
        assert store.find(queue, [1])[0].deliveries == 2

    def test_deferred_messages_are_locked_by_their_ids(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        nonce = store.lock_deferred(deferred, NOW + 5, at(NOW))

        for lock in [Lock(message, nonce) for message in deferred]:
            assert store.held(lock, at(NOW + 4)) is not None
            assert store.held(lock, at(NOW + 5)) is None

    def test_a_locked_deferred_message_can_be_completed(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        nonce = store.lock_deferred(deferred[:1], LATER, at(NOW))

        assert store.complete([Lock(deferred[0], nonce)], at(NOW)) == [True]
        assert store.counts(queue)[:3] == (1, 1, 0)

    def test_a_released_deferred_message_stays_deferred(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        nonce = store.lock_deferred(deferred[:1], LATER, at(NOW))

        ended = store.release([Lock(deferred[0], nonce)], at(NOW), count=True)

        assert ended == [EndedLock(deferred[0], 2, None)]
        assert store.find(queue, [1])[0].state == State.DEFERRED
        assert self.receive(store, queue) == "c"
        store.lock_deferred(deferred[:1], LATER, at(NOW))

    def test_a_deferred_message_can_be_deferred_again(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        nonce = store.lock_deferred(deferred[:1], LATER, at(NOW))

        assert store.defer(Lock(deferred[0], nonce), at(NOW))

        assert store.counts(queue)[:3] == (1, 2, 0)
        store.lock_deferred(deferred[:1], LATER, at(NOW))

    def test_one_wrong_message_and_none_is_locked(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        active, missing = queue << 40 | 3, queue << 40 | 9

        for wrong in (active, missing):
            with pytest.raises(MessageNotFound):
                store.lock_deferred([deferred[0], wrong], LATER, at(NOW))

        store.lock_deferred(deferred, LATER, at(NOW))

    def test_a_scheduled_message_is_not_deferred(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record(due_ms=LATER)], at(NOW))

        with pytest.raises(MessageNotFound):
            store.lock_deferred([queue << 40 | 1], LATER, at(NOW))

    def test_a_held_deferred_message_is_not_locked_again(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        nonce = store.lock_deferred(deferred[:1], NOW + 5, at(NOW))

        with pytest.raises(MessageNotFound):
            store.lock_deferred(deferred, LATER, at(NOW + 4))

        assert store.held(Lock(deferred[0], nonce), at(NOW + 4)) is not None
        assert store.held(Lock(deferred[1], nonce), at(NOW + 4)) is None

    def test_a_deferred_message_whose_lock_has_ended_is_locked_with_count_raised(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        old = store.lock_deferred(deferred[:1], NOW + 5, at(NOW))

        new = store.lock_deferred(deferred[:1], LATER, at(NOW + 5))

        assert store.held(Lock(deferred[0], old), at(NOW + 5)) is None
        message = store.held(Lock(deferred[0], new), at(NOW + 5))
        assert message is not None
        assert message.deliveries == 2
        assert store.end_locks(at(NOW + 5), 10) == []

    def test_a_named_twice_deferred_message_is_locked_once(
        self, store: Store, queue: int, deferred: list[int]
    ) -> None:
        nonce = store.lock_deferred([deferred[0]] * 2, LATER, at(NOW))

        assert store.complete([Lock(deferred[0], nonce)], at(NOW)) == [True]
