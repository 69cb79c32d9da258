"""The counters of the outbox, in memory, in step with the database.

Owns the rows of `outbox_target`, and the numbers in `applied`. There is one for each
other store of the namespace, so they fit in memory. Knows nothing of the bodies.
"""

from __future__ import annotations

from collections.abc import Iterable

from twinbus.store.base import OutboxCounts
from twinbus.store.tables.old_values import OldValues, Values


class OutboxCounters:
    """What the outbox has for each target, and what was applied of each source."""

    def __init__(self, old: OldValues) -> None:
        self.targets: Values[OutboxCounts] = Values(old)
        self.applied: Values[int] = Values(old)

    def load(
        self, targets: Iterable[tuple[int, ...]], applied: Iterable[tuple[int, int]]
    ) -> None:
        """Start from what the database holds."""
        self.targets.values = {row[0]: OutboxCounts._make(row[1:]) for row in targets}
        self.applied.values = dict(applied)
