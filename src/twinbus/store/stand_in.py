"""What takes the place of a store that cannot be opened.

It knows the entities of the shard as others remember them, holds no messages, and
refuses everything else with a `StoreFault`. So names stay taken, claims can be checked,
and clients are told that the shard is away instead of that an entity does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twinbus.errors import StoreFault
from twinbus.store.base import Counts, DiskFault, EntityRow, OutboxCounts
from twinbus.store.nodes import OneNode


class StandIn(OneNode):
    """The parts of `base.Store` that need no database; the rest refuses."""

    def __init__(self, rows: Sequence[EntityRow], text: str) -> None:
        self._rows = list(rows)
        self._text = text

    def __getattr__(self, name: str) -> Any:
        raise StoreFault(self._text)

    def close(self) -> None:
        """Nothing is open."""

    def on_progress(self, call: Callable[[], None] | None) -> None:
        """Nothing takes long."""

    def rehearse(self, fault: DiskFault | None) -> None:
        """It is away already."""

    def is_nearly_full(self) -> bool:
        return False

    def entities(self) -> list[EntityRow]:
        return list(self._rows)

    def retired(self) -> list[int]:
        return []

    def setting(self, name: str) -> str | None:
        del name
        return None

    def quarantined(self) -> int:
        return 0

    def counts(self, container: int) -> Counts:
        del container
        return Counts(0, 0, 0, 0, 0, 0)

    def size_bytes(self, entity: int) -> int:
        del entity
        return 0

    def stored_bytes(self) -> int:
        return 0

    def outbox(self) -> dict[int, OutboxCounts]:
        return {}
