"""Suite: messages are appended, locked in order, looked at and removed."""

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
from twinbus.store.base import (
    State,
    Store,
)
from twinbus.store.records import AlikeRecords


class AppendSuite(StoreSuite):
    """Sequence numbers."""

    def test_sequence_numbers_count_from_one_without_gaps(
        self, store: Store, queue: int
    ) -> None:
        assert store.append(queue, records("abc"), at(NOW)) == 1
        assert store.append(queue, [record(due_ms=LATER), record()], at(NOW)) == 4
        assert store.append(queue, [record()], at(NOW)) == 6
        assert store.counts(queue).last_sequence == 6

    def test_each_container_counts_for_itself(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("abc"), at(NOW))

        assert store.append(other, [record()], at(NOW)) == 1
        assert store.append(queue + 1, [record()], at(NOW)) == 1

    def test_a_number_is_not_given_out_again_after_its_message_is_gone(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abc"), at(NOW))
        store.take(queue, 3, at(NOW))
        store.purge(queue)

        assert store.append(queue, [record()], at(NOW)) == 4

    def test_numbers_can_be_given_out_without_a_message(
        self, store: Store, queue: int
    ) -> None:
        assert store.number(queue, 3) == 1
        assert store.number(queue, 1) == 4
        assert store.append(queue, [record("a")], at(NOW)) == 5
        assert store.counts(queue).active == 1
        assert self.receive(store, queue) == "a"

    def test_appending_nothing_changes_no_number(
        self, store: Store, queue: int
    ) -> None:
        assert store.append(queue, [], at(NOW)) == 1
        assert store.append(queue, [record()], at(NOW)) == 1

    def test_groups_of_alike_messages_are_kept_in_order(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a"), at(NOW))
        groups = [
            AlikeRecords(b"head", [1] * 40, b"b" * 40),
            AlikeRecords(b"", [2, 0, 1], b"ccd", origin=90),
        ]

        assert store.append_alike(queue, groups, at(NOW)) == 2

        assert store.counts(queue)[:4] == (44, 0, 0, 5 * 41 + 3)
        _, messages = store.lock(queue, 100, LATER, at(NOW))
        assert bodies(messages) == "a" + "b" * 40 + "cc" + "d"
        assert [message.sequence for message in messages] == list(range(1, 45))
        assert [message.bare for message in messages[-3:]] == [b"cc", b"", b"d"]
        assert [message.origin for message in messages[-3:]] == [90, 91, 92]
        assert {message.head for message in messages[1:41]} == {b"head"}
        assert {message.origin for message in messages[:41]} <= {None, 0}
        assert store.append(queue, [record()], at(NOW)) == 45


class LockSuite(StoreSuite):
    """Which messages are ready, and in which order."""

    def test_messages_are_locked_in_order_up_to_the_limit(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abc"), at(NOW))

        assert self.receive(store, queue, 2) == "ab"
        assert self.receive(store, queue, 2) == "c"
        assert self.receive(store, queue, 2) == ""

    def test_one_nonce_holds_all_messages_of_a_call(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abc"), at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        other_nonce, others = store.lock(queue, 2, LATER, at(NOW))

        assert nonce != other_nonce
        for lock in locks(nonce, held) + locks(other_nonce, others):
            assert store.held(lock, at(NOW)) is not None
        for lock in locks(other_nonce, held) + locks(nonce, others):
            assert store.held(lock, at(NOW)) is None

    def test_a_limit_of_nothing_locks_nothing(self, store: Store, queue: int) -> None:
        store.append(queue, records("abc"), at(NOW))

        assert self.receive(store, queue, 0) == ""
        assert self.receive(store, queue) == "abc"

    def test_messages_of_other_containers_are_left_alone(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))
        store.append(queue + 1, records("cd"), at(NOW))
        store.append(other, records("ef"), at(NOW))

        assert self.receive(store, queue) == "ab"
        assert self.receive(store, other) == "ef"
        assert self.receive(store, queue + 1) == "cd"

    def test_a_message_appended_after_an_empty_receive_is_ready(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a"), at(NOW))
        self.receive(store, queue)
        self.receive(store, queue)

        store.append(queue, records("b"), at(NOW))

        assert self.receive(store, queue) == "b"

    def test_a_scheduled_message_is_not_ready(self, store: Store, queue: int) -> None:
        store.append(queue, [record("a"), record("b", due_ms=1), record("c")], at(NOW))

        assert self.receive(store, queue) == "ac"

    def test_an_expired_message_is_passed_over(self, store: Store, queue: int) -> None:
        store.append(queue, [record("a", expires_ms=NOW), record("b")], at(NOW - 1))

        assert self.receive(store, queue) == "b"

    def test_a_message_is_ready_until_its_time(self, store: Store, queue: int) -> None:
        store.append(queue, [record("a", expires_ms=NOW + 1)], at(NOW - 1))

        assert self.receive(store, queue) == "a"

    def test_an_expired_message_that_was_returned_is_passed_over(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", expires_ms=NOW + 5), record("b")], at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        store.release(locks(nonce, held), at(NOW), count=False)

        assert self.receive(store, queue, 1, now_ms=NOW + 5) == "b"

    def test_a_returned_message_stands_at_its_old_place(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abcde"), at(NOW))
        nonce, held = store.lock(queue, 4, LATER, at(NOW))
        store.release([locks(nonce, held)[2]], at(NOW), count=False)
        store.release([locks(nonce, held)[0]], at(NOW), count=False)

        assert self.receive(store, queue, 3) == "ace"

    def test_returned_messages_are_given_out_once(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abcd"), at(NOW))
        nonce, held = store.lock(queue, 3, LATER, at(NOW))
        store.release(locks(nonce, held), at(NOW), count=False)

        received = [self.receive(store, queue, 1) for _ in range(5)]

        assert received == ["a", "b", "c", "d", ""]

    def test_a_locked_message_whose_end_has_come_is_not_ready_until_given_back(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a"), at(NOW))
        store.lock(queue, 1, NOW + 5, at(NOW))

        assert self.receive(store, queue, now_ms=NOW + 9) == ""
        store.end_locks(at(NOW + 9), 10)
        assert self.receive(store, queue, now_ms=NOW + 9) == "a"

    def test_without_a_session_messages_of_sessions_are_locked_one_by_one(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", session="s"), record("b")], at(NOW))

        nonce, held = store.lock(queue, 2, NOW + 5, at(NOW))

        assert bodies(held) == "ab"
        assert store.held(locks(nonce, held)[0], at(NOW)) is not None
        assert len(store.end_locks(at(NOW + 5), 10)) == 2
        assert self.receive(store, queue) == "ab"


class TakeSuite(StoreSuite):
    """Receive and delete."""

    def test_taken_messages_come_in_order_and_are_gone(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abc"), at(NOW))

        assert bodies(store.take(queue, 2, at(NOW))) == "ab"
        assert bodies(store.take(queue, 2, at(NOW))) == "c"
        assert store.peek(queue, 1, 10, at(NOW), None) == []
        assert store.counts(queue).active == 0

    def test_a_returned_message_is_taken_first(self, store: Store, queue: int) -> None:
        store.append(queue, records("abc"), at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        store.release(locks(nonce, held[:1]), at(NOW), count=True)

        assert bodies(store.take(queue, 1, at(NOW))) == "a"
        assert bodies(store.take(queue, 9, at(NOW))) == "c"

    def test_locked_and_expired_messages_are_not_taken(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a"), record("b", expires_ms=NOW)], at(NOW - 1))
        store.lock(queue, 1, LATER, at(NOW))

        assert store.take(queue, 9, at(NOW)) == []


class FindSuite(StoreSuite):
    """Messages by their number."""

    def test_found_messages_come_in_the_given_order(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [*records("ab"), record("c", due_ms=LATER)], at(NOW))

        assert bodies(store.find(queue, [3, 1, 2])) == "cab"

    def test_missing_numbers_are_left_out(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))
        store.append(other, records("cde"), at(NOW))

        assert bodies(store.find(queue, [9, 2, 3])) == "b"
        assert store.find(queue, []) == []

    def test_no_number_reaches_into_another_container(
        self, store: Store, queue: int
    ) -> None:
        for container in (queue, queue + 1, queue + 2):
            store.append(container, records("abc"), at(NOW))
        far = [1 << 40 | 1, 2 << 40 | 1, 1 << 62, (1 << 63) - 1, -1, -(1 << 63), 0]

        assert store.find(queue, far) == []
        for start in far[:4]:
            assert store.peek(queue, start, 10, at(NOW), None) == []
            assert store.peek(queue + 1, start, 10, at(NOW), None) == []
        for start in far[4:]:
            assert bodies(store.peek(queue, start, 10, at(NOW), None)) == "abc"


class PeekSuite(StoreSuite):
    """Browsing."""

    def test_peek_shows_all_states_in_order(self, store: Store, queue: int) -> None:
        store.append(queue, records("ab"), at(NOW))
        store.append(queue, [record("c", due_ms=LATER), record("d")], at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        store.defer(locks(nonce, held)[0], at(NOW))

        peeked = store.peek(queue, 1, 10, at(NOW), None)

        assert bodies(peeked) == "abcd"
        assert [message.state for message in peeked] == [
            State.DEFERRED,
            State.ACTIVE,
            State.SCHEDULED,
            State.ACTIVE,
        ]

    def test_peek_starts_at_the_number_and_stops_at_the_limit(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("abcde"), at(NOW))
        store.append(queue + 1, records("x"), at(NOW))
        store.append(other, records("y"), at(NOW))

        assert bodies(store.peek(queue, 2, 3, at(NOW), None)) == "bcd"
        assert bodies(store.peek(queue, 4, 9, at(NOW), None)) == "de"
        assert store.peek(queue, 6, 9, at(NOW), None) == []
        assert bodies(store.peek(queue, 0, 1, at(NOW), None)) == "a"
        assert store.peek(queue, 1, 0, at(NOW), None) == []

    def test_peek_leaves_expired_messages_out(self, store: Store, queue: int) -> None:
        store.append(queue, [record("a", expires_ms=NOW), record("b")], at(NOW - 1))
        store.append(queue, [record("c", expires_ms=NOW, due_ms=LATER)], at(NOW - 1))

        assert bodies(store.peek(queue, 1, 10, at(NOW), None)) == "b"
        assert bodies(store.peek(queue, 1, 10, at(NOW - 1), None)) == "abc"

    def test_peek_of_a_session_shows_its_messages_in_all_states(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("abc", session="s"), at(NOW))
        store.append(queue, [record("x"), record("y", session="t")], at(NOW))
        store.append(queue, [record("d", session="s", due_ms=LATER)], at(NOW))
        store.append(other, [record("z", session="s")], at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        store.defer(locks(nonce, held)[1], at(NOW))

        assert bodies(store.peek(queue, 1, 10, at(NOW), "s")) == "abcd"
        assert bodies(store.peek(queue, 2, 2, at(NOW), "s")) == "bc"
        assert store.peek(queue, 1, 10, at(NOW), "unknown") == []

    def test_peek_changes_nothing(self, store: Store, queue: int) -> None:
        store.append(queue, records("ab"), at(NOW))
        counts = store.counts(queue)

        store.peek(queue, 1, 10, at(NOW + 5), None)

        assert store.counts(queue) == counts
        assert self.receive(store, queue) == "ab"


class RemoveSuite(StoreSuite):
    """Messages that are changed or gone."""

    def test_replace_gives_new_bytes_and_keeps_the_rest(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", session="s", expires_ms=LATER)], at(NOW))
        before = store.find(queue, [1])[0]

        store.replace(before.id, b"new head", b"new bare")

        after = store.find(queue, [1])[0]
        assert after == before._replace(head=b"new head", bare=b"new bare")

    def test_a_lock_survives_the_replacement(self, store: Store, queue: int) -> None:
        store.append(queue, records("a"), at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))

        store.replace(held[0].id, b"", b"longer than before")

        assert store.complete(locks(nonce, held), at(NOW)) == [True]
        assert store.counts(queue).size_bytes == 0

    def test_replacing_what_is_not_there_is_refused(
        self, store: Store, queue: int
    ) -> None:
        with pytest.raises(MessageNotFound):
            store.replace(queue << 40 | 1, b"", b"")

    def test_messages_in_every_state_can_be_removed(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [*records("abcd"), record("e", due_ms=LATER)], at(NOW))
        nonce, held = store.lock(queue, 3, LATER, at(NOW))
        store.defer(locks(nonce, held)[0], at(NOW))
        store.release(locks(nonce, held)[1:2], at(NOW), count=False)

        store.remove(queue << 40 | sequence for sequence in (1, 2, 3, 4, 5))

        assert store.counts(queue)[:4] == (0, 0, 0, 0)
        assert store.peek(queue, 1, 10, at(NOW), None) == []
        assert self.receive(store, queue) == ""

    def test_a_removed_message_takes_its_lock_along(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a"), at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))

        store.remove([held[0].id])

        assert store.complete(locks(nonce, held), at(NOW)) == [False]
        assert store.next_wait_ms(at(0)) is None

    def test_removing_what_is_not_there_or_twice_is_harmless(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))
        first = queue << 40 | 1

        store.remove([first, first, first + 7])
        store.remove([first])
        store.remove([])

        assert store.counts(queue).active == 1
        assert self.receive(store, queue) == "b"

    def test_purge_forgets_messages_sessions_and_duplicates(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, [*records("abc"), record("d", due_ms=LATER)], at(NOW))
        store.append(queue, [record("s", session="s")], at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        store.release(locks(nonce, held), at(NOW), count=False)
        grant = store.accept_session(queue, "s", LATER, at(NOW))
        store.put_session_state(queue, "s", b"state", at(NOW))
        store.remember(queue, ["id"], LATER, at(NOW))
        store.append(other, records("x"), at(NOW))

        assert store.purge(queue) == 5

        assert store.counts(queue)[:4] == (0, 0, 0, 0)
        assert store.peek(queue, 1, 10, at(NOW), None) == []
        assert store.sessions(queue, None, 0, 10) == []
        assert store.session_state(queue, "s") is None
        assert grant is not None
        assert not store.session_held(queue, grant, at(NOW))
        assert store.remember(queue, ["id"], LATER, at(NOW)) == [True]
        assert store.next_wait_ms(at(0)) is None
        assert self.receive(store, other) == "x"

    def test_a_purge_can_be_done_little_by_little(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, [*records("abc"), record("d", due_ms=LATER)], at(NOW))
        store.append(queue, [record("s", session="s")], at(NOW))
        store.lock(queue, 2, LATER, at(NOW))
        store.put_session_state(queue, "s", b"state", at(NOW))
        store.remember(queue, ["1", "2"], LATER, at(NOW))
        store.append(other, records("x"), at(NOW))
        until = store.counts(queue).last_sequence
        store.append(queue, records("e"), at(NOW))

        steps = [store.purge_some(queue, until, 2) for _ in range(5)]

        assert [step.messages for step in steps] == [2, 2, 1, 0, 0]
        assert [step.done for step in steps] == [False] * 4 + [True]
        assert self.receive(store, queue) == "e"
        assert store.session_state(queue, "s") is None
        assert store.sessions(queue, None, 0, 10) == []
        assert store.remember(queue, ["1", "2"], LATER, at(NOW)) == [True, True]
        assert self.receive(store, other) == "x"
        assert store.audit(queue, 100) is None

    def test_the_locks_of_all_sessions_can_be_ended(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("s", session="s")], at(NOW))
        grant = store.accept_session(queue, "s", LATER, at(NOW))
        assert grant is not None
        store.lock(queue, 1, LATER, at(NOW), grant)

        store.end_session_locks(queue, at(NOW))

        assert not store.session_held(queue, grant, at(NOW))
        again = store.accept_session(queue, None, LATER, at(NOW))
        assert again is not None
        _, (message,) = store.lock(queue, 1, LATER, at(NOW), again)
        assert message.deliveries == 0

    def test_a_purged_container_works_on(self, store: Store, queue: int) -> None:
        store.append(queue, records("abc"), at(NOW))
        self.receive(store, queue, 1)

        store.purge(queue)
        store.append(queue, records("de"), at(NOW))

        assert self.receive(store, queue) == "de"
