"""The transaction of the SQLite store, and how its statements are run.

Owns begin, commit and the parts of a transaction, the fault that stops the store, the
tokens of commits and the proof after a fault. Rule: a row that cannot be read keeps no
other from being read. Text that is not UTF-8 fails a whole query: such a row is moved
to `quarantine`, as it is, and the query is asked again. A query that succeeds pays
nothing for it. Knows nothing of what rows mean: see `tables/rows.py`.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twinbus import limits
from twinbus.errors import Bug, StoreFault, TwinbusError
from twinbus.store.base import FOREVER_MS, DiskFault
from twinbus.store.nodes import OneNode
from twinbus.store.queries import load
from twinbus.store.sqlite.file import LostTurn, SqliteFile
from twinbus.store.tables.rows import SEEN, TOPICS, Rows, guarded

log = logging.getLogger("twinbus.store")

# The setting with the token of the last commit.
_TOKEN = "turn"  # noqa: S105


def _is_undecodable(error: sqlite3.Error) -> bool:
    """Whether the driver cannot read a text: what SQLite itself says has a code."""
    is_operational = isinstance(error, sqlite3.OperationalError)
    return is_operational and not hasattr(error, "sqlite_errorcode")


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


class SqliteTransaction(OneNode, Rows):
    """The transaction of a SQLite file."""

    _driver_error = sqlite3.Error
    _sql = load("sqlite", *TOPICS)
    # Called now and then while a statement takes long.
    _on_progress: Callable[[], None] | None = None

    def __init__(self, file: SqliteFile, new_nonce: Callable[[], int]) -> None:
        super().__init__(new_nonce)
        self._file = file
        # The token of the last commit that has returned; None if none are kept.
        self._acknowledged: int | None = None
        # How many rows the connection had changed when the transaction began.
        self._changed = 0
        # Whether `seal` has written its part of the transaction, and the token in it.
        self._is_sealed = False
        self._sealed_with: int | None = None
        # The bound of `_seen_wall_ms` that the file has, if that is known.
        self._seen_kept_ms = -FOREVER_MS
        self._fault: StoreFault | None = None
        self._attach()

    def _attach(self) -> None:
        """Start from what the file holds."""
        self._connection = self._file.connection
        self.on_progress(self._on_progress)
        # One cursor for all statements: each is read to its end before the next.
        self._cursor = self._connection.cursor()
        self._run = self._cursor.execute
        self._insert = self._cursor.executemany
        self._passed_over_ms = -FOREVER_MS
        self._old.keep()
        run, sql = self._run, self._sql
        self._containers.load(run(sql["containers"]).fetchall())
        targets = run(sql["outbox_targets"]).fetchall()
        self._outbox.load(targets, run(sql["applied_sources"]).fetchall())
        self._load_seen(run(sql["setting"], (SEEN,)).fetchone())
        self._seen_kept_ms = -FOREVER_MS
        self._set_back_from_ms = -FOREVER_MS
        self._count_quarantined()

    def _failed(self, error: sqlite3.Error) -> TwinbusError:
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
        self._is_sealed = False
        self._changed = self._connection.total_changes

    def seal(self) -> None:
        try:
            self._write_counters()
            if self._quarantine_changed:
                self._count_quarantined()
            token = self._acknowledged
            if self._connection.total_changes != self._changed:
                self._keep_seen()
                if token is not None:
                    token += 1
                    self._put_setting(_TOKEN, token)
        except sqlite3.Error as error:
            raise self._stop(error) from error
        self._sealed_with = token
        self._is_sealed = True

    def _keep_seen(self) -> None:
        """Keep a bound of what receives have seen, which is written once in a while."""
        seen_ms, span_ms = self._seen_wall_ms, limits.STORE_SEEN_AHEAD_MS
        if not 0 <= self._seen_kept_ms - seen_ms <= span_ms:
            self._seen_kept_ms = seen_ms + span_ms
            self._put_setting(SEEN, self._seen_kept_ms)

    def _put_setting(self, name: str, value: int) -> None:
        self._connection.execute(self._sql["put_setting"], (name, str(value)))

    def commit(self) -> None:
        if self._fault is not None:
            raise StoreFault(self._fault.text)
        if not self._old.in_transaction:
            raise Bug("There is no transaction to commit.")
        try:
            if not self._is_sealed:
                self.seal()
            self._file.strike()
            self._connection.execute("COMMIT")
        except StoreFault:
            self.rollback()
            raise
        except sqlite3.Error as error:
            fault = self._stop(error)
            self.rollback()
            raise fault from error
        self._acknowledged = self._sealed_with
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
        self._seen_kept_ms = -FOREVER_MS
        try:
            # After some errors SQLite has rolled back by itself.
            if in_transaction and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._stop(error)

    @guarded
    def checkpoint(self) -> None:
        if self._fault is None:
            self._file.checkpoint()

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
        row = self._connection.execute(self._sql["setting"], (_TOKEN,)).fetchone()
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

    def _write_counters(self) -> None:
        """Write back what changed in memory, before the commit."""
        changed, gone = self._containers.to_write()
        targets = [(key, *counts) for key, counts in self._outbox.targets.to_write()]
        for query, rows in (
            ("put_container", changed),
            ("delete_container", [(key,) for key in gone]),
            ("put_outbox_target", targets),
            ("put_applied", self._outbox.applied.to_write()),
        ):
            if rows:
                self._connection.executemany(self._sql[query], rows)

    # -- statements ------------------------------------------------------------

    def _changes(self, query: str, at: Any) -> int:
        return int(self._run(query, at).rowcount)

    def _ids(self, ids: Iterable[int]) -> str:
        # A list of integers is written as JSON writes it.
        return str(list(ids))

    def _fetch(self, query: str, at: Any, texts: Sequence[int]) -> list[Any]:
        """The rows of a query whose first column is the id of a message."""
        while True:
            try:
                rows: list[Any] = self._run(query, at).fetchall()
                return rows
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
