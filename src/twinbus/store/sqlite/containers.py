"""The counters of all containers, in memory, in step with the database.

Owns the rows of `container`. There are three per entity, so they fit in memory whatever
the depth of a queue, and a count costs no query. Rule: a counter changes only inside a
transaction and through `change`, which notes the old values once in each part of the
transaction, so that `restore` brings them back without asking the database. Knows
nothing of messages.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from twinbus.errors import Bug, EntityNotFound
from twinbus.store.base import PROBE, Counts
from twinbus.store.queries import load

_SQL = load("sqlite", "containers")

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

    def __init__(self) -> None:
        self.in_transaction = False
        self._containers: dict[int, Container] = {}
        # What containers were before this transaction or one of its parts changed them,
        # in order; None if there was none.
        self._journal: list[tuple[int, Row | None]] = []
        # Counts up with every part and transaction.
        self._part = 1

    def load(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(_SQL["containers"]).fetchall()
        self._containers = {row[0]: Container(row) for row in rows}
        if PROBE not in self._containers:
            self._containers[PROBE] = Container((PROBE, 0, 0, 0, 0, 0, 0, 0, 0))
        self._journal.clear()

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
        if container.part != self._part:
            container.part = self._part
            self._journal.append((id, container.row()))
        return container

    def create(self, id: int) -> None:
        if not self.in_transaction:
            raise Bug("The store was changed outside a transaction.")
        self._journal.append((id, None))
        self._containers[id] = Container((id, 0, 0, 0, 0, 0, 0, 0, 0))

    def drop(self, id: int) -> None:
        self.change(id)
        del self._containers[id]

    def write(self, connection: sqlite3.Connection) -> None:
        """Write back what changed; `keep` follows when the commit is through."""
        there = self._containers
        noted = {key for key, _ in self._journal}
        changed = [there[key].row() for key in noted if key in there]
        gone = [(key,) for key in noted if key not in there]
        if changed:
            connection.executemany(_SQL["put_container"], changed)
        if gone:
            connection.executemany(_SQL["delete_container"], gone)

    def keep(self) -> None:
        """The transaction is durable."""
        self._journal.clear()
        self._part += 1

    def mark(self) -> int:
        """Start a part of the transaction; `restore` takes back what comes after."""
        self._part += 1
        return len(self._journal)

    def restore(self, mark: int = 0) -> None:
        """The transaction, or what came after a mark, did not happen."""
        while len(self._journal) > mark:
            key, row = self._journal.pop()
            if row is None:
                self._containers.pop(key, None)
            else:
                self._containers[key] = Container(row)
