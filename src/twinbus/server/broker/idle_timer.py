"""When a host has nothing to do, so that its store may write its log into the file.

Owns the moment: after so much work, when no turn has come for a while. Otherwise a
commit has to do it, while clients wait. Knows nothing about stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from twinbus import limits
from twinbus.server.broker.loop_timer import LoopTimer


class IdleTimer:
    """Calls something when a host that has worked is idle, until it says yes."""

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
