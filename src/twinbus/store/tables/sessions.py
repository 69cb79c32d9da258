"""Sessions of a store: who holds one, and what it remembers.

Owns the methods of the contract that name sessions. A session has a row while it has
messages or a lock; its state is a row of its own. Rule: one holder at a time, and when
its lock ends all its messages are ready again in their order.
Knows nothing of links or receivers: a holder is a nonce.
"""

from __future__ import annotations

from twinbus.clock import Now
from twinbus.store.base import EndedLock, SessionEnded, SessionGrant
from twinbus.store.tables.rows import HOLD_TEXTS, Hold, Rows, guarded


class Sessions(Rows):
    """The part of the store that keeps sessions."""

    @guarded
    def accept_session(
        self, container: int, name: str | None, until_ms: int, now: Now
    ) -> SessionGrant | None:
        steady_ms = now.steady_ms
        counters = self._containers.change(container)
        if name is None:
            name = self._waiting(container, steady_ms)
            if name is None:
                return None
        elif self._holder(container, name, steady_ms) is not None:
            return None
        # Its last lock may have ended without having been given back.
        self._end(container, name, steady_ms, count=True)
        nonce = self._new_nonce()
        row = (container, name, steady_ms, nonce, until_ms)
        self._run(self._sql["lock_session"], row)
        counters.held_sessions += 1
        return SessionGrant(name, nonce, until_ms)

    def _waiting(self, container: int, steady_ms: int) -> str | None:
        """The session that has waited longest for a holder."""
        waiting = self._run(self._sql["waiting_session"], (container,)).fetchall()
        waiting += self._run(
            self._sql["ended_session"], (steady_ms, container)
        ).fetchall()
        return min(waiting)[1] if waiting else None

    @guarded
    def renew_session(
        self, container: int, session: SessionGrant, until_ms: int, now: Now
    ) -> bool:
        if self._holder(container, session.name, now.steady_ms) != session.nonce:
            return False
        self._containers.change(container)
        self._run(self._sql["renew_session"], (until_ms, container, session.name))
        return True

    @guarded
    def session_held(self, container: int, session: SessionGrant, now: Now) -> bool:
        return self._holder(container, session.name, now.steady_ms) == session.nonce

    @guarded
    def release_session(
        self, container: int, session: SessionGrant, now: Now, count: bool
    ) -> list[EndedLock]:
        row = self._run(self._sql["session"], (container, session.name)).fetchone()
        if row is None or row[0] != session.nonce:
            return []
        return self._end(container, session.name, now.steady_ms, count)

    def _end(
        self, container: int, name: str, steady_ms: int, count: bool
    ) -> list[EndedLock]:
        """End the lock of a session, if it has one."""
        row = self._run(self._sql["session"], (container, name)).fetchone()
        if row is None or row[0] is None:
            return []
        rows = self._fetch(self._sql["holds_of_session"], (row[0],), HOLD_TEXTS)
        ended = self._give_back([Hold._make(row) for row in rows], count)
        self._run(self._sql["unlock_session"], (steady_ms, container, name))
        self._run(self._sql["drop_session"], (container, name))
        self._containers.change(container).held_sessions -= 1
        return ended

    @guarded
    def end_session_locks(self, container: int, now: Now) -> None:
        for (name,) in self._run(self._sql["held_sessions"], (container,)).fetchall():
            self._end(container, name, now.steady_ms, count=False)

    @guarded
    def end_sessions(self, now: Now, limit: int) -> list[SessionEnded]:
        steady_ms = now.steady_ms
        rows = self._run(self._sql["sessions_ended"], (steady_ms, limit)).fetchall()
        return [
            SessionEnded(key, name, nonce, self._end(key, name, steady_ms, count=True))
            for key, name, nonce in rows
        ]

    @guarded
    def session_state(self, container: int, name: str) -> bytes | None:
        row = self._run(self._sql["session_state"], (container, name)).fetchone()
        return None if row is None else bytes(row[0])

    @guarded
    def put_session_state(
        self, container: int, name: str, state: bytes | None, now: Now
    ) -> None:
        self._containers.change(container)
        if state is None:
            self._run(self._sql["delete_session_state"], (container, name))
        else:
            row = (container, name, now.wall_ms, state)
            self._run(self._sql["put_session_state"], row)

    @guarded
    def sessions(
        self, container: int, updated_after_ms: int | None, skip: int, top: int
    ) -> list[str]:
        at = {
            "container": container,
            "after_ms": updated_after_ms,
            "skip": max(skip, 0),
            "top": max(top, 0),
        }
        if updated_after_ms is None:
            rows = self._run(self._sql["session_names"], at).fetchall()
        else:
            rows = self._run(self._sql["session_names_updated"], at).fetchall()
        return [row[0] for row in rows]
