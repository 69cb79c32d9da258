"""Suite: the outbox, what was applied of others, and the mirror of their entities."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.suites.store_suite import NOW, Backend, StoreSuite, at, part, records
from twinbus.errors import Bug
from twinbus.store.base import EntityRow, Mirrored, OutboxCounts, Posted, Store

ALL = 1000
ALL_BYTES = 1 << 30
ORDERS = EntityRow(4, "queue", "orders", "{}", NOW, NOW)


def post(store: Store, target: int, bodies: str) -> list[int]:
    """One row for each letter."""
    return [store.post(target, "send", body.encode()) for body in bodies]


def waiting(store: Store, target: int) -> str:
    """The bodies that wait for a target."""
    rows = store.posted(target, ALL, ALL_BYTES)
    return "".join(row.body.decode() for row in rows)


def undo(store: Store, target: int) -> None:
    """Do everything that changes an outbox with rows, in a part that is undone."""
    with suppress(ZeroDivisionError), part(store):
        store.post(target, "send", b"undone")
        store.forget_posted(target, 1)
        store.post(target + 1, "send", b"undone")
        store.put_applied(target, store.applied(target) + 1)
        raise ZeroDivisionError


class OutboxSuite(StoreSuite):
    """Rows for other stores, in order, until they are forgotten."""

    def test_numbers_count_from_one_for_each_target(self, store: Store) -> None:
        assert post(store, 1, "abc") == [1, 2, 3]
        assert post(store, 7, "d") == [1]
        assert post(store, 0, "e") == [1]
        assert post(store, 1, "f") == [4]

    def test_rows_are_read_as_posted_and_in_order(self, store: Store) -> None:
        store.post(1, "send", b"first")
        store.post(2, "send", b"for another")
        store.post(1, "delete", b"")

        assert store.posted(1, ALL, ALL_BYTES) == [
            Posted(1, "send", b"first"),
            Posted(2, "delete", b""),
        ]
        assert store.posted(3, ALL, ALL_BYTES) == []

    @pytest.mark.parametrize(
        ("limit", "bytes_max", "found"),
        [
            (2, 99, [1, 2]),
            (9, 10, [1, 2]),
            (9, 9, [1]),
            (9, 0, [1]),
            (9, 99, [1, 2, 3]),
        ],
    )
    def test_a_read_is_bounded_but_has_a_row(
        self, store: Store, limit: int, bytes_max: int, found: list[int]
    ) -> None:
        for _ in range(3):
            store.post(1, "send", b"12345")

        assert [row.number for row in store.posted(1, limit, bytes_max)] == found

    def test_forgotten_rows_are_gone_and_their_numbers_do_not_come_back(
        self, store: Store
    ) -> None:
        post(store, 1, "abc")
        post(store, 2, "x")

        store.forget_posted(1, 2)
        assert (waiting(store, 1), waiting(store, 2)) == ("c", "x")

        store.forget_posted(1, 3)
        assert (waiting(store, 1), waiting(store, 2)) == ("", "x")
        assert post(store, 1, "d") == [4]

    def test_bytes_are_told_by_kind(self, store: Store) -> None:
        store.post(1, "letter", b"abc")
        store.post(1, "spooled:a", b"de")
        store.post(1, "spooled:a", b"f")
        store.post(2, "spooled:b", b"other")

        assert store.posted_bytes(1) == {"letter": 3, "spooled:a": 3}
        store.forget_posted(1, 2)
        assert store.posted_bytes(1) == {"spooled:a": 1}
        assert store.posted_bytes(3) == {}

    def test_forgetting_again_changes_nothing(self, store: Store) -> None:
        post(store, 1, "abc")
        store.forget_posted(1, 2)

        store.forget_posted(1, 1)
        store.forget_posted(1, 2)

        assert waiting(store, 1) == "c"
        assert store.outbox() == {1: OutboxCounts(1, 1, 3)}

    def test_a_number_that_was_not_given_out_cannot_be_forgotten(
        self, store: Store
    ) -> None:
        post(store, 1, "ab")

        with pytest.raises(Bug, match="has applied 3 rows"):
            store.forget_posted(1, 3)
        with pytest.raises(Bug, match="has applied 1 rows"):
            store.forget_posted(2, 1)

        assert waiting(store, 1) == "ab"

    def test_skipped_numbers_are_never_given_out(self, store: Store) -> None:
        post(store, 1, "ab")

        store.skip_numbers(1, 7)
        store.skip_numbers(2, 3)

        assert store.outbox() == {1: OutboxCounts(2, 2, 7), 2: OutboxCounts(0, 0, 3)}
        assert (post(store, 1, "c"), post(store, 2, "d")) == ([8], [4])
        assert waiting(store, 1) == "abc"
        store.forget_posted(1, 7)
        assert waiting(store, 1) == "c"

    @pytest.mark.parametrize("until", [2, 1, 0])
    def test_numbers_that_were_given_out_cannot_be_skipped(
        self, store: Store, until: int
    ) -> None:
        post(store, 1, "ab")

        with pytest.raises(Bug, match=f"Numbers up to {until} for store 1"):
            store.skip_numbers(1, until)

        assert post(store, 1, "c") == [3]

    def test_skipped_numbers_survive_a_restart_and_not_a_rollback(
        self, backend: Backend
    ) -> None:
        store = backend.open()
        store.begin()
        store.skip_numbers(1, 5)
        store.commit()
        store.begin()
        store.skip_numbers(1, 9)
        store.rollback()
        store.close()

        store = backend.open()

        assert store.outbox() == {1: OutboxCounts(0, 0, 5)}
        store.close()

    def test_counts_follow_every_row(self, store: Store) -> None:
        assert store.outbox() == {}

        store.post(1, "send", b"12345")
        store.post(1, "send", b"123")
        store.post(2, "send", b"")
        assert store.outbox() == {1: OutboxCounts(2, 8, 2), 2: OutboxCounts(1, 0, 1)}

        store.forget_posted(1, 1)
        store.forget_posted(2, 1)
        assert store.outbox() == {1: OutboxCounts(1, 3, 2), 2: OutboxCounts(0, 0, 1)}

    def test_the_counts_of_a_caller_are_its_own(self, store: Store) -> None:
        store.outbox()[5] = OutboxCounts(1, 1, 1)

        assert store.outbox() == {}

    def test_a_large_body_is_kept(self, store: Store) -> None:
        body = bytes(range(256)) * (1 << 13)
        store.post(1, "send", body)
        post(store, 1, "b")

        assert store.posted(1, ALL, 1) == [Posted(1, "send", body)]
        assert store.outbox() == {1: OutboxCounts(2, len(body) + 1, 2)}

    def test_an_undone_part_leaves_rows_counts_and_numbers(self, store: Store) -> None:
        post(store, 1, "ab")
        store.put_applied(1, 5)

        undo(store, 1)

        assert waiting(store, 1) == "ab"
        assert store.outbox() == {1: OutboxCounts(2, 2, 2)}
        assert store.applied(1) == 5
        assert post(store, 1, "c") == [3]
        assert post(store, 2, "d") == [1]

    def test_a_part_and_its_messages_are_undone_together(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, records("a"), at(NOW))
        post(store, 1, "a")
        before = store.counts(queue), store.outbox()

        with suppress(ZeroDivisionError), part(store):
            post(store, 1, "b")
            store.append(queue, records("b"), at(NOW))
            with part(store):
                post(store, 1, "c")
            raise ZeroDivisionError

        assert (store.counts(queue), store.outbox()) == before
        assert waiting(store, 1) == "a"

    def test_a_rollback_leaves_rows_counts_and_numbers(self, store: Store) -> None:
        post(store, 1, "ab")
        store.put_applied(1, 5)
        store.commit()

        store.begin()
        store.forget_posted(1, 1)
        post(store, 1, "c")
        post(store, 2, "d")
        undo(store, 1)
        store.put_applied(1, 9)
        store.put_applied(2, 1)
        store.rollback()

        assert store.outbox() == {1: OutboxCounts(2, 2, 2)}
        assert (store.applied(1), store.applied(2)) == (5, 0)
        store.begin()
        assert waiting(store, 1) == "ab"
        assert post(store, 1, "e") == [3]

    def test_everything_committed_survives_a_restart(self, backend: Backend) -> None:
        store = backend.open()
        store.begin()
        post(store, 1, "abc")
        post(store, 2, "d")
        store.forget_posted(1, 2)
        store.forget_posted(2, 1)
        store.put_applied(3, 8)
        undo(store, 1)
        store.commit()
        store.begin()
        post(store, 1, "x")
        store.put_applied(3, 9)
        store.close()

        store = backend.open()

        assert store.outbox() == {1: OutboxCounts(1, 1, 3), 2: OutboxCounts(0, 0, 1)}
        assert store.applied(3) == 8
        store.begin()
        assert store.posted(1, ALL, ALL_BYTES) == [Posted(3, "send", b"c")]
        assert post(store, 1, "e") == [4]
        assert post(store, 2, "f") == [2]
        store.close()

    def test_a_change_needs_a_transaction(self, store: Store) -> None:
        post(store, 1, "a")
        store.commit()

        with pytest.raises(Bug):
            post(store, 1, "b")
        with pytest.raises(Bug):
            store.forget_posted(1, 1)
        with pytest.raises(Bug):
            store.skip_numbers(1, 9)
        with pytest.raises(Bug):
            store.put_applied(1, 1)
        with pytest.raises(Bug):
            store.mirror(1, ORDERS)
        with pytest.raises(Bug):
            store.unmirror(1, "orders")

        store.begin()
        assert waiting(store, 1) == "a"
        assert store.outbox() == {1: OutboxCounts(1, 1, 1)}
        assert (store.applied(1), store.mirrored()) == (0, [])


class AppliedSuite(StoreSuite):
    """What was applied of other stores' outboxes."""

    def test_nothing_is_applied_at_first(self, store: Store) -> None:
        assert store.applied(1) == 0

    def test_each_source_has_a_number_of_its_own(self, store: Store) -> None:
        store.put_applied(1, 4)
        store.put_applied(2, 1)
        store.put_applied(1, 5)

        assert (store.applied(1), store.applied(2), store.applied(3)) == (5, 1, 0)

    @pytest.mark.parametrize("number", [4, 3, 0])
    def test_a_number_that_was_applied_is_refused(
        self, store: Store, number: int
    ) -> None:
        store.put_applied(1, 4)

        with pytest.raises(Bug, match=f"Row {number} of store 1 was applied twice"):
            store.put_applied(1, number)

        assert store.applied(1) == 4


