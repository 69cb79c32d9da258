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
* A row that cannot be read keeps no other from being read. Text that is not UTF-8 fails
  a whole query: such a row is moved to `quarantine`, as it is, and the query is asked
  again. A query that succeeds pays nothing for it.

Knows nothing of the reasons for a move: those are in the modules that build on it.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from twinbus import limits
from twinbus.errors import Bug, StoreFault, TwinbusError
from twinbus.store.base import (
    FOREVER_MS,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    DiskFault,
    EndedLock,
    Lock,
    State,
    Stored,
    is_sub_queue,
)
from twinbus.store.queries import load
from twinbus.store.sqlite.containers import Containers
from twinbus.store.sqlite.file import LostTurn, SqliteFile
from twinbus.store.sqlite.old_values import OldValues
from twinbus.store.sqlite.outbox_counters import OutboxCounters

log = logging.getLogger("twinbus.store")

_SQL = load("sqlite", "messages", "locks", "sessions", "quarantine", "entities")
# The setting with the token of the last commit.
_TOKEN = "turn"  # noqa: S105

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


# Where rows have text.
STORED_TEXTS = (Stored._fields.index("session"), Stored._fields.index("source"))
HOLD_TEXTS = (Hold._fields.index("session"),)
LEAVING_TEXTS = (Leaving._fields.index("session"),)


def guarded(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R]:
    """Turn every error of the database into one of ours (`Rows._failed`)."""

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


def _is_undecodable(error: sqlite3.Error) -> bool:
    """Whether the driver cannot read a text: what SQLite itself says has a code."""
    is_operational = isinstance(error, sqlite3.OperationalError)
    return is_operational and not hasattr(error, "sqlite_errorcode")


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


