"""Suite: transactions, restarts, entities, settings, counts and duplicates."""

from __future__ import annotations

import threading

import pytest

from tests.suites.store_suite import (
    LATER,
    NOW,
    Backend,
    StoreSuite,
    at,
    bodies,
    locks,
    record,
    records,
)
from twinbus.errors import EntityExists, EntityNotFound
from twinbus.store.base import (
    DEAD_LETTER,
    PROBE,
    TRANSFER_DEAD_LETTER,
    Counts,
    Lock,
    State,
    Store,
)


class TransactionSuite(StoreSuite):
    """Nothing happens by halves."""

    def test_committed_messages_survive_a_restart(self, backend: Backend) -> None:
        store = backend.open()
        store.begin()
        queue = store.insert_entity("queue", "orders", "{}", NOW)
        store.append(queue, records("ab"), at(NOW))
        counts = store.counts(queue)
        store.commit()
        store.close()

        store = backend.open()

        store.begin()
        assert bodies(store.peek(queue, 1, 10, at(NOW), None)) == "ab"
        assert store.counts(queue) == counts
        store.rollback()
        store.close()

    def test_uncommitted_messages_are_gone_after_a_restart(
        self, backend: Backend
    ) -> None:
        store = backend.open()
        store.begin()
        queue = store.insert_entity("queue", "orders", "{}", NOW)
        store.commit()
        store.begin()
        store.append(queue, records("ab"), at(NOW))
        store.close()

        store = backend.open()

        store.begin()
        assert store.peek(queue, 1, 10, at(NOW), None) == []
        assert store.counts(queue).last_sequence == 0
        store.rollback()
        store.close()

    def test_locks_counts_sessions_schedules_and_duplicates_survive_a_restart(
        self, backend: Backend
    ) -> None:
        store = backend.open()
        store.begin()
        queue = store.insert_entity("queue", "orders", "{}", NOW)
        store.append(queue, records("ab"), at(NOW))
        store.append(
            queue, [record("s", session="s"), record("d", due_ms=LATER)], at(NOW)
        )
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        store.release(locks(nonce, held), at(NOW), count=True)
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        grant = store.accept_session(queue, "s", LATER, at(NOW))
        store.remember(queue, ["id"], LATER, at(NOW))
        store.put_session_state(queue, "s", b"state", at(NOW))
        store.commit()
        store.close()

        store = backend.open()

        store.begin()
        kept = store.held(Lock(held[0].id, nonce), at(NOW))
        assert kept is not None
        assert kept.deliveries == 1
        assert grant is not None
        assert store.session_held(queue, grant, at(NOW))
        assert store.session_state(queue, "s") == b"state"
        assert bodies(store.due(at(LATER), 10)) == "d"
        assert store.remember(queue, ["id"], LATER, at(NOW)) == [False]
        assert self.receive(store, queue) == "bs"
        store.rollback()
        store.close()

    def test_commit_may_run_in_another_thread(self, store: Store, queue: int) -> None:
        store.append(queue, records("ab"), at(NOW))

        thread = threading.Thread(target=store.commit)
        thread.start()
        thread.join()

        store.begin()
        assert self.receive(store, queue) == "ab"

    def test_after_a_rollback_messages_and_counters_are_as_before(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("abcd"), at(NOW))
        nonce, held = store.lock(queue, 2, LATER, at(NOW))
        store.commit()
        before = store.counts(queue)
        store.begin()
        peeked = store.peek(queue, 1, 10, at(NOW), None)

        store.append(queue, [record("e", session="s"), record(due_ms=LATER)], at(NOW))
        store.complete(locks(nonce, held[:1]), at(NOW))
        store.defer(locks(nonce, held)[1], at(NOW))
        store.lock(queue, 9, LATER, at(NOW))
        store.purge(queue)
        store.rollback()

        store.begin()
        assert store.counts(queue) == before
        assert store.peek(queue, 1, 10, at(NOW), None) == peeked
        assert store.sessions(queue, None, 0, 10) == []
        assert self.receive(store, queue) == "cd"
        assert store.complete(locks(nonce, held), at(NOW)) == [True, True]

    def test_a_rollback_gives_the_sequence_numbers_back(
        self, store: Store, queue: int
    ) -> None:
        store.commit()
        store.begin()
        store.append(queue, records("abc"), at(NOW))
        store.rollback()

        store.begin()

        assert store.append(queue, [record()], at(NOW)) == 1

    def test_an_entity_of_a_transaction_that_did_not_happen_is_not_there(
        self, store: Store, queue: int
    ) -> None:
        store.rollback()

        store.begin()

        assert store.entities() == []
        with pytest.raises(EntityNotFound):
            store.counts(queue)

    def test_an_entity_whose_deletion_did_not_happen_is_there(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))
        store.commit()
        store.begin()
        store.delete_entity(queue)
        store.rollback()

        store.begin()

        assert len(store.entities()) == 1
        assert store.counts(queue).active == 2
        assert self.receive(store, queue) == "ab"

    def test_recover_says_yes_where_nothing_failed(self, store: Store) -> None:
        store.rollback()

        assert store.recover()


