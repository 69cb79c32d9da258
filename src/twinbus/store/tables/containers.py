"""The counters of all containers, in memory, in step with the database.

Owns the rows of `container`. There are three per entity, so they fit in memory whatever
the depth of a queue, and a count costs no query. Rule: a counter changes only inside a
transaction and through `change`, which notes the old values (`old_values.py`) once in
each part of the transaction. Knows nothing of messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from twinbus.errors import EntityNotFound
from twinbus.store.base import PROBE, Counts
from twinbus.store.tables.old_values import OldValues

Row: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]


class Container:
    """The counters of one container; see the table for their meaning."""

    __slots__ = (
        "accessed_ms",
        "active",
        "deferred",
        "head",
        "held_sessions",
        "id",
        "last_sequence",
        "part",
        "scheduled",
        "size_bytes",
    )

    def __init__(self, row: Row) -> None:
        (
            self.id,
            self.last_sequence,
            self.head,
            self.active,
            self.deferred,
            self.scheduled,
            self.size_bytes,
            self.accessed_ms,
            self.held_sessions,
        ) = row
        # The part of a transaction that has noted it last.
        self.part = 0

    def row(self) -> Row:
        return (
            self.id,
            self.last_sequence,
            self.head,
            self.active,
            self.deferred,
            self.scheduled,
            self.size_bytes,
            self.accessed_ms,
            self.held_sessions,
        )

    def counts(self) -> Counts:
        return Counts(
            self.active,
            self.deferred,
            self.scheduled,
            self.size_bytes,
            self.last_sequence,
            self.accessed_ms,
        )


class Containers:
    """All containers of a namespace."""

    def __init__(self, old: OldValues) -> None:
        # The sum of `size_bytes`: code that changes one changes the other.
        self.stored_bytes = 0
        self._containers: dict[int, Container] = {}
        self._old = old

    def load(self, rows: Iterable[Row]) -> None:
        """Start from what the database holds."""
        self._containers = {row[0]: Container(row) for row in rows}
        if PROBE not in self._containers:
            self._containers[PROBE] = Container((PROBE, 0, 0, 0, 0, 0, 0, 0, 0))
        self.stored_bytes = sum(each.size_bytes for each in self._containers.values())

    def last_accessed_ms(self) -> int:
        """When any container was last used; 0 is never."""
        return max(each.accessed_ms for each in self._containers.values())

    def get(self, id: int) -> Container:
        """A container to read from."""
        try:
            return self._containers[id]
        except KeyError:
            raise EntityNotFound(f"container {id}") from None

    def has(self, id: int) -> bool:
        return id in self._containers

    def change(self, id: int) -> Container:
        """A container to write to."""
        old = self._old
        container = self.get(id)
        if container.part != old.part:
            old.note(self, id, container.row())
            container.part = old.part
        return container

    def create(self, id: int) -> None:
        self._old.note(self, id, None)
        self._containers[id] = Container((id, 0, 0, 0, 0, 0, 0, 0, 0))

    def drop(self, id: int) -> None:
        self.stored_bytes -= self.change(id).size_bytes
        del self._containers[id]

    def put_back(self, key: int, old: Row | None) -> None:
        gone = self._containers.pop(key, None)
        if gone is not None:
            self.stored_bytes -= gone.size_bytes
        if old is not None:
            self._containers[key] = Container(old)
            self.stored_bytes += self._containers[key].size_bytes

    def to_write(self) -> tuple[list[Row], list[int]]:
        """What changed in this transaction: rows to put, and ids of those gone."""
        there = self._containers
        noted = self._old.changed(self)
        changed = [there[key].row() for key in noted if key in there]
        return changed, [key for key in noted if key not in there]