class Rows:
    """The transaction, and the moves that several parts of the store need."""

    # Called now and then while a statement takes long.
    _on_progress: Callable[[], None] | None = None

    def __init__(self, file: SqliteFile, new_nonce: Callable[[], int]) -> None:
        self._file = file
        self._new_nonce = new_nonce
        # The token of the last commit that has returned; None if none are kept.
        self._acknowledged: int | None = None
        # How many rows the connection had changed when the transaction began.
        self._changes = 0
        self._old = OldValues()
        self._containers = Containers(self._old)
        self._outbox = OutboxCounters(self._old)
        self._fault: StoreFault | None = None
        self._attach()

    def _attach(self) -> None:
        """Start from what the file holds."""
        self._connection = self._file.connection
        self.on_progress(self._on_progress)
        # One cursor for all statements: each is read to its end before the next.
        self._cursor = self._connection.cursor()
        self._run = self._cursor.execute
        self._run_many = self._cursor.executemany
        self._passed_over_ms = -FOREVER_MS
        self._old.keep()
        self._containers.load(self._connection)
        self._outbox.load(self._connection)
        self._seen_wall_ms = self._containers.last_accessed_ms()
        # What the last was before this transaction set it back.
        self._set_back_from_ms = -FOREVER_MS
        # How many messages are in quarantine, and whether that must be counted again.
        self._quarantined = 0
        self._quarantine_changed = False
        self._count_quarantined()

    def _failed(self, error: sqlite3.Error) -> TwinbusError:
        """What an error means: the store stops, or a row is not as it should be."""
        if isinstance(error, sqlite3.IntegrityError) or _is_undecodable(error):
            # The statement did nothing, and the database is well.
            return Bug(f"A row of {self._file.where} is damaged ({error}).")
        return self._stop(error)

    def _stop(self, error: sqlite3.Error) -> StoreFault:
        if self._fault is None:
            # Clients read the text of the fault; the path is for the operator alone.
            log.error("%s failed: %s", self._file.path, error)
        self._fault = self._file.fault(error)
        return self._fault

    # -- life ------------------------------------------------------------------

    def on_progress(self, call: Callable[[], None] | None) -> None:
        self._on_progress = call
        self._connection.set_progress_handler(call, limits.SQLITE_PROGRESS_STEPS)

    def close(self) -> None:
        self._old.in_transaction = False
        self._file.close()

    @guarded
    def begin(self) -> None:
        if self._fault is not None:
            raise StoreFault(self._fault.text)
        if self._old.in_transaction:
            raise Bug("A transaction is open already.")
        self._run("BEGIN IMMEDIATE")
        self._old.in_transaction = True
        self._changes = self._connection.total_changes

    def commit(self) -> None:
        if self._fault is not None:
            raise StoreFault(self._fault.text)
        if not self._old.in_transaction:
            raise Bug("There is no transaction to commit.")
        try:
            self._file.strike()
            self._containers.write(self._connection)
            self._outbox.write(self._connection)
            if self._quarantine_changed:
                self._count_quarantined()
            token = self._acknowledged
            if token is not None and self._connection.total_changes != self._changes:
                token += 1
                self._connection.execute(_SQL["put_setting"], (_TOKEN, str(token)))
            self._connection.execute("COMMIT")
            self._acknowledged = token
        except sqlite3.Error as error:
            fault = self._stop(error)
            self.rollback()
            raise fault from error
        self._old.in_transaction = False
        self._old.keep()
        self._set_back_from_ms = -FOREVER_MS
        self._file.look()

    def is_nearly_full(self) -> bool:
        return self._file.is_nearly_full

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        in_transaction = self._old.in_transaction
        self._old.in_transaction = False
        self._old.restore()
        self._forget_looks()
        try:
            # After some errors SQLite has rolled back by itself.
            if in_transaction and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._stop(error)

    # These three are hot: they have no wrapper, and the driver keeps their statements.

    def begin_part(self) -> int:
        if not self._old.in_transaction:
            raise Bug("There is no transaction for a part.")
        try:
            self._run("SAVEPOINT part")
        except sqlite3.Error as error:
            raise self._stop(error) from error
        return self._old.mark()

    def end_part(self) -> None:
        try:
            self._run("RELEASE part")
        except sqlite3.Error as error:
            raise self._stop(error) from error

    def undo_part(self, mark: int) -> None:
        self._old.restore(mark)
        self._forget_looks()
        try:
            self._run("ROLLBACK TO part")
            self._run("RELEASE part")
        except sqlite3.Error as error:
            raise self._stop(error) from error

    def _forget_looks(self) -> None:
        """What was found out about expired messages may have been undone."""
        self._passed_over_ms = -FOREVER_MS
        self._seen_wall_ms = max(self._seen_wall_ms, self._set_back_from_ms)

    def _count_quarantined(self) -> None:
        (self._quarantined,) = self._run(_SQL["quarantined"]).fetchone()
        self._quarantine_changed = False

    def recover(self) -> bool:
        if self._fault is None:
            return True
        self.rollback()
        if not self._file.recoverable and self._acknowledged is None:
            return False
        # With a statement left the connection would stay open, and a new one would
        # share its memory of the log instead of reading the log from the disk.
        with contextlib.suppress(sqlite3.ProgrammingError):
            self._cursor.close()
        fault = self._file.reopen()
        if fault is None:
            try:
                self._attach()
                self._prove()
            except sqlite3.Error as error:
                fault = self._file.fault(error)
        if fault is not None and fault.text != self._fault.text:
            log.error("%s: %s", self._file.path, fault.text)
        self._fault = fault
        return fault is None

    def keep_tokens(self) -> None:
        if self._acknowledged is None:
            self._acknowledged = self._token()

    def _token(self) -> int:
        """The token of the last commit that the database has."""
        row = self._connection.execute(_SQL["setting"], (_TOKEN,)).fetchone()
        return 0 if row is None else int(row[0])

    def _prove(self) -> None:
        """The database was opened anew, from the disk: it must have what was said."""
        if self._acknowledged is None:
            return
        found = self._token()
        if found < self._acknowledged:
            lost = f"turn {self._acknowledged} was acknowledged, {found} is the last"
            raise LostTurn(lost)
        self._acknowledged = found

    def rehearse(self, fault: DiskFault | None) -> None:
        self._file.disk_fault = fault

    # -- reading ---------------------------------------------------------------

    def _stored(self, query: str, at: Any) -> list[Stored]:
        """The rows of a query with the columns of `Stored`."""
        return list(map(_as_stored, self._fetch(query, at, STORED_TEXTS)))

    def _fetch(self, query: str, at: Any, texts: Sequence[int]) -> list[Any]:
        """The rows of a query whose first column is the id of a message."""
        while True:
            try:
                return self._run(query, at).fetchall()
            except sqlite3.OperationalError as error:
                if not _is_undecodable(error):
                    raise
                unreadable = self._unreadable(query, at, texts)
                if not unreadable:
                    raise
                for key in unreadable:
                    self.quarantine(key, str(error))

    def _unreadable(self, query: str, at: Any, texts: Sequence[int]) -> list[int]:
        """The ids of rows with a text that is none."""
        self._connection.text_factory = bytes
        try:
            rows = self._run(query, at).fetchall()
        finally:
            self._connection.text_factory = str
        return [row[0] for row in rows if not all(_is_text(row[at]) for at in texts)]

    @guarded
    def quarantine(self, id: int, reason: str) -> None:
        for query in ("quarantine_message", "quarantine_scheduled"):
            self._run(_SQL[query], (reason, id))
        row = self._run(_SQL["quarantined_counters"], (id,)).fetchone()
        if row is None or not self._containers.has(id >> SEQUENCE_BITS):
            return
        self._quarantine_changed = True
        state, size_bytes, in_session = row
        container = self._containers.change(id >> SEQUENCE_BITS)
        array = json_array([id])
        for query in ("messages", "scheduled", "locks", "returned"):
            self._run(_SQL[f"delete_{query}"], (array,))
        self._discount([Leaving(id, state, None, size_bytes)])
        if in_session:
            self._leave_session(container.id, id, state == State.ACTIVE)

    def _leave_session(self, container: int, id: int, is_active: bool) -> None:
        """Take a message in quarantine out of the counters of its session."""
        fewer = (int(is_active), container, id)
        if self._run(_SQL["lower_quarantined_session"], fewer).rowcount == 0:
            # The name is damaged: it is unknown which session has a message less.
            first = container << SEQUENCE_BITS
            ids = {"first": first, "last": first | SEQUENCE_MASK}
            self._run(_SQL["recount_sessions"], {**ids, "container": container})
        self._run(_SQL["drop_empty_sessions"], (container,))

    def quarantined(self) -> int:
        return self._quarantined

    # -- locks -----------------------------------------------------------------

    def _holds(self, locks: Sequence[Lock], steady_ms: int) -> list[Hold | None]:
        """What each lock holds; None if it is not held, or was named before.

        Any number may come as an id or a nonce: they are what a client sent.
        """
        ids = json_array([lock.id for lock in locks])
        rows = self._fetch(_SQL["holds"], (ids,), HOLD_TEXTS)
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

    def _locked(self, ids: Sequence[int]) -> list[Hold]:
        """The lock rows of these messages, held or not."""
        rows = self._fetch(_SQL["holds"], (json_array(ids),), HOLD_TEXTS)
        return [Hold._make(row) for row in rows]

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
        counted = [
            hold.id
            for hold in holds
            if count and not is_sub_queue(hold.id >> SEQUENCE_BITS)
        ]
        if counted:
            self._run(_SQL["count_deliveries"], (json_array(counted),))
        active = [hold for hold in holds if hold.state == State.ACTIVE]
        self._list([hold.id for hold in active])
        self._lower_session_heads(active)
        for hold in holds:
            self._note_expiry(hold.expires_ms)
        more = set(counted)
        return [
            EndedLock(hold.id, hold.deliveries + (hold.id in more), hold.session)
            for hold in holds
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
            rows = self._fetch(_SQL["passed_over"], times, LEAVING_TEXTS)
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
            self._containers.stored_bytes -= message.size_bytes
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
