"""Suite: a part of a transaction that is undone while the rest of it stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

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
from twinbus.errors import Bug, EntityNotFound, StoreFault
from twinbus.store.base import Store


@contextmanager
def undone(store: Store) -> Iterator[None]:
    """A part of the transaction that ends with an exception."""
    with suppress(ZeroDivisionError), part(store):
        yield
        raise ZeroDivisionError


class SavepointSuite(StoreSuite):
    """An exception undoes its part, and nothing else."""

    def test_a_part_that_ends_well_is_there(self, store: Store, queue: int) -> None:
        store.append(queue, records("a"), at(NOW))
        with part(store):
            store.append(queue, records("b"), at(NOW))
        store.append(queue, records("c"), at(NOW))

        assert self.receive(store, queue) == "abc"
        assert store.counts(queue).active == 3

    def test_the_exception_goes_on(self, store: Store) -> None:
        with pytest.raises(ZeroDivisionError), part(store):
            raise ZeroDivisionError

    def test_messages_and_counters_are_as_before_the_part(
        self, store: Store, queue: int, other: int
    ) -> None:
        store.append(queue, [*records("ab"), record("d", due_ms=NOW)], at(NOW))
        nonce, held = store.lock(queue, 1, LATER, at(NOW))
        before = store.counts(queue), store.counts(other)
        peeked = store.peek(queue, 1, 10, at(NOW), None)

        with undone(store):
            store.append(other, [record("e", session="s")], at(NOW + 1))
            store.complete(locks(nonce, held), at(NOW))
            store.lock(queue, 9, LATER, at(NOW))
            store.remove([message.id for message in store.due(at(NOW), 10)])
            store.purge(queue)

        assert (store.counts(queue), store.counts(other)) == before
        assert store.peek(queue, 1, 10, at(NOW), None) == peeked
        assert store.sessions(other, None, 0, 10) == []
        assert bodies(store.due(at(NOW), 10)) == "d"
        assert store.append(other, records("f"), at(NOW)) == 1
        assert self.receive(store, queue) == "b"
        assert store.complete(locks(nonce, held), at(NOW)) == [True]

    def test_what_expires_is_found_after_the_part(
        self, store: Store, queue: int
    ) -> None:
        store.append(queue, [record("a", expires_ms=NOW + 1)], at(NOW))

        with undone(store):
            (gone,) = store.expired(at(NOW + 1), 10)
            store.remove([gone.id])
            assert store.expired(at(NOW + 1), 10) == []

        assert bodies(store.expired(at(NOW + 1), 10)) == "a"

    def test_entities_are_as_before_the_part(self, store: Store, queue: int) -> None:
        store.append(queue, records("a"), at(NOW))

        with undone(store):
            store.delete_entity(queue)
            made = store.insert_entity("queue", "made", "{}", NOW)

        assert [row.id for row in store.entities()] == [queue]
        assert self.receive(store, queue) == "a"
        with pytest.raises(EntityNotFound):
            store.counts(made)

    def test_parts_may_be_nested(self, store: Store, queue: int) -> None:
        with undone(store):
            store.append(queue, records("a"), at(NOW))
            with part(store):
                store.append(queue, records("b"), at(NOW))
        with part(store):
            store.append(queue, records("c"), at(NOW))
            with undone(store):
                store.append(queue, records("d"), at(NOW))

        assert self.receive(store, queue) == "c"
        assert store.counts(queue).last_sequence == 1

    def test_a_rollback_undoes_parts_too(self, store: Store, queue: int) -> None:
        store.append(queue, records("a"), at(NOW))
        store.commit()
        before = store.counts(queue)
        store.begin()
        store.append(queue, records("b"), at(NOW))
        with part(store):
            store.append(queue, records("c"), at(NOW))
        with undone(store):
            store.append(queue, records("d"), at(NOW))
        # After a fault nothing but a rollback is allowed, also inside a part.
        with suppress(StoreFault), part(store):
            store.append(queue, records("e"), at(NOW))
            raise StoreFault
        store.rollback()

        store.begin()
        assert store.counts(queue) == before
        assert self.receive(store, queue) == "a"

    def test_what_is_left_survives_a_restart(self, backend: Backend) -> None:
        store = backend.open()
        store.begin()
        queue = store.insert_entity("queue", "orders", "{}", NOW)
        with part(store):
            store.append(queue, records("a"), at(NOW))
        with undone(store):
            store.append(queue, records("b"), at(NOW))
        counts = store.counts(queue)
        store.commit()
        store.close()

        store = backend.open()

        store.begin()
        assert store.counts(queue) == counts
        assert self.receive(store, queue) == "a"
        store.rollback()
        store.close()

    def test_a_part_needs_a_transaction(self, store: Store) -> None:
        store.rollback()

        with pytest.raises(Bug), part(store):
            pass