class MirrorSuite(StoreSuite):
    """Entities that other stores hold."""

    def test_an_entity_is_kept_as_given_and_replaced_by_its_key(
        self, store: Store
    ) -> None:
        newer = EntityRow(8, "topic", "orders", '{"a": 1}', NOW + 1, NOW + 2)
        store.mirror(2, ORDERS)
        store.mirror(1, ORDERS)
        store.mirror(1, ORDERS._replace(key="invoices"))

        store.mirror(1, newer)

        assert store.mirrored() == [
            Mirrored(1, ORDERS._replace(key="invoices")),
            Mirrored(1, newer),
            Mirrored(2, ORDERS),
        ]

    def test_an_entity_is_forgotten_by_its_key(self, store: Store) -> None:
        store.mirror(1, ORDERS)
        store.mirror(2, ORDERS)

        store.unmirror(1, "orders")
        store.unmirror(2, "invoices")

        assert store.mirrored() == [Mirrored(2, ORDERS)]

    def test_a_mirrored_entity_is_none_of_this_store(
        self, store: Store, queue: int
    ) -> None:
        store.mirror(1, ORDERS)

        assert [row.id for row in store.entities()] == [queue]

    def test_a_mirror_survives_a_restart_and_not_a_rollback(
        self, backend: Backend
    ) -> None:
        store = backend.open()
        store.begin()
        store.mirror(1, ORDERS)
        store.commit()
        store.begin()
        store.unmirror(1, "orders")
        store.mirror(2, ORDERS)
        store.rollback()
        store.close()

        store = backend.open()

        assert store.mirrored() == [Mirrored(1, ORDERS)]
        store.close()
