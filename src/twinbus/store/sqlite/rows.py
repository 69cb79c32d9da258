"""What all parts of the SQLite store share: the transaction and the moves of messages.

Owns the rules that tie rows together, each in one place:

* A message in `returned` is active, unlocked and at or below its container's head.
  Every other ready message is above the head.
* A session's `head` is at or below which none of its messages is ready; it is 0 while
  the session is not locked.
* All unlocked messages expire after `_passed_over_ms`: those before are held by
  receivers and were passed over by `expired`. So they are not looked at repeatedly.
* A receive passes over expired messages, and the heads move past them. No receive has
  seen a wall time after `_seen_wall_ms`: when the clock is set back, those that have
  not expired any more are listed in `returned`.
* A lock with the end `FOREVER_MS` is held as long as its session is, any other until
  its own end.

Knows nothing of the reasons for a move: those are in the modules that build on it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from twinbus.errors import Bug, StoreFault
from twinbus.store.base import (
    FOREVER_MS,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    DiskFault,
    EndedLock,
    Lock,
    State,
    Stored,
)
from twinbus.store.queries import load
from twinbus.store.sqlite.containers import Containers
from twinbus.store.sqlite.file import SqliteFile

_SQL = load("sqlite", "messages", "locks", "sessions")

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Rows")


class Leaving(NamedTuple):
    """A message that goes, as far as the counters need to know it."""

    id: int
    state: int
    session: str | None
    size_bytes: int


class Hold(NamedTuple):
    """A row of `lock` and what is needed of its message."""

    id: int
    nonce: int
    until_ms: int
    state: int
    session: str | None
    size_bytes: int
    deliveries: int
    expires_ms: int | None


def guarded(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R]:
    """Turn every error of the database into a `StoreFault`."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    return call


def json_array(ids: Iterable[int]) -> str:
    """Many ids as one parameter of a query."""
    return f"[{','.join(map(str, ids))}]"


# As `Stored._make`, but without a Python call for each row.
_as_stored: Callable[[Any], Stored] = partial(tuple.__new__, Stored)


def stored(rows: list[Any]) -> list[Stored]:
    """Rows of a query with the columns of `Stored`."""
    return list(map(_as_stored, rows))