class EntitySuite(StoreSuite):
    """Entities, their containers and the settings."""

    def test_entities_are_kept_as_given(self, store: Store) -> None:
        first = store.insert_entity("queue", "orders", '{"a": 1}', 5)
        second = store.insert_entity("topic", "events", "{}", 6)

        assert [tuple(row) for row in store.entities()] == [
            (first, "queue", "orders", '{"a": 1}', 5, 5),
            (second, "topic", "events", "{}", 6, 6),
        ]

    def test_entity_ids_are_multiples_of_four(self, store: Store) -> None:
        ids = [store.insert_entity("queue", str(i), "{}", NOW) for i in range(3)]

        assert all(entity % 4 == 0 < entity for entity in ids)
        assert len(set(ids)) == 3

    def test_an_entity_key_is_unique(self, store: Store, queue: int) -> None:
        with pytest.raises(EntityExists):
            store.insert_entity("topic", "orders", "{}", NOW)

        assert len(store.entities()) == 1

    def test_an_update_changes_body_and_time(self, store: Store, queue: int) -> None:
        store.update_entity(queue, '{"b": 2}', NOW + 5)

        row = store.entities()[0]
        assert (row.body, row.created_ms, row.updated_ms) == ('{"b": 2}', NOW, NOW + 5)

    def test_an_entity_has_three_containers(self, store: Store, queue: int) -> None:
        empty = Counts(0, 0, 0, 0, 0, 0)

        for part in (0, DEAD_LETTER, TRANSFER_DEAD_LETTER):
            assert store.counts(queue + part) == empty
        with pytest.raises(EntityNotFound):
            store.counts(queue + 3)

    def test_a_deleted_entity_takes_everything_in_its_containers_along(
        self, store: Store, queue: int, other: int
    ) -> None:
        for part in (0, DEAD_LETTER, TRANSFER_DEAD_LETTER):
            store.append(queue + part, [record(expires_ms=NOW + 1)], at(NOW))
            store.append(queue + part, [record(due_ms=NOW + 1)], at(NOW))
            store.append(queue + part, [record(session="s")], at(NOW))
            store.accept_session(queue + part, "s", NOW + 1, at(NOW))
            store.lock(queue + part, 1, NOW + 1, at(NOW))
        store.append(other, records("ab"), at(NOW))

        store.delete_entity(queue)

        assert [row.id for row in store.entities()] == [other]
        assert store.next_wait_ms(at(0)) is None
        assert store.find(queue, [1, 2, 3]) == []
        assert self.receive(store, other) == "ab"

    def test_a_retired_entity_is_forgotten_before_its_messages(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))

        store.retire_entity(queue)

        assert [row.id for row in store.entities()] == [other]
        assert store.retired() == [queue]
        assert store.insert_entity("queue", "orders", "{}", NOW) > other
        assert store.counts(queue).active == 2
        store.delete_entity(queue)
        assert store.retired() == []
        assert store.find(queue, [1, 2]) == []

    def test_the_id_of_a_deleted_entity_is_not_given_out_again(
        self, store: Store, queue: int
    ) -> None:
        store.delete_entity(queue)

        assert store.insert_entity("queue", "orders", "{}", NOW) > queue

    def test_deleting_what_is_not_there_is_refused(
        self, store: Store, queue: int
    ) -> None:
        for wrong in (queue + 1, queue + 4):
            with pytest.raises(EntityNotFound):
                store.delete_entity(wrong)

        assert len(store.entities()) == 1

    def test_the_probe_container_is_always_there(self, backend: Backend) -> None:
        for expected in (1, 2):
            store = backend.open()
            store.begin()

            assert store.append(PROBE, records("a"), at(NOW)) == expected
            assert bodies(store.take(PROBE, 1, at(NOW))) == "a"

            assert store.entities() == []
            with pytest.raises(EntityNotFound):
                store.delete_entity(PROBE)
            store.commit()
            store.close()

    def test_a_setting_is_kept_and_replaced(self, store: Store) -> None:
        assert store.setting("key") is None

        store.put_setting("key", "one")
        store.put_setting("key", "two")

        assert store.setting("key") == "two"


