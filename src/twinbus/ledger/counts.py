"""Counts operations while they happen: integers in a dictionary, nothing else.

Owns the hot path: what happens to a run of messages of one kind costs one update, not
one for each message. A link or request counts with a `LedgerAccount`, which knows its
entity, key and connection. Bytes go in and out as the namespace sees it, also where a
client counts. Nothing here looks at a clock: `take` empties the counts, and its caller
says which minute they belong to. Not for several threads at once.

A client may have put a key, a token or a connection string where a name belongs. What
cannot be a name is counted as `NO_NAME`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from twinbus import limits
from twinbus.ledger.schema import size_class

NO_NAME = "(no name)"
# Names of entities and keys, and folders. Keys end with "=", tokens are full of it.
_NAME = re.compile(rf"[\w.~/$ -]{{0,{limits.LEDGER_NAME_CHARS_MAX}}}")


class LedgerPlace(NamedTuple):
    """What all operations of one link or request have in common."""

    namespace: str
    source: str
    # As clients name it; empty for the namespace itself.
    entity: str
    # The name of the key, never the key.
    key: str
    connection: str


# Place, operation, outcome and size class.
CellKey = tuple[LedgerPlace, str, str, int]
# Operations, messages, bytes in and bytes out.
Cell = list[int]


class LedgerEvent(NamedTuple):
    """One row of the second table."""

    at_ms: int
    primary: str
    secondary: str
    # Empty for the pair itself.
    entity: str
    event: str
    messages: int = 0
    size_bytes: int = 0
    # A short reason.
    detail: str = ""


@dataclass(slots=True)
class Counted:
    """What `take` gives."""

    cells: dict[CellKey, Cell] = field(default_factory=dict)
    events: list[LedgerEvent] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows it becomes."""
        return len(self.cells) + len(self.events)


class LedgerCounts:
    """What was counted since it was last taken."""

    __slots__ = ("cells", "dropped", "events", "names")

    def __init__(self) -> None:
        self.cells: dict[CellKey, Cell] = {}
        self.events: list[LedgerEvent] = []
        # Operations and events that found no room.
        self.dropped = 0
        # What namespaces call themselves, by what clients call them.
        self.names: dict[str, str] = {}

    def account(self, place: LedgerPlace) -> LedgerAccount:
        """For one link or request."""
        named = place._replace(entity=_name(place.entity), key=_name(place.key))
        return LedgerAccount(self, named)

    def take(self) -> Counted:
        """All counts, under the names of their namespaces; then it starts anew."""
        taken = Counted(self.cells, self.events)
        self.cells, self.events = {}, []
        return _renamed(taken, self.names) if self.names else taken

    def tell(self, event: LedgerEvent) -> None:
        """Note an event of a pair."""
        if len(self.events) >= limits.LEDGER_EVENTS_PER_MINUTE_MAX:
            self.dropped += 1
            return
        self.events.append(event._replace(entity=_name(event.entity)))

    def add(self, key: CellKey, cell: tuple[int, int, int, int]) -> None:
        """Count operations, messages, bytes in and bytes out."""
        found = self.cells.get(key)
        if found is None:
            if len(self.cells) >= limits.LEDGER_ROWS_PER_MINUTE_MAX:
                self.dropped += cell[0]
                return
            self.cells[key] = [*cell]
            return
        operations, messages, bytes_in, bytes_out = cell
        found[0] += operations
        found[1] += messages
        found[2] += bytes_in
        found[3] += bytes_out


def _name(text: str) -> str:
    return text if _NAME.fullmatch(text) else NO_NAME


def _renamed(taken: Counted, names: Mapping[str, str]) -> Counted:
    """The same, with the names that namespaces have given themselves."""
    found = LedgerCounts()
    for (place, *what), cell in taken.cells.items():
        name = names.get(place.namespace, place.namespace)
        key = (place._replace(namespace=name), *what)
        found.add(cast("CellKey", key), (cell[0], cell[1], cell[2], cell[3]))
    found.events = [
        event._replace(
            primary=names.get(event.primary, event.primary),
            secondary=names.get(event.secondary, event.secondary),
        )
        for event in taken.events
    ]
    return Counted(found.cells, found.events)


class LedgerAccount:
    """Counts for one link or request."""

    __slots__ = ("counts", "place")

    def __init__(self, counts: LedgerCounts, place: LedgerPlace) -> None:
        self.counts = counts
        self.place = place

    def calls(
        self,
        operation: str,
        outcome: str,
        count: int = 1,
        bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> None:
        """Operations in which no message crossed the wire."""
        key = self.place, operation, outcome, 0
        self.counts.add(key, (count, 0, bytes_in, bytes_out))

    def run_in(self, operation: str, outcome: str, count: int, size_bytes: int) -> None:
        """Messages that came in, none of them larger than a unit."""
        key = self.place, operation, outcome, 1
        found = self.counts.cells.get(key)
        if found is None:
            self.counts.add(key, (count, count, size_bytes, 0))
        else:
            # The hot path, in short.
            found[0] += count
            found[1] += count
            found[2] += size_bytes

    def run_out(self, operation: str, count: int, size_bytes: int) -> None:
        """Messages that went out, none of them larger than a unit."""
        key = self.place, operation, "accepted", 1
        found = self.counts.cells.get(key)
        if found is None:
            self.counts.add(key, (count, count, 0, size_bytes))
        else:
            found[0] += count
            found[1] += count
            found[3] += size_bytes

    def messages_in(self, operation: str, outcome: str, sizes: Iterable[int]) -> None:
        """Messages of any sizes that came in."""
        for each, (count, size_bytes) in _by_class(sizes).items():
            key = self.place, operation, outcome, each
            self.counts.add(key, (count * each, count, size_bytes, 0))

    def messages_out(self, operation: str, sizes: Iterable[int]) -> None:
        """Messages of any sizes that went out."""
        for each, (count, size_bytes) in _by_class(sizes).items():
            key = self.place, operation, "accepted", each
            self.counts.add(key, (count * each, count, 0, size_bytes))


def _by_class(sizes: Iterable[int]) -> dict[int, tuple[int, int]]:
    """How many messages of each size class there are, and their bytes."""
    found: dict[int, tuple[int, int]] = {}
    for size_bytes in sizes:
        each = size_class(size_bytes)
        count, total = found.get(each, (0, 0))
        found[each] = count + 1, total + size_bytes
    return found
