"""The timers of a host: when it looks at the time, and when it has been idle.

For less than half a millisecond uvloop gives a handle that cannot tell when it is due,
so the time is kept here. It also rounds times to milliseconds, so a timer may fire
before it is due: one that has fired is over, whatever the time is. Knows nothing about
turns and stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from twinbus import limits


class LoopTimer:
    """Calls something once, later; a new call takes the place of the last one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.Handle | None = None
        self._due_at = 0.0

    def set(self, seconds: float, call: Callable[[], None]) -> None:
        """Call that in so many seconds."""
        self.cancel()
        self._due_at = self._loop.time() + seconds
        self._handle = self._loop.call_later(seconds, self._fire, call)

    def _fire(self, call: Callable[[], None]) -> None:
        self._handle = None
        call()

    def is_due_within(self, seconds: float) -> bool:
        """Whether it is set, not due yet, and will be within so many seconds."""
        left = self._due_at - self._loop.time()
        return self._handle is not None and 0 < left <= seconds

    def cancel(self) -> None:
        """Call nothing."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class IdleTimer:
    """Calls something when a host that has worked is idle, until it says yes.

    Then a store writes its log into the file; otherwise a commit has to do it, while
    clients wait.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, call: Callable[[], bool]
    ) -> None:
        self._timer = LoopTimer(loop)
        self._call = call
        # Work of the turns since the last call.
        self._work = 0

    def note(self, costs: Iterable[int]) -> None:
        """A turn is over, whose commands took so much work."""
        self._work += sum(costs)
        if self._work >= limits.CHECKPOINT_WORK_MIN:
            self._timer.set(limits.CHECKPOINT_IDLE_SECONDS, self._fire)

    def _fire(self) -> None:
        if self._call():
            self._work = 0

    def cancel(self) -> None:
        """Call nothing."""
        self._timer.cancel()
