"""What time does to the messages of a store.

Owns the methods of the contract that look for what has ended. Each finds it by an
index, in order of its time, and no more than `limit` at once. Knows no clock.
"""

from __future__ import annotations

from twinbus.clock import Now
from twinbus.store.base import (
    POSTPONED,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    EndedLock,
    Stored,
)
from twinbus.store.tables.rows import HOLD_TEXTS, Hold, Rows, guarded


class Times(Rows):
    """The part of the store that looks at times."""

    @guarded
    def end_locks(self, now: Now, limit: int) -> list[EndedLock]:
        return self._end_found(self._sql["holds_ended"], (now.steady_ms, limit))

    def _end_found(self, query: str, at: tuple[int, ...]) -> list[EndedLock]:
        rows = self._fetch(query, at, HOLD_TEXTS)
        return self._give_back([Hold._make(row) for row in rows], count=True)

    @guarded
    def ended_locks(self, now: Now, limit: int) -> list[int]:
        rows = self._run(self._sql["ids_ended"], (now.steady_ms, limit)).fetchall()
        return [row[0] for row in rows]

    @guarded
    def end_lock(self, id: int) -> list[EndedLock]:
        return self._give_back(self._locked([id]), count=True)

    @guarded
    def expired(self, now: Now, limit: int) -> list[Stored]:
        wall_ms = now.wall_ms
        at = {"after_ms": self._passed_over_ms, "now_ms": wall_ms, "limit": limit}
        messages = self._stored(self._sql["expired"], at)
        if not messages and limit > 0:
            # What is left up to now is held; it is noted again when it is given back.
            self._passed_over_ms = max(self._passed_over_ms, wall_ms)
        return messages

    @guarded
    def due(self, now: Now, limit: int) -> list[Stored]:
        return self._stored(self._sql["due"], (POSTPONED, now.wall_ms, limit))

    @guarded
    def postponed(self, after_id: int, limit: int, bytes_max: int) -> list[Stored]:
        sizes = self._run(self._sql["postponed_sizes"], (POSTPONED, after_id, limit))
        last_id = after_id
        for key, size_bytes in sizes.fetchall():
            bytes_max -= size_bytes
            is_first = last_id == after_id
            if not is_first and (bytes_max < 0 or key ^ last_id > SEQUENCE_MASK):
                break
            last_id = key
        if last_id == after_id:
            return []
        return self._stored(self._sql["postponed"], (POSTPONED, after_id, last_id))

    @guarded
    def is_postponing(self, container: int) -> bool:
        ids = (container << SEQUENCE_BITS, (container + 1) << SEQUENCE_BITS)
        found = self._run(self._sql["is_postponing"], (POSTPONED, *ids)).fetchone()
        return found is not None

    @guarded
    def forget_duplicates(self, now: Now, limit: int) -> int:
        return self._changes(self._sql["forget_duplicates"], (now.steady_ms, limit))

    @guarded
    def cut_locks(self, until_ms: int) -> None:
        for query in ("cut_locks", "cut_session_locks"):
            self._run(self._sql[query], {"until_ms": until_ms})
