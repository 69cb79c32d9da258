"""The counters of the outbox, in memory, in step with the database.

Owns the rows of `outbox_target`, and the numbers in `applied`. There is one for each
other store of the namespace, so they fit in memory. Knows nothing of the bodies.
"""

from __future__ import annotations

import sqlite3

from twinbus.store.base import OutboxCounts
from twinbus.store.queries import load
from twinbus.store.sqlite.old_values import OldValues, Values

_SQL = load("sqlite", "outbox")


class OutboxCounters:
    """What the outbox has for each target, and what was applied of each source."""

    def __init__(self, old: OldValues) -> None:
        self.targets: Values[OutboxCounts] = Values(old)
        self.applied: Values[int] = Values(old)

    def load(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(_SQL["outbox_targets"]).fetchall()
        self.targets.values = {row[0]: OutboxCounts._make(row[1:]) for row in rows}
        self.applied.values = dict(connection.execute(_SQL["applied_sources"]))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write back what changed, before the commit."""
        targets = [(key, *counts) for key, counts in self.targets.to_write()]
        if targets:
            connection.executemany(_SQL["put_outbox_target"], targets)
        applied = self.applied.to_write()
        if applied:
            connection.executemany(_SQL["put_applied"], applied)