class CountSuite(StoreSuite):
    """Counts are exact at every moment."""

    def test_counts_follow_every_move(self, store: Store, queue: int) -> None:
        def states() -> tuple[int, int, int]:
            return store.counts(queue)[:3]

        store.append(queue, [*records("abcd"), record("e", due_ms=LATER)], at(NOW))
        assert states() == (4, 0, 1)
        nonce, held = store.lock(queue, 3, LATER, at(NOW))
        assert states() == (4, 0, 1)
        store.defer(locks(nonce, held)[0], at(NOW))
        assert states() == (3, 1, 1)
        store.complete(locks(nonce, held[1:2]), at(NOW))
        assert states() == (2, 1, 1)
        store.release(locks(nonce, held[2:]), at(NOW), count=True)
        assert states() == (2, 1, 1)
        store.take(queue, 1, at(NOW))
        assert states() == (1, 1, 1)
        store.remove([held[0].id, held[0].id + 4])
        assert states() == (1, 0, 0)

    def test_the_size_is_the_bytes_of_all_kept_messages(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("12345"), record("1", due_ms=LATER)], at(NOW))
        assert store.counts(queue).size_bytes == 4 + 5 + 4 + 1

        store.replace(queue << 40 | 1, b"he", b"123")
        assert store.counts(queue).size_bytes == 2 + 3 + 4 + 1

        store.replace(queue << 40 | 2, b"", b"")
        assert store.counts(queue).size_bytes == 2 + 3

        store.take(queue, 1, at(NOW))
        assert store.counts(queue).size_bytes == 0

    def test_sending_receiving_and_touching_count_as_access(
        self, store: Store, queue: int
    ) -> None:
        assert store.counts(queue).accessed_ms == 0
        store.append(queue, records("ab"), at(5))
        assert store.counts(queue).accessed_ms == 5
        store.lock(queue, 1, LATER, at(6))
        assert store.counts(queue).accessed_ms == 6
        store.take(queue, 1, at(7))
        assert store.counts(queue).accessed_ms == 7
        store.touch(queue, at(8))
        assert store.counts(queue).accessed_ms == 8

    def test_an_empty_receive_does_not_count_as_access(
        self, store: Store, queue: int
    ) -> None:
        store.lock(queue, 1, LATER, at(6))

        assert store.counts(queue).accessed_ms == 0

    def test_containers_are_counted_apart(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))
        store.append(queue + DEAD_LETTER, [record()], at(NOW))

        assert store.counts(queue).active == 2
        assert store.counts(queue + DEAD_LETTER).active == 1
        assert store.counts(other).active == 0

    def test_the_store_knows_the_bytes_of_all_containers(
        self, store: Store, queue: int, other: int
    ) -> None:
        assert store.stored_bytes() == 0
        store.append(queue, [record("12345"), record("6", due_ms=LATER)], at(NOW))
        store.append(other + DEAD_LETTER, [record("789")], at(NOW))
        store.append(PROBE, [record("0")], at(NOW))
        assert store.stored_bytes() == 9 + 5 + 7 + 5

        mark = store.begin_part()
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        store.complete(locks(nonce, held), at(NOW))
        store.purge(PROBE)
        assert store.stored_bytes() == 5 + 7
        store.delete_entity(other)
        assert store.stored_bytes() == 5
        store.undo_part(mark)
        assert store.stored_bytes() == 9 + 5 + 7 + 5

        store.delete_entity(queue)
        store.rollback()
        assert store.stored_bytes() == 0


