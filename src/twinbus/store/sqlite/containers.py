"""The counters of all containers, in memory, in step with the database.

Owns the rows of `container`. There are three per entity, so they fit in memory whatever
the depth of a queue, and a count costs no query. Rule: a counter changes only inside a
transaction and through `change`, which keeps the old values, so that `restore` brings
them back without asking the database. Knows nothing of messages.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from twinbus.errors import Bug, EntityNotFound
from twinbus.store.base import PROBE, Counts
from twinbus.store.queries import load

_SQL = load("sqlite", "containers")

Row: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
# Counters as they were before; None where there was no container.
Before: TypeAlias = dict[int, Row | None]


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

    def __init__(self) -> None:
        self.in_transaction = False
        self._containers: dict[int, Container] = {}
        # What the containers touched by this transaction were; None if it made them.
        self._before: dict[int, Row | None] = {}

    def load(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(_SQL["containers"]).fetchall()
        self._containers = {row[0]: Container(row) for row in rows}
        if PROBE not in self._containers:
            self._containers[PROBE] = Container((PROBE, 0, 0, 0, 0, 0, 0, 0, 0))
        self._before.clear()

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
        if not self.in_transaction:
            raise Bug("The store was changed outside a transaction.")
        container = self.get(id)
        if id not in self._before:
            self._before[id] = container.row()
        return container

    def create(self, id: int) -> None:
        if not self.in_transaction:
            raise Bug("The store was changed outside a transaction.")
        self._before.setdefault(id, None)
        self._containers[id] = Container((id, 0, 0, 0, 0, 0, 0, 0, 0))

    def drop(self, id: int) -> None:
        self.change(id)
        del self._containers[id]

    def write(self, connection: sqlite3.Connection) -> None:
        """Write back what changed; `keep` follows when the commit is through."""
        there = self._containers
        changed = [there[key].row() for key in self._before if key in there]
        gone = [(key,) for key in self._before if key not in there]
        if changed:
            connection.executemany(_SQL["put_container"], changed)
        if gone:
            connection.executemany(_SQL["delete_container"], gone)

    def keep(self) -> None:
        """The transaction is durable."""
        self._before.clear()

    def mark(self) -> Before:
        """Start a part of the transaction; `join` ends it with what this returned."""
        outer, self._before = self._before, {}
        return outer

    def join(self, outer: Before) -> None:
        """End a part; `restore` undoes it if it is called before."""
        for key, row in self._before.items():
            # The value of before the whole transaction is the one to restore.
            outer.setdefault(key, row)
        self._before = outer

    def restore(self) -> None:
        """The transaction, or the part since `mark`, did not happen."""
        for key, row in self._before.items():
            if row is None:
                self._containers.pop(key, None)
            else:
                self._containers[key] = Container(row)
        self._before.clear()
