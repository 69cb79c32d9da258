"""What time does to the messages of the SQLite store.

Owns the methods of the contract that look for what has ended. Each finds it by an
index, in order of its time, and no more than `limit` at once. Knows no clock.
"""

from __future__ import annotations

from twinbus.store.base import EndedLock, Stored
from twinbus.store.queries import load
from twinbus.store.sqlite.rows import Hold, Rows, guarded, stored

_SQL = load("sqlite", "times", "locks", "entities")


class Times(Rows):
    """The part of the store that looks at times."""

    @guarded
    def end_locks(self, now_ms: int, limit: int) -> list[EndedLock]:
        rows = self._run(_SQL["holds_ended"], (now_ms, limit)).fetchall()
        return self._give_back([Hold._make(row) for row in rows], count=True)

    @guarded
    def expired(self, now_ms: int, limit: int) -> list[Stored]:
        at = {"after_ms": self._passed_over_ms, "now_ms": now_ms, "limit": limit}
        messages = stored(self._run(_SQL["expired"], at).fetchall())
        if not messages and limit > 0:
            # What is left up to now is held; it is noted again when it is given back.
            self._passed_over_ms = max(self._passed_over_ms, now_ms)
        return messages

    @guarded
    def due(self, now_ms: int, limit: int) -> list[Stored]:
        return stored(self._run(_SQL["due"], (now_ms, limit)).fetchall())

    @guarded
    def forget_duplicates(self, now_ms: int) -> None:
        self._run(_SQL["forget_duplicates"], (now_ms,))

    @guarded
    def next_time_ms(self) -> int | None:
        at = {"after_ms": self._passed_over_ms}
        times = self._run(_SQL["next_times"], at).fetchone()
        return min((time for time in times if time is not None), default=None)
