"""The clocks of a namespace: steady time that goes on over restarts.

Locks, session locks and duplicate windows are rows, and end at a steady time. So the
steady time must go on where the process before has left it. The store keeps a pair of
steady and wall time. At start the steady time is the kept one, plus the wall time that
has passed since then, if any; without a kept pair it is the wall time.

The pair is kept anew at the start, after each step of the wall clock, and every hour.
So a step while the server runs changes nothing, time without a server counts, and a
clock that was set back meanwhile makes locks last a little longer: never beyond the
longest lock, since they are cut.
Knows nothing about what ends when.
"""

from __future__ import annotations

import logging

from twinbus import limits
from twinbus.clock import Clock, Now
from twinbus.store.base import FOREVER_MS, Store

log = logging.getLogger("twinbus.clock")

_KEPT = "clock"


class NamespaceClock:
    """Looks at the machine's clocks, with the steady time of a store (`Clock`)."""

    def __init__(self, clock: Clock, store: Store, name: str) -> None:
        self._clock = clock
        self._name = name
        self.use_store(store)

    def use_store(self, store: Store) -> None:
        """Go on from the steady time of that store."""
        self._store = store
        now = self._clock.now()
        steady_ms = _resumed(store.setting(_KEPT), now.wall_ms)
        self._shift_ms = steady_ms - now.steady_ms
        # How far the wall clock of a database is ahead of the machine's.
        self._wall_shift_ms = 0
        # How far the wall clock was ahead of the steady one when both were last kept,
        # and when that is done again.
        self._ahead_ms = now.wall_ms - steady_ms
        self._keep_ms = -FOREVER_MS

    def now(self) -> Now:
        """Look at both clocks."""
        steady_ms, wall_ms = self._clock.now()
        return Now(steady_ms + self._shift_ms, wall_ms + self._wall_shift_ms)

    def now_ms(self) -> int:
        """The steady time alone."""
        return self._clock.now_ms() + self._shift_ms

    def keep(self, now: Now) -> bool:
        """Keep the time in this transaction, if need be; True if the clock was set."""
        step_ms = now.wall_ms - now.steady_ms - self._ahead_ms
        is_set = abs(step_ms) >= limits.CLOCK_STEP_MS
        if not is_set and now.steady_ms < self._keep_ms:
            return False
        if is_set:
            text = "the clock was set by %+.1f seconds; %s keeps its locks"
            log.warning(text, step_ms / 1000, self._name)
        self._ahead_ms += step_ms
        self._keep_ms = now.steady_ms + limits.CLOCK_KEEP_MS
        self._store.put_setting(_KEPT, f"{now.steady_ms} {now.wall_ms}")
        self._store.cut_locks(now.steady_ms + limits.LOCK_MS_MAX)
        return is_set

    def follow(self, now: Now) -> bool:
        """Go on from the time that a database tells; True if its clock was set."""
        steady_ms, wall_ms = self._clock.now()
        self._shift_ms = now.steady_ms - steady_ms
        self._wall_shift_ms = now.wall_ms - wall_ms
        ahead_ms = now.wall_ms - now.steady_ms
        is_set = abs(ahead_ms - self._ahead_ms) >= limits.CLOCK_STEP_MS
        self._ahead_ms = ahead_ms
        return is_set

    def keep_again(self) -> None:
        """The transaction did not happen."""
        self._keep_ms = -FOREVER_MS


def _resumed(kept: str | None, wall_ms: int) -> int:
    """The steady time at start."""
    if kept is None:
        return wall_ms
    kept_steady_ms, kept_wall_ms = map(int, kept.split())
    return kept_steady_ms + max(wall_ms - kept_wall_ms, 0)
