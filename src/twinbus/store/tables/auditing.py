"""Counters against rows: whether a container holds what it says.

Owns the comparison. Rule: rows are right. Counters that differ are a defect; they are
set right at once, so that it does no more harm, and reported.
"""

from __future__ import annotations

from typing import NamedTuple

from twinbus.store.base import SEQUENCE_BITS, SEQUENCE_MASK
from twinbus.store.tables.rows import Rows, guarded

# More than a container can hold.
_ALL = SEQUENCE_MASK


class Holdings(NamedTuple):
    """What a container holds."""

    active: int
    deferred: int
    scheduled: int
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.active} active, {self.deferred} deferred, {self.scheduled} "
            f"scheduled with {self.size_bytes} bytes"
        )


class Auditing(Rows):
    """Comparing counters with rows."""

    @guarded
    def audit(self, container: int, rows_max: int) -> str | None:
        counters = self._containers.get(container)
        counted = Holdings(
            counters.active, counters.deferred, counters.scheduled, counters.size_bytes
        )
        found = self._held(container, rows_max)
        rows, most = found.active + found.deferred, rows_max
        is_all = rows < most and found.scheduled < most
        at_least = (
            counted.active + counted.deferred >= rows
            and counted.scheduled >= found.scheduled
        )
        if found == counted if is_all else at_least:
            return None
        right = self._held(container, _ALL)
        changed = self._containers.change(container)
        self._containers.stored_bytes += right.size_bytes - changed.size_bytes
        changed.active, changed.deferred, changed.scheduled, changed.size_bytes = right
        return f"the counters had {counted}; the rows have {right}"

    def _held(self, container: int, limit: int) -> Holdings:
        """Count the rows of a container, up to a limit in each table."""
        ids = (container << SEQUENCE_BITS, container + 1 << SEQUENCE_BITS, limit)
        active, deferred, size = self._run(self._sql["held_messages"], ids).fetchone()
        scheduled, more = self._run(self._sql["held_scheduled"], ids).fetchone()
        return Holdings(active, deferred, scheduled, size + more)
