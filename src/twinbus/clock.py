"""The only source of time.

The server asks a clock for milliseconds since the epoch; tests pass one they move.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in whole milliseconds since the epoch."""

    def now_ms(self) -> int: ...


class SystemClock:
    """Wall time that never runs backwards within one process.

    It follows the wall clock at start and then the monotonic clock, so that a jump of
    the wall clock neither ends locks early nor keeps them for ever.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        """Move forward; a negative amount is a bug of the caller."""
        assert milliseconds >= 0
        self._now_ms += milliseconds
