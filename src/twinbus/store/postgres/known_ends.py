"""When the next lock, session, message or schedule ends, without a query.

Owns a time before which nothing ends that this node has made since its last look. Every
turn asks for it, and a query would be a round trip, over entries of an index that are
dead: each lock that was given back leaves one, for as long as a transaction elsewhere
lets PostgreSQL remove no rows. Rule: the time is never too late. It is too early where
a lock was given back, and then a turn looks in vain.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.clock import Now
from twinbus.store.base import (
    FOREVER_MS,
    EndedLock,
    Lock,
    Record,
    SessionGrant,
    Stored,
)
from twinbus.store.tables.messages import Messages
from twinbus.store.tables.rows import guarded
from twinbus.store.tables.sessions import Sessions
from twinbus.store.tables.times import Times


class KnownEnds(Messages, Sessions, Times):
    """Notes the ends of what is added, and answers from that."""

    # Not known before the first look.
    _is_known = False
    # Nothing ends before these, by the steady clock and by the wall clock.
    _steady_end_ms = FOREVER_MS
    _wall_end_ms = FOREVER_MS
    # No lock ends at or before this time: those that did were given back.
    _swept_ms = -FOREVER_MS

    @guarded
    def next_wait_ms(self, now: Now) -> int | None:
        at = {
            "after_ms": self._passed_over_ms,
            "steady_ms": now.steady_ms,
            "wall_ms": now.wall_ms,
            "swept_ms": self._swept_ms,
        }
        waits = self._run(self._sql["next_waits"], at).fetchone()
        ends = [FOREVER_MS if wait is None else wait for wait in waits]
        self._is_known = True
        self._steady_end_ms = now.steady_ms + min(ends[:2])
        self._wall_end_ms = now.wall_ms + min(ends[2:])
        return min((wait for wait in waits if wait is not None), default=None)

    def known_wait_ms(self, now: Now) -> int | None:
        if not self._is_known:
            return self.next_wait_ms(now)
        steady_ms = self._steady_end_ms - now.steady_ms
        wait_ms = min(steady_ms, self._wall_end_ms - now.wall_ms)
        return None if wait_ms >= FOREVER_MS >> 1 else wait_ms

    def _note_end(self, until_ms: int) -> None:
        self._steady_end_ms = min(self._steady_end_ms, until_ms)
        self._swept_ms = min(self._swept_ms, until_ms - 1)

    def _note_expiry(self, expires_ms: int | None) -> None:
        super()._note_expiry(expires_ms)
        if expires_ms is not None:
            self._wall_end_ms = min(self._wall_end_ms, expires_ms)

    def _forget_looks(self) -> None:
        super()._forget_looks()
        self._swept_ms = -FOREVER_MS

    # -- what has an end -------------------------------------------------------

    def append(self, container: int, records: Sequence[Record], now: Now) -> int:
        for record in records:
            if record.due_ms is not None:
                self._wall_end_ms = min(self._wall_end_ms, record.due_ms)
        return super().append(container, records, now)

    def lock(
        self,
        container: int,
        limit: int,
        until_ms: int,
        now: Now,
        session: SessionGrant | None = None,
    ) -> tuple[int, list[Stored]]:
        self._note_end(until_ms)
        return super().lock(container, limit, until_ms, now, session)

    def lock_deferred(self, ids: Sequence[int], until_ms: int, now: Now) -> int:
        self._note_end(until_ms)
        return super().lock_deferred(ids, until_ms, now)

    def renew(self, lock: Lock, until_ms: int, now: Now) -> bool:
        self._note_end(until_ms)
        return super().renew(lock, until_ms, now)

    def cut_locks(self, until_ms: int) -> None:
        self._note_end(until_ms)
        super().cut_locks(until_ms)

    def accept_session(
        self, container: int, name: str | None, until_ms: int, now: Now
    ) -> SessionGrant | None:
        self._note_end(until_ms)
        return super().accept_session(container, name, until_ms, now)

    def renew_session(
        self, container: int, session: SessionGrant, until_ms: int, now: Now
    ) -> bool:
        self._note_end(until_ms)
        return super().renew_session(container, session, until_ms, now)

    # -- what has ended --------------------------------------------------------

    @guarded
    def end_locks(self, now: Now, limit: int) -> list[EndedLock]:
        at = (self._swept_ms, now.steady_ms, limit)
        ended = self._end_found(self._sql["holds_ended"], at)
        if len(ended) < limit:
            self._swept_ms = max(self._swept_ms, now.steady_ms)
        return ended
