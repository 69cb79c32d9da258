"""When the next lock, session, message or schedule ends, without a query.

Owns a time before which nothing ends that this process has made since its last look.
Every turn asks for it, and a query would be a sixth of a small one. Rule: the time is
never too late. It is too early where a lock was given back, and then a turn looks in
vain.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.clock import Now
from twinbus.store.base import (
    FOREVER_MS,
    Lock,
    SessionGrant,
)
from twinbus.store.received import ReceivedMessages
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

    @guarded
    def next_wait_ms(self, now: Now) -> int | None:
        waits = self._run(self._sql["next_waits"], self._looked_at(now)).fetchone()
        ends = [FOREVER_MS if wait is None else wait for wait in waits]
        self._is_known = True
        self._steady_end_ms = now.steady_ms + min(ends[:2])
        self._wall_end_ms = now.wall_ms + min(ends[2:])
        return min((wait for wait in waits if wait is not None), default=None)

    def _looked_at(self, now: Now) -> dict[str, int]:
        """What the query for the next ends is given."""
        return {
            "after_ms": self._passed_over_ms,
            "steady_ms": now.steady_ms,
            "wall_ms": now.wall_ms,
        }

    def known_wait_ms(self, now: Now) -> int | None:
        if not self._is_known:
            return self.next_wait_ms(now)
        steady_ms = self._steady_end_ms - now.steady_ms
        wait_ms = min(steady_ms, self._wall_end_ms - now.wall_ms)
        return None if wait_ms >= FOREVER_MS >> 1 else wait_ms

    def _note_end(self, until_ms: int) -> None:
        self._steady_end_ms = min(self._steady_end_ms, until_ms)

    def _note_expiry(self, expires_ms: int | None) -> None:
        super()._note_expiry(expires_ms)
        if expires_ms is not None:
            self._wall_end_ms = min(self._wall_end_ms, expires_ms)

    def _forget_looks(self) -> None:
        super()._forget_looks()
        # What the last look did not find any more may be there again.
        self._is_known = False

    # -- what has an end -------------------------------------------------------

    def _note_due(self, due_ms: int) -> None:
        self._wall_end_ms = min(self._wall_end_ms, due_ms)

    def lock(
        self,
        container: int,
        limit: int,
        until_ms: int,
        now: Now,
        session: SessionGrant | None = None,
    ) -> tuple[int, ReceivedMessages]:
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
