"""A turn in PostgreSQL: the lock, the statements, the parts, the commit.

Owns the transaction on the connection of a shard (`pipe.py`). Statements are
pipelined: one without an answer costs no round trip, and a turn that only sends has
two, of which the first has the lock and the second the commit. Rules:

* Rows that are inserted are collected, and sent before the next statement, which may
  have to see them. A part of the transaction gets a savepoint when its first statement
  is sent; until then it is undone in memory.
* After an error of the database the turn is lost as a whole, and the connection is
  given up. If a value was the reason, the next turns are *careful*: each statement is
  answered before the next, so that the command that fails does so alone.
* A commit whose answer is lost has happened if the log of turns has its token. If that
  cannot be found out in time the turn counts as failed: nothing of it is handed out.

Knows nothing of what rows mean: see `tables/rows.py`.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import psycopg

from twinbus import limits
from twinbus.clock import Now
from twinbus.errors import Bug, InvalidField, StoreFault, TwinbusError
from twinbus.store.base import FOREVER_MS, DiskFault
from twinbus.store.nodes import News
from twinbus.store.postgres.arrays import Integers, columns
from twinbus.store.postgres.database import Connection, Database
from twinbus.store.postgres.pipe import Pipe
from twinbus.store.postgres.turn_log import LoggedTurn, TurnLog, write_body
from twinbus.store.postgres.watcher import Watcher
from twinbus.store.queries import load
from twinbus.store.tables.rows import SEEN, TOPICS, Rows, guarded

log = logging.getLogger("twinbus.store")

_FAULT = (
    "The database of the namespace has failed or does not answer. Nothing of this was "
    "accepted. The server goes on by itself when the database is well."
)
_SQL = load("postgres", *TOPICS, "turns")
# Statements that change what nodes keep in memory of entities and settings.
_DIRECTORY = frozenset(
    _SQL[name]
    for name in (
        "insert_entity",
        "update_entity",
        "delete_entity",
        "retire_entity",
        "put_setting",
        "mirror",
        "unmirror",
    )
)


class _Saved:
    """A part of the transaction, and whether it can be undone in the database."""

    __slots__ = ("is_saved", "mark")

    def __init__(self, mark: int) -> None:
        # How many inserts were collected when it began.
        self.mark = mark
        # Whether it has a savepoint.
        self.is_saved = False


class PostgresTransaction(Rows):
    """The transaction of a shard."""

    is_remote = True
    _driver_error = psycopg.Error
    _sql = _SQL

    def __init__(
        self, database: Database, connection: Connection, new_nonce: Callable[[], int]
    ) -> None:
        super().__init__(new_nonce)
        self._database = database
        self._pipe = Pipe(database, connection)
        # The connection over which the log was read.
        self._read_over = 0
        self._log = TurnLog(self._containers, self._outbox)
        self._fault: StoreFault | None = None
        self._disk_fault: DiskFault | None = None
        # The time of the transaction, by the clock of the database.
        self._now = Now.at(0)
        # Inserts that were not sent yet, each a statement with its rows.
        self._collected: list[tuple[str, Sequence[tuple[object, ...]]]] = []
        self._parts: list[_Saved] = []
        # Whether a statement has changed rows, and whether of the directory.
        self._wrote = False
        self._wrote_directory = False
        # The transaction was broken by an error, and only its end is possible.
        self._is_lost = False
        # So many turns are careful.
        self._careful_turns = 0
        # This node, in the tokens of its turns.
        self._node = secrets.randbits(31)
        # What the turn in hand leaves for other nodes.
        self._news = News()
        self._watcher: Watcher | None = None
        # What an operator is told.
        self._durability = database.durability(connection)
        # Whether another node has changed entities or settings since that was asked.
        self._changed_elsewhere = False
        self.begin()
        self.rollback()

    # -- errors ----------------------------------------------------------------

    def _failed(self, error: psycopg.Error) -> TwinbusError:
        if isinstance(error, psycopg.DataError) and error.sqlstate is None:
            # The driver did not send it.
            return InvalidField(f"A value cannot be kept in the database ({error}).")
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return self._stop(error)
        if self._careful_turns:
            # The part that it happened in is undone.
            return Bug(f"The database refuses a statement ({error}).")
        self._careful_turns = limits.PG_CAREFUL_TURNS
        self._is_lost = True
        return Bug(f"The database refuses a statement of the turn ({error}).")

    def _stop(self, error: psycopg.Error) -> StoreFault:
        if self._fault is None:
            log.error("%s failed: %s", self._database.where, error)
        self._is_lost = True
        self._fault = StoreFault(_FAULT)
        return self._fault

    # -- life ------------------------------------------------------------------

    def on_progress(self, call: Callable[[], None] | None) -> None:
        """A statement runs in the database, and does not report."""

    def close(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()
        self._old.in_transaction = False
        self._pipe.drop()

    def begin(self) -> None:
        if self._fault is not None:
            raise StoreFault(self._fault.text)
        if self._old.in_transaction:
            raise Bug("A transaction is open already.")
        deadline = time.monotonic() + limits.PG_AWAY_SECONDS
        while True:
            try:
                self._pipe.connect(deadline - time.monotonic())
                self._open_turn()
                return
            except psycopg.Error as error:
                self._pipe.drop()
                is_taken = isinstance(error, psycopg.errors.LockNotAvailable)
                if is_taken and self._end_stuck_turns():
                    deadline = time.monotonic() + limits.PG_AWAY_SECONDS
                if time.monotonic() > deadline:
                    raise self._stop(error) from error

    def _open_turn(self) -> None:
        """Take the lock of the shard, and learn what other nodes did."""
        if self._pipe.connections != self._read_over:
            # What was read over the last one may be lost with it.
            self._read_over = self._pipe.connections
            self._log.forget()
        self._execute("BEGIN")
        lock = self._execute(_SQL["lock_shard"], (self._database.shard,))
        found = self._execute(_SQL["turns_after"], (self._log.known,))
        row = lock.fetchone()
        if row is None:
            raise psycopg.OperationalError("the row of the shard is gone")
        rows = found.fetchall()
        turns = [LoggedTurn._make(each[1:]) for each in rows if each[1] is not None]
        if not self._log.follows(turns, row[0]):
            turns = self._load(row[0])
        if turns:
            self._changed_elsewhere |= self._log.read(turns)
            self._passed_over_ms = -FOREVER_MS
            self._quarantined = self._log.quarantined
            if self._log.seen_wall_ms is not None:
                self._seen_wall_ms = self._log.seen_wall_ms
        self._log.folded = row[0]
        self._now = self._log.now(rows[0][0])
        self._old.keep()
        self._old.in_transaction = True
        self._collected.clear()
        self._parts.clear()
        self._wrote = self._wrote_directory = self._is_lost = False
        self._news = News()

    def _load(self, folded: int) -> list[LoggedTurn]:
        """Read the counters from the tables; returns the turns since then."""
        queries = ("containers", "outbox_targets", "applied_sources", "quarantined")
        asked = [self._execute(_SQL[name]) for name in queries]
        seen = self._execute(_SQL["setting"], (SEEN,))
        found = self._execute(_SQL["turns_after"], (folded,))
        containers, targets, applied, quarantined = [each.fetchall() for each in asked]
        self._containers.load(containers)
        self._outbox.load(targets, applied)
        self._log.start(folded)
        self._log.quarantined = self._quarantined = quarantined[0][0]
        self._load_seen(seen.fetchone())
        self._changed_elsewhere = True
        rows = [each[1:] for each in found.fetchall() if each[1] is not None]
        return [LoggedTurn._make(row) for row in rows]

    def _end_stuck_turns(self) -> bool:
        """End sessions that hold a shard and wait for a node; True if there were."""
        ended = 0
        with contextlib.suppress(psycopg.Error), self._database.connect() as connection:
            stuck = (f"{limits.PG_LOCK_SECONDS / 2:g} seconds",)
            for pid, _ in connection.execute(_SQL["end_stuck_turns"], stuck).fetchall():
                log.warning("the turn of another node hung, session %d is ended", pid)
                ended += 1
        return ended > 0

    def now(self) -> Now | None:
        return self._now

    def changed_elsewhere(self) -> bool:
        changed, self._changed_elsewhere = self._changed_elsewhere, False
        return changed

    def announce(self, news: News) -> None:
        self._news = news

    def watch(self, call: Callable[[News], None]) -> None:
        known = self._log.known
        self._watcher = Watcher(self._database, self._node, known, call)

    def about(self) -> dict[str, Any]:
        others = [] if self._watcher is None else self._watcher.others
        return {
            "database": self._database.where,
            "durability": self._durability,
            "other_nodes": others,
        }

    # -- the end of a turn -----------------------------------------------------

    def commit(self) -> None:
        if self._fault is not None:
            raise StoreFault(self._fault.text)
        if not self._old.in_transaction:
            raise Bug("There is no transaction to commit.")
        if self._is_lost:
            raise Bug("The turn was lost with one of its statements.")
        token = self._node << 32 | secrets.randbits(32)
        turn: LoggedTurn | None = None
        try:
            self._strike()
            turn = self._write_turn(token)
            self._finish(turn)
        except psycopg.Error as error:
            # What PostgreSQL has refused has a state, if the connection is still there.
            is_refused = error.sqlstate is not None and self._pipe.is_open
            if turn is None or is_refused or not self._has_happened(turn, token):
                failure = self._failed(error)
                self.rollback()
                raise failure from error
        self._committed(turn)

    def seal(self) -> None:
        """The commit sends it with the rest, in one go."""

    def checkpoint(self) -> None:
        """PostgreSQL has a process of its own for that."""

    def _write_turn(self, token: int) -> LoggedTurn | None:
        """Send what is left, and the row of the log; None if nothing has changed."""
        self._flush()
        containers, gone = self._containers.to_write()
        if self._quarantine_changed:
            self._count_quarantined()
        targets = [(key, *counts) for key, counts in self._outbox.targets.to_write()]
        applied = self._outbox.applied.to_write()
        if not (self._wrote or containers or gone or targets or applied):
            return None
        parts = {
            "containers": containers,
            "gone": gone,
            "targets": targets,
            "applied": applied,
            "seen": self._seen_wall_ms,
            "quarantined": self._quarantined,
            "directory": 1 if self._wrote_directory else None,
            "ready": list(self._news.ready),
            "ended": list(self._news.ended),
            "emptied": list(self._news.emptied),
        }
        turn = LoggedTurn(self._log.known + 1, *self._now, write_body(parts))
        row = (turn.number, token, turn.steady_ms, turn.wall_ms, turn.body)
        self._execute(_SQL["insert_turn"], row)
        self._log.unfolded.update(gone, (each[0] for each in containers))
        if turn.number - self._log.folded >= limits.PG_FOLD_TURNS:
            self._fold(turn)
        return turn

    def _fold(self, turn: LoggedTurn) -> None:
        """Write the counters into the tables, and forget old turns."""
        there, gone = [], []
        for key in self._log.unfolded:
            if self._containers.has(key):
                there.append(self._containers.get(key).row())
            else:
                gone.append(key)
        targets = self._outbox.targets.values.items()
        for query, rows in (
            ("put_container", there),
            ("put_outbox_target", [(key, *counts) for key, counts in targets]),
            ("put_applied", list(self._outbox.applied.values.items())),
        ):
            if rows:
                self._execute(_SQL[query], columns(rows))
        if gone:
            self._execute(_SQL["delete_container"], (gone,))
        self._execute(_SQL["put_setting"], (SEEN, str(self._seen_wall_ms)))
        self._execute(_SQL["fold"], (turn.number,))
        old = self._log.grow_old(turn, turn.wall_ms - limits.PG_LOG_KEPT_MS)
        if old is not None:
            self._execute(_SQL["forget_turns"], old)

    def _finish(self, turn: LoggedTurn | None) -> None:
        """Commit without a sync, which ends the lock; then sync, where that is needed.

        A turn that only read needs it as well, if it saw one that may not be synced.
        """
        if turn is not None:
            self._execute("SET LOCAL synchronous_commit = off")
        self._execute("COMMIT")
        if turn is None and self._log.known <= self._log.synced:
            self._pipe.finish()
        else:
            self._pipe.send_sync()
            self._pipe.finish_synced()

    def _has_happened(self, turn: LoggedTurn, token: int) -> bool:
        """Whether a turn whose commit has no answer is in the log, and durable."""
        self._pipe.drop()
        try:
            self._pipe.connect(limits.PG_AWAY_SECONDS)
            self._execute("BEGIN")
            self._execute(_SQL["lock_shard"], (self._database.shard,))
            found = self._execute(_SQL["find_turn"], (turn.number, token)).fetchone()
            self._execute("COMMIT")
            self._pipe.send_sync()
            self._pipe.finish_synced()
        except psycopg.Error as error:
            log.warning("whether a turn was kept cannot be found out: %s", error)
            return False
        is_there = found is not None
        text = "the answer to a commit was lost; the turn was %s"
        log.warning(text, "kept" if is_there else "not kept")
        return is_there

    def _committed(self, turn: LoggedTurn | None) -> None:
        """What memory has is what the database has."""
        if turn is not None:
            if turn.number - self._log.folded >= limits.PG_FOLD_TURNS:
                self._log.folded = turn.number
                self._log.unfolded.clear()
            self._log.wrote(turn)
            self._log.seen_wall_ms = self._seen_wall_ms
            self._log.quarantined = self._quarantined
            if self._watcher is not None and (any(self._news) or self._wrote_directory):
                self._watcher.tell()
        self._log.synced = self._log.known
        self._old.in_transaction = False
        self._old.keep()
        self._set_back_from_ms = -FOREVER_MS
        self._careful_turns = max(self._careful_turns - 1, 0)

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        in_transaction, self._old.in_transaction = self._old.in_transaction, False
        self._old.restore()
        self._forget_looks()
        self._collected.clear()
        self._parts.clear()
        self._quarantined = self._log.quarantined
        self._quarantine_changed = False
        if self._is_lost:
            self._pipe.drop()
        elif in_transaction:
            try:
                self._execute("ROLLBACK")
                self._pipe.finish()
            except psycopg.Error:
                self._pipe.drop()
        self._is_lost = False

    def recover(self) -> bool:
        if self._fault is None:
            return True
        self.rollback()
        self._pipe.drop()
        if self._disk_fault is not None and self._disk_fault.kind != "slow":
            return False
        try:
            self._pipe.connect()
            self._pipe.send_sync()
            self._pipe.finish_synced()
        except psycopg.Error:
            self._pipe.drop()
            return False
        self._fault = None
        return True

    def keep_tokens(self) -> None:
        """The log of turns has them always."""

    def is_nearly_full(self) -> bool:
        return False

    def rehearse(self, fault: DiskFault | None) -> None:
        self._disk_fault = fault

    def _strike(self) -> None:
        """Where a commit meets the database: fail or wait, if that is rehearsed."""
        fault = self._disk_fault
        if fault is None:
            return
        if fault.kind == "slow":
            threading.Event().wait(fault.seconds)
            return
        raise psycopg.OperationalError("a rehearsed fault; see `twinbus fault list`")

    # -- parts -----------------------------------------------------------------

    def begin_part(self) -> int:
        if not self._old.in_transaction:
            raise Bug("There is no transaction for a part.")
        self._parts.append(_Saved(len(self._collected)))
        if self._careful_turns and not self._is_lost:
            self._guarded_flush()
        return self._old.mark()

    @guarded
    def _guarded_flush(self) -> None:
        self._flush()

    @guarded
    def end_part(self) -> None:
        part = self._parts.pop()
        if part.is_saved and not self._is_lost:
            self._execute("RELEASE part")

    @guarded
    def undo_part(self, mark: int) -> None:
        self._old.restore(mark)
        self._forget_looks()
        part = self._parts.pop()
        if part.is_saved:
            self._collected.clear()
            if not self._is_lost:
                self._execute("ROLLBACK TO part")
                self._execute("RELEASE part")
        else:
            del self._collected[part.mark :]

    # -- statements ------------------------------------------------------------

    def _execute(self, query: str, at: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
        """Put a statement into the pipeline."""
        if not self._careful_turns:
            return self._pipe.execute(query, at)
        cursor = self._pipe.execute(query, at, prepare=False)
        if self._old.in_transaction:
            self._pipe.finish()
        return cursor

    def _run(self, query: str, at: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
        if not self._old.in_transaction:
            return self._ask(query, at)
        if self._is_lost:
            raise StoreFault(_FAULT) if self._fault else Bug("The turn is lost.")
        is_read = query.startswith(("SELECT", "("))
        if not is_read:
            self._wrote = True
            if query in _DIRECTORY:
                self._wrote_directory = True
            self._flush()
        elif self._collected:
            self._flush()
        return self._execute(query, at)

    def _ask(self, query: str, at: Any) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement outside a transaction."""
        try:
            self._pipe.connect()
            cursor = self._pipe.execute(query, at)
            self._pipe.finish()
        except psycopg.Error as error:
            self._pipe.drop()
            raise StoreFault(_FAULT) from error
        return cursor

    def _insert(self, query: str, rows: Sequence[tuple[object, ...]]) -> None:
        # It is sent later, when the command that it belongs to is not known any more.
        if query != _SQL["append_plain"] and any(map(_has_nul, rows)):
            raise InvalidField(
                "A session id or the name of an entity has a character with the code "
                "0, which the database of this server does not keep."
            )
        self._wrote = True
        self._collected.append((query, rows))
        if self._careful_turns:
            self._flush()

    def _flush(self) -> None:
        """Send the inserts that were collected, and a savepoint for each part."""
        sent = 0
        for part in self._parts:
            if not part.is_saved:
                self._send_inserts(self._collected[sent : part.mark])
                sent = part.mark
                self._execute("SAVEPOINT part")
                part.is_saved = True
        self._send_inserts(self._collected[sent:])
        self._collected.clear()

    def _send_inserts(
        self, inserts: Sequence[tuple[str, Sequence[tuple[object, ...]]]]
    ) -> None:
        """One statement for all that go into one table."""
        ordered = sorted(inserts, key=lambda each: each[0]) if inserts else ()
        for query, group in groupby(ordered, key=lambda each: each[0]):
            self._execute(query, columns([row for _, rows in group for row in rows]))

    def _changes(self, query: str, at: Any) -> int:
        before = self._wrote
        changed = len(self._run(query, at).fetchall())
        # A look at time that finds nothing leaves no row in the log.
        self._wrote = before or changed > 0
        return changed

    def _ids(self, ids: Iterable[int]) -> Integers:
        # Others are no ids of messages: they are what a client sent.
        return Integers(key for key in ids if 0 <= key < 1 << 63)

    def _fetch(self, query: str, at: Any, texts: Sequence[int]) -> list[Any]:
        del texts
        return self._run(query, at).fetchall()


def _has_nul(row: tuple[object, ...]) -> bool:
    return any(isinstance(value, str) and "\0" in value for value in row)
