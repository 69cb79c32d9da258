"""What every store suite starts from.

Owns the fixtures: a store with an open transaction and two containers. Knows no
database: a test module of a database gives the fixture `backend` and makes a class of
each suite. Time is a number that the tests choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from twinbus.clock import Now
from twinbus.errors import StoreFault
from twinbus.store.base import (
    Lock,
    Store,
    Stored,
)
from twinbus.store.records import Record

# The time at which most tests happen, and an end of a lock well after it.
NOW = 1_000
LATER = 10_000
# Both clocks show this time.
at = Now.at


class Backend(Protocol):
    """A place that keeps its data between two calls of `open`."""

    def open(self) -> Store:
        """Open the store; the last one must have been closed."""


def record(body: str = "x", **fields: Any) -> Record:
    return Record(head=b"head", bare=body.encode(), **fields)


def records(bodies: str, **fields: Any) -> list[Record]:
    """One record for each letter."""
    return [record(body, **fields) for body in bodies]


def bodies(messages: Sequence[Stored]) -> str:
    return "".join(message.bare.decode() for message in messages)


def locks(nonce: int, messages: Sequence[Stored]) -> list[Lock]:
    return [Lock(message.id, nonce) for message in messages]


@contextmanager
def part(store: Store) -> Iterator[None]:
    """A part of the transaction; an exception undoes it and goes on."""
    mark = store.begin_part()
    try:
        yield
    except StoreFault:
        raise
    except Exception:
        store.undo_part(mark)
        raise
    store.end_part()


class StoreSuite:
    """The fixtures of a suite; each test gets a store of its own."""

    @pytest.fixture
    def store(self, backend: Backend) -> Iterator[Store]:
        store = backend.open()
        store.begin()
        yield store
        store.rollback()
        store.close()

    @pytest.fixture
    def queue(self, store: Store) -> int:
        return store.insert_entity("queue", "orders", "{}", NOW)

    @pytest.fixture
    def other(self, store: Store, queue: int) -> int:
        return store.insert_entity("queue", "invoices", "{}", NOW)

    def receive(
        self, store: Store, queue: int, limit: int = 100, now_ms: int = NOW
    ) -> str:
        """Lock what is ready, and tell its bodies."""
        return bodies(store.lock(queue, limit, LATER, at(now_ms))[1])
