"""Locks that have ended and were given back are not looked at again.

Owns a time up to which none is left. Each lock that was given back leaves an entry in
the index of their ends, for as long as a transaction elsewhere lets PostgreSQL remove
no rows, and a look from the beginning would pass all of them.
"""

from __future__ import annotations

from twinbus.clock import Now
from twinbus.store.base import FOREVER_MS, EndedLock
from twinbus.store.tables.known_ends import KnownEnds
from twinbus.store.tables.rows import guarded


class SweptLocks(KnownEnds):
    """Looks for ended locks from the last one on."""

    # No lock ends at or before this time: those that did were given back.
    _swept_ms = -FOREVER_MS

    def _looked_at(self, now: Now) -> dict[str, int]:
        return {**super()._looked_at(now), "swept_ms": self._swept_ms}

    def _note_end(self, until_ms: int) -> None:
        super()._note_end(until_ms)
        self._swept_ms = min(self._swept_ms, until_ms - 1)

    def _forget_looks(self) -> None:
        super()._forget_looks()
        self._swept_ms = -FOREVER_MS

    @guarded
    def end_locks(self, now: Now, limit: int) -> list[EndedLock]:
        at = (self._swept_ms, now.steady_ms, limit)
        ended = self._end_found(self._sql["holds_ended"], at)
        if len(ended) < limit:
            self._swept_ms = max(self._swept_ms, now.steady_ms)
        return ended
