"""Looks at rows beside the store: when messages came, locks and sessions.

Owns what a reader does in the same way in every database. How messages are read one by
one is different, and is with the database. Knows nothing of counters in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from twinbus.errors import StoreFault
from twinbus.store.base import SEQUENCE_BITS, SEQUENCE_MASK
from twinbus.store.reading import SessionRow


class RowReader(ABC):
    """A look at one shard; implements most of `reading.StoreReader`."""

    # What the driver of the database raises.
    _driver_error: type[Exception]
    # The statements, by name.
    _sql: Mapping[str, str]

    @abstractmethod
    def _run(self, query: str, at: Any) -> Any:
        """Run a statement; returns a cursor."""

    @abstractmethod
    def _ids(self, ids: Sequence[int]) -> Any:
        """Many ids as one parameter of a query."""

    def oldest_ms(self, containers: Iterable[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        with told(self._driver_error):
            for container in containers:
                base = container << SEQUENCE_BITS
                at = (base, base | SEQUENCE_MASK)
                row = self._run(self._sql["oldest"], at).fetchone()
                if row is not None:
                    found[container] = row[0]
        return found

    def locked(self, ids: Sequence[int]) -> set[int]:
        with told(self._driver_error):
            rows = self._run(self._sql["locked_ids"], (self._ids(ids),)).fetchall()
        return {row[0] for row in rows}

    def sessions(self, container: int, after: str, limit: int) -> list[SessionRow]:
        at = {"container": container, "after": after, "limit": limit}
        with told(self._driver_error):
            rows = self._run(self._sql["sessions_after"], at).fetchall()
        return [SessionRow._make(row) for row in rows]


@contextmanager
def told(kind: type[Exception]) -> Iterator[None]:
    """Turn errors of the database into a fault of the store."""
    try:
        yield
    except kind as error:
        text = f"The database of the namespace cannot be read ({error}). Try again."
        raise StoreFault(text) from error
