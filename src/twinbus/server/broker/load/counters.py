"""Counting on the hot path: plain integers that `/metrics` reads.

Owns the one thing that is more than an integer: how often a value fell into which
range. To observe costs a search in a dozen numbers and two additions, so it may be done
once in a turn, but not once for each message.
Knows nothing about who reads it; `metrics.py` does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

# A sync takes a tenth of a millisecond on the best disks; what takes seconds is broken.
SECONDS = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
)
# How many commands share a sync.
COMMANDS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Histogram:
    """How often a value was at most each of some bounds, and above all of them."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        # All values together.
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound with the number of values up to it; the last is infinity."""
        seen = 0
        for bound, count in zip(
            (*self._bounds, float("inf")), self._counts, strict=True
        ):
            seen += count
            yield bound, seen
