"""What values in memory were before a transaction or one of its parts changed them.

Owns whether a transaction is open, and the one list of old values that all tables in
memory share, so that one mark undoes a part in all of them. Rule: a value in memory
changes inside a transaction only, and its old value is noted first. Then `restore`
brings it back without asking the database. Knows nothing of what the values mean.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from twinbus.errors import Bug

V = TypeVar("V")


class Table(Protocol):
    """Values by number, in memory."""

    def put_back(self, key: int, old: Any) -> None:
        """Make a value what it was; None: it was not there."""


class OldValues:
    """The old values of one transaction, in the order of the changes."""

    def __init__(self) -> None:
        self.in_transaction = False
        # Counts up with every part and transaction.
        self.part = 1
        self._noted: list[tuple[Table, int, Any]] = []

    def check(self) -> None:
        """Raise where nothing may be changed."""
        if not self.in_transaction:
            raise Bug("The store was changed outside a transaction.")

    def note(self, table: Table, key: int, old: Any) -> None:
        """A value is about to change; None: it is not there."""
        self.check()
        self._noted.append((table, key, old))

    def changed(self, table: Table) -> set[int]:
        """The keys of a table that were changed in this transaction."""
        return {key for at, key, _ in self._noted if at is table}

    def keep(self) -> None:
        """The transaction is durable, or the tables were loaded anew."""
        self._noted.clear()
        self.part += 1

    def mark(self) -> int:
        """Start a part of the transaction; `restore` takes back what comes after."""
        self.part += 1
        return len(self._noted)

    def restore(self, mark: int = 0) -> None:
        """The transaction, or what came after a mark, did not happen."""
        while len(self._noted) > mark:
            table, key, old = self._noted.pop()
            table.put_back(key, old)


class Values(Generic[V]):
    """A table of values that are replaced and never changed in place."""

    def __init__(self, old: OldValues) -> None:
        self.values: dict[int, V] = {}
        # Keys that may differ from the database.
        self._changed: set[int] = set()
        self._old = old

    def put(self, key: int, value: V) -> None:
        self._old.note(self, key, self.values.get(key))
        self._changed.add(key)
        self.values[key] = value

    def put_back(self, key: int, old: V | None) -> None:
        if old is None:
            del self.values[key]
        else:
            self.values[key] = old

    def to_write(self) -> list[tuple[int, V]]:
        """What has to be written before the commit; asked once."""
        changed, self._changed = self._changed, set()
        return [(key, self.values[key]) for key in changed if key in self.values]