class Rows:
    """The transaction, and the moves that several parts of the store need."""

    def __init__(self, file: SqliteFile, new_nonce: Callable[[], int]) -> None:
        self._file = file
        self._new_nonce = new_nonce
        self._containers = Containers()
        self._fault: StoreFault | None = None
        self._attach()

    def _attach(self) -> None:
        """Start from what the file holds."""
        self._connection = self._file.connection
        # One cursor for all statements: each is read to its end before the next.
        cursor = self._connection.cursor()
        self._run = cursor.execute
        self._run_many = cursor.executemany
        self._passed_over_ms = -FOREVER_MS
        self._containers.load(self._connection)
        self._seen_wall_ms = self._containers.last_accessed_ms()
        # What the last was before this transaction set it back.
        self._set_back_from_ms = -FOREVER_MS

    def _failed(self, error: sqlite3.Error) -> StoreFault:
        self._fault = self._file.fault(error)
        return self._fault

    # -- life ------------------------------------------------------------------

    def close(self) -> None:
        self._containers.in_transaction = False
        self._file.close()

    @guarded
    def begin(self) -> None:
        if self._fault is not None:
            raise StoreFault(self._fault.text)
        if self._containers.in_transaction:
            raise Bug("A transaction is open already.")
        self._run("BEGIN IMMEDIATE")
        self._containers.in_transaction = True

    def commit(self) -> None:
        if self._fault is not None:
            raise StoreFault(self._fault.text)
        if not self._containers.in_transaction:
            raise Bug("There is no transaction to commit.")
        try:
            self._file.strike()
            self._containers.write(self._connection)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            fault = self._failed(error)
            self.rollback()
            raise fault from error
        self._containers.in_transaction = False
        self._containers.keep()
        self._set_back_from_ms = -FOREVER_MS

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        in_transaction = self._containers.in_transaction
        self._containers.in_transaction = False
        self._containers.restore()
        self._forget_looks()
        try:
            # After some errors SQLite has rolled back by itself.
            if in_transaction and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._failed(error)

    # These three are hot: they have no wrapper, and the driver keeps their statements.

    def begin_part(self) -> int:
        if not self._containers.in_transaction:
            raise Bug("There is no transaction for a part.")
        try:
            self._run("SAVEPOINT part")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return self._containers.mark()

    def end_part(self) -> None:
        try:
            self._run("RELEASE part")
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def undo_part(self, mark: int) -> None:
        self._containers.restore(mark)
        self._forget_looks()
        try:
            self._run("ROLLBACK TO part")
            self._run("RELEASE part")
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _forget_looks(self) -> None:
        """What was found out about expired messages may have been undone."""
        self._passed_over_ms = -FOREVER_MS
        self._seen_wall_ms = max(self._seen_wall_ms, self._set_back_from_ms)

    def recover(self) -> bool:
        if self._fault is None:
            return True
        self.rollback()
        if not self._file.recoverable:
            return False
        self._fault = self._file.reopen()
        if self._fault is None:
            try:
                self._attach()
            except sqlite3.Error as error:
                self._failed(error)
        return self._fault is None

    def rehearse(self, fault: DiskFault | None) -> None:
        self._file.disk_fault = fault

    # -- locks -----------------------------------------------------------------

    def _holds(self, locks: Sequence[Lock], steady_ms: int) -> list[Hold | None]:
        """What each lock holds; None if it is not held, or was named before.

        Any number may come as an id or a nonce: they are what a client sent.
        """
        ids = json_array([lock.id for lock in locks])
        rows = self._run(_SQL["holds"], (ids,)).fetchall()
        there = {row[0]: row for row in rows}
        sessions: dict[tuple[int, str | None], int | None] = {}
        holds: list[Hold | None] = []
        for message_id, nonce in locks:
            row = there.pop(message_id, None)
            if row is None or row[1] != nonce or row[2] <= steady_ms:
                holds.append(None)
                if row is not None:
                    there[message_id] = row
                continue
            hold = Hold._make(row)
            if hold.until_ms == FOREVER_MS:
                key = (message_id >> SEQUENCE_BITS, hold.session)
                if key not in sessions:
                    sessions[key] = self._holder(*key, steady_ms)
                if sessions[key] != nonce:
                    holds.append(None)
                    continue
            holds.append(hold)
        return holds

    def _holder(
        self, container: int, session: str | None, steady_ms: int
    ) -> int | None:
        """The nonce of a session's lock, if it is locked now."""
        row = self._run(_SQL["session"], (container, session)).fetchone()
        if row is None or row[0] is None or row[1] <= steady_ms:
            return None
        nonce: int = row[0]
        return nonce

    # -- moves -----------------------------------------------------------------

    def _give_back(self, holds: Sequence[Hold], count: bool) -> list[EndedLock]:
        """Unlock messages; active ones are ready again."""
        if not holds:
            return []
        ids = json_array([hold.id for hold in holds])
        self._run(_SQL["delete_locks"], (ids,))
        if count:
            self._run(_SQL["count_deliveries"], (ids,))
        active = [hold for hold in holds if hold.state == State.ACTIVE]
        self._list([hold.id for hold in active])
        self._lower_session_heads(active)
        for hold in holds:
            self._note_expiry(hold.expires_ms)
        more = 1 if count else 0
        return [
            EndedLock(hold.id, hold.deliveries + more, hold.session) for hold in holds
        ]

    def _lower_session_heads(self, holds: Sequence[Hold | Leaving]) -> None:
        first: dict[tuple[int, str], int] = {}
        for hold in holds:
            if hold.session is not None:
                key = (hold.id >> SEQUENCE_BITS, hold.session)
                sequence = hold.id & SEQUENCE_MASK
                first[key] = min(first.get(key, sequence), sequence)
        for key, sequence in first.items():
            self._run(_SQL["lower_session_head"], (sequence - 1, *key))

    def _note_expiry(self, expires_ms: int | None) -> None:
        """An unlocked message expires then."""
        if expires_ms is not None and expires_ms <= self._passed_over_ms:
            self._passed_over_ms = expires_ms - 1

    def _see(self, wall_ms: int) -> None:
        """A receive looks at the ready messages by this time."""
        if wall_ms < self._seen_wall_ms:
            times = (wall_ms, self._seen_wall_ms)
            rows = self._run(_SQL["passed_over"], times).fetchall()
            messages = [Leaving._make(row) for row in rows]
            # Some may be listed already.
            self._unlist(message.id for message in messages)
            self._list(message.id for message in messages)
            self._lower_session_heads(messages)
            self._set_back_from_ms = max(self._set_back_from_ms, self._seen_wall_ms)
        self._seen_wall_ms = wall_ms

    def _list(self, ids: Iterable[int]) -> None:
        """Messages are ready again; above the head, none is listed."""
        heads = self._containers.change
        listed = [
            key
            for key in ids
            if key & SEQUENCE_MASK <= heads(key >> SEQUENCE_BITS).head
        ]
        if listed:
            self._run(_SQL["insert_returned"], (json_array(listed),))

    def _discount(self, leaving: Iterable[Leaving | Hold]) -> None:
        """Take messages that go, or go aside, out of the counters."""
        sessions: dict[tuple[int, str], list[int]] = {}
        for message in leaving:
            container = self._containers.change(message.id >> SEQUENCE_BITS)
            container.size_bytes -= message.size_bytes
            active = 0
            if message.state == State.ACTIVE:
                container.active -= 1
                active = 1
            elif message.state == State.DEFERRED:
                container.deferred -= 1
            else:
                container.scheduled -= 1
            if message.session is not None:
                key = (container.id, message.session)
                counters = sessions.setdefault(key, [0, 0])
                counters[0] += active
                counters[1] += 1
        for key, (active, messages) in sessions.items():
            self._run(_SQL["lower_session"], (active, messages, *key))
            self._run(_SQL["drop_session"], key)

    def _forget(self, leaving: Sequence[Leaving | Hold]) -> None:
        """Delete the rows of active and deferred messages, and count them out."""
        if leaving:
            ids = json_array([message.id for message in leaving])
            self._run(_SQL["delete_messages"], (ids,))
            self._discount(leaving)

    def _unlist(self, ids: Iterable[int]) -> None:
        """Messages that were ready are so no longer; above the head, none is listed."""
        heads = self._containers.get
        listed = [
            key
            for key in ids
            if key & SEQUENCE_MASK <= heads(key >> SEQUENCE_BITS).head
        ]
        if listed:
            self._run(_SQL["delete_returned"], (json_array(listed),))