class DuplicateSuite(StoreSuite):
    """One copy of a message id inside its window."""

    def test_an_id_is_new_once_within_its_window(
        self, store: Store, queue: int
    ) -> None:
        assert store.remember(queue, ["a", "b"], NOW + 10, at(NOW)) == [True, True]
        assert store.remember(queue, ["b", "c"], NOW + 19, at(NOW + 9)) == [False, True]

    def test_an_id_twice_in_one_call_is_new_once(
        self, store: Store, queue: int
    ) -> None:
        assert store.remember(queue, ["a", "a"], NOW + 10, at(NOW)) == [True, False]

    def test_an_id_is_new_again_at_the_end_of_its_window(
        self, store: Store, queue: int
    ) -> None:
        store.remember(queue, ["a"], NOW + 10, at(NOW))

        assert store.remember(queue, ["a"], NOW + 20, at(NOW + 10)) == [True]
        assert store.remember(queue, ["a"], NOW + 29, at(NOW + 19)) == [False]

    def test_a_duplicate_does_not_prolong_the_window(
        self, store: Store, queue: int
    ) -> None:
        store.remember(queue, ["a"], NOW + 10, at(NOW))
        store.remember(queue, ["a"], NOW + 19, at(NOW + 9))

        assert store.remember(queue, ["a"], NOW + 20, at(NOW + 10)) == [True]

    def test_containers_have_histories_of_their_own(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.remember(queue, ["a"], NOW + 10, at(NOW))

        assert store.remember(other, ["a"], NOW + 10, at(NOW)) == [True]

    def test_forgetting_drops_what_has_ended_and_nothing_else(
        self, store: Store, queue: int
    ) -> None:
        store.remember(queue, ["a"], NOW + 10, at(NOW))
        store.remember(queue, ["b"], NOW + 11, at(NOW))

        store.forget_duplicates(at(NOW + 10), 10)

        # By the time of the first call: only what is kept can still be known.
        assert store.remember(queue, ["a", "b"], NOW + 10, at(NOW)) == [True, False]


class RecordSuite(StoreSuite):
    """A message comes out as it went in."""

    def test_every_field_is_kept(self, store: Store, queue: int) -> None:
        given = record(
            "\x00body",
            session="",
            expires_ms=LATER,
            origin=1 << 40,
            source="events/subscriptions/all",
            deliveries=7,
        )

        store.append(queue, [given], at(NOW))

        assert store.find(queue, [1])[0] == (
            queue << 40 | 1,
            NOW,
            State.ACTIVE,
            7,
            LATER,
            None,
            "",
            1 << 40,
            "events/subscriptions/all",
            b"head",
            b"\x00body",
        )

    def test_every_field_of_a_scheduled_message_is_kept(
        self, store: Store, queue: int
    ) -> None:
        store.append(
            queue,
            [record("b", session="s", expires_ms=9, due_ms=8, origin=3, source="q")],
            at(NOW),
        )

        assert store.find(queue, [1])[0] == (
            queue << 40 | 1,
            NOW,
            State.SCHEDULED,
            0,
            9,
            8,
            "s",
            3,
            "q",
            b"head",
            b"b",
        )

    def test_empty_and_large_bodies_are_kept(self, store: Store, queue: int) -> None:
        large = bytes(range(256)) * 4096
        store.append(queue, [record("")._replace(head=b""), record()], at(NOW))
        store.replace(queue << 40 | 2, b"", large)

        empty, second = store.find(queue, [1, 2])

        assert (empty.head, empty.bare) == (b"", b"")
        assert second.bare == large

    def test_a_stored_message_knows_its_container_and_sequence(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("ab"), at(NOW))

        message = store.find(queue, [2])[0]

        assert (message.container, message.sequence) == (queue, 2)
