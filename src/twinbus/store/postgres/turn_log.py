"""What a node knows of the log of turns, and the time that it tells.

Owns the number of the last turn that this node knows, the format of a row of the log,
and how rows bring the counters in memory up to date. Rules: turns count up without
gaps, so a node that misses one reads everything anew; and steady time goes on from the
last turn by what the database's clock says has passed, never back. Runs no statement.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from twinbus.clock import Now
from twinbus.store.base import OutboxCounts
from twinbus.store.tables.containers import Containers
from twinbus.store.tables.outbox_counters import OutboxCounters

# A node that knows nothing yet.
NOTHING = -1


class LoggedTurn(NamedTuple):
    """A row of the log."""

    number: int
    steady_ms: int
    wall_ms: int
    body: str


class TurnLog:
    """The turns that one node knows."""

    def __init__(self, containers: Containers, outbox: OutboxCounters) -> None:
        self._containers = containers
        self._outbox = outbox
        # The last turn that the counters in memory have.
        self.known = NOTHING
        # The last turn that is known to be durable.
        self.synced = NOTHING
        # The turn that the counters in the tables have, and what changed since.
        self.folded = 0
        self.unfolded: set[int] = set()
        # The folds of this node, and the turn up to which it has forgotten all.
        self._folds: deque[tuple[int, int]] = deque()
        self._forgotten = NOTHING
        # The times of the last turn.
        self._last: Now | None = None
        # The latest wall time that a receive has seen; see `tables/rows.py`.
        self.seen_wall_ms: int | None = None
        self.quarantined = 0

    def forget(self) -> None:
        """Start anew: the next turn reads everything."""
        self.known = NOTHING

    def start(self, folded: int) -> None:
        """The counters in memory were loaded from the tables."""
        self.known = self.folded = folded
        self.unfolded.clear()

    def follows(self, turns: Iterable[LoggedTurn], folded: int) -> bool:
        """Whether these turns are all that this node does not know."""
        first = next(iter(turns), None)
        if self.known == NOTHING:
            return False
        return folded <= self.known if first is None else first.number == self.known + 1

    def read(self, turns: Iterable[LoggedTurn]) -> bool:
        """Bring memory up to date; True if entities or settings have changed."""
        changed = False
        for turn in turns:
            body = json.loads(turn.body)
            for row in body.get("containers", ()):
                self._containers.put_back(row[0], tuple(row))
                self.unfolded.add(row[0])
            for key in body.get("gone", ()):
                self._containers.put_back(key, None)
                self.unfolded.add(key)
            for target, *counts in body.get("targets", ()):
                self._outbox.targets.put_back(target, OutboxCounts._make(counts))
            for source, number in body.get("applied", ()):
                self._outbox.applied.put_back(source, number)
            self.seen_wall_ms = body.get("seen", self.seen_wall_ms)
            self.quarantined = body.get("quarantined", self.quarantined)
            changed = changed or "directory" in body
            self.wrote(turn)
        return changed

    def wrote(self, turn: LoggedTurn) -> None:
        """A turn is the last one that this node knows."""
        self.known = turn.number
        self._last = Now(turn.steady_ms, turn.wall_ms)

    def grow_old(self, fold: LoggedTurn, before_ms: int) -> tuple[int, int] | None:
        """The turns to forget with a fold: those of folds before a time.

        By their numbers, so that no statement walks over what is gone already.
        """
        self._folds.append((fold.number, fold.wall_ms))
        first = last = self._forgotten
        while self._folds[0][1] < before_ms:
            last, _ = self._folds.popleft()
        self._forgotten = last
        return None if first == last else (first, last)

    def now(self, wall_ms: int) -> Now:
        """The time of a turn that begins when the database's clock shows this."""
        if self._last is None:
            return Now.at(wall_ms)
        steady_ms, last_ms = self._last
        return Now(steady_ms + max(wall_ms - last_ms, 0), wall_ms)


def write_body(parts: dict[str, Any]) -> str:
    """The body of a row, without what is empty."""
    kept = {key: value for key, value in parts.items() if value not in ([], None)}
    return json.dumps(kept, separators=(",", ":"))
