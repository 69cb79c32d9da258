"""The only source of time: a steady clock and the wall clock, looked at together.

The steady clock measures durations: it never stops, and setting the wall clock does not
move it. The wall clock says which moment it is, and follows the machine's. The server
looks at both once in a turn; tests pass a clock that they move.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol, Self


class Now(NamedTuple):
    """One look at both clocks, in whole milliseconds."""

    # Only differences mean something.
    steady_ms: int
    # Since the epoch.
    wall_ms: int

    @classmethod
    def at(cls, wall_ms: int) -> Self:
        """A moment at which both clocks show the same."""
        return cls(wall_ms, wall_ms)

    def shown(self, steady_ms: int) -> int:
        """A steady time as people read it: the wall time now, and what is left."""
        return self.wall_ms + steady_ms - self.steady_ms


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> Now:
        """Look at both clocks."""

    def now_ms(self) -> int:
        """The steady time alone, for deadlines."""


# Counts on while the machine is suspended, which the monotonic clock does not.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of the machine; the steady one starts at the wall time."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(_STEADY)

    def now(self) -> Now:
        """Look at both clocks."""
        steady_ns = time.clock_gettime_ns(_STEADY) + self._offset_ns
        return Now(steady_ns // 1_000_000, time.time_ns() // 1_000_000)

    def now_ms(self) -> int:
        """The steady time alone, for deadlines."""
        return (time.clock_gettime_ns(_STEADY) + self._offset_ns) // 1_000_000


class ManualClock:
    """Clocks that stand still until they are moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now = Now.at(now_ms)

    def now(self) -> Now:
        """Look at both clocks."""
        return self._now

    def now_ms(self) -> int:
        """The steady time alone, for deadlines."""
        return self._now.steady_ms

    def advance(self, milliseconds: int) -> None:
        """Let time pass on both; a negative amount is a bug of the caller."""
        assert milliseconds >= 0
        steady_ms, wall_ms = self._now
        self._now = Now(steady_ms + milliseconds, wall_ms + milliseconds)

    def step(self, milliseconds: int) -> None:
        """Set the wall clock, forward or back; no time passes."""
        self._now = self._now._replace(wall_ms=self._now.wall_ms + milliseconds)
