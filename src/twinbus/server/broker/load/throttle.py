"""Message rates: a token bucket per entity or namespace.

Off unless a rate is set. A bucket holds one second's worth, so a burst of that size
passes and the rest is told to come back: server-busy, never a silent delay.
"""

from __future__ import annotations


class Bucket:
    """Allows `rate` messages a second."""

    __slots__ = ("_filled_ms", "_level", "rate")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._level = float(rate)
        self._filled_ms: int | None = None

    def state(self) -> tuple[float, int | None]:
        """What `restore` brings back."""
        return self._level, self._filled_ms

    def restore(self, state: tuple[float, int | None]) -> None:
        """What was taken since is given back."""
        self._level, self._filled_ms = state

    def take(self, count: int, steady_ms: int) -> bool:
        """Take `count` messages if the bucket has one at all left.

        A batch larger than the bucket passes when the bucket is full, and is paid back.
        """
        if self._filled_ms is not None:
            gained = (steady_ms - self._filled_ms) * self.rate / 1000
            self._level = min(self._level + gained, float(self.rate))
        self._filled_ms = steady_ms
        if self._level < min(count, self.rate):
            return False
        self._level -= count
        return True
