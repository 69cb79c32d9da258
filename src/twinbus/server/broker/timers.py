"""One timer of an event loop, that can be asked when it is due.

For less than half a millisecond uvloop gives a handle that cannot tell, so the time is
kept here. It also rounds times to milliseconds, so a timer may fire before it is due:
one that has fired is over, whatever the time is. Knows nothing about turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


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
