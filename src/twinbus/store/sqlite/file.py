"""The SQLite file of a namespace: its folder, its one process, its faults.

Owns the connection. Rule: a data folder belongs to one process, and an error of the
database is never papered over; it becomes a `StoreFault` that says what to do, and only
those that leave no doubt about what is on the disk can be recovered from.
Knows nothing of messages.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from twinbus import limits
from twinbus.errors import ConfigError, StoreFault, StoreInUse
from twinbus.store.base import DiskFault
from twinbus.store.migrations import Migration, pending
from twinbus.store.queries import load
from twinbus.store.sqlite.reserve import FileSpace, Reserve

FILE_NAME = "messages.db"
LOCK_NAME = "messages.lock"
# STRICT tables and RETURNING need it.
SQLITE_VERSION_MIN = (3, 37, 0)

_FULL = (
    "The disk is full: {where} cannot grow. Nothing of this was accepted. "
    "Free some space; the server goes on by itself."
)
_READ_ONLY = (
    "It is not possible to write to {where} ({text}). Make the disk writable; the "
    "server goes on by itself."
)
_DISK = (
    "The disk failed under {where} ({text}). It is unknown what it holds now, so "
    "nothing is accepted. Check the disk. A server with one shard must be restarted; "
    "with several it goes on by itself when this one is well."
)
_CORRUPT = (
    "There is damage in {where} ({text}). It was left as it is. Restore a backup, or "
    "choose another --data."
)
_LOST = (
    "The disk has lost what {where} had acknowledged ({text}). It was left as it is. "
    "Restore the newest copy; the server goes on by itself if nothing is missing in it."
)
_OTHER = "There was an error in {where} ({text}). Nothing of this was accepted."

# By result code: the text, and whether the store may come back by itself.
_FAULTS = {
    sqlite3.SQLITE_FULL: (_FULL, True),
    sqlite3.SQLITE_READONLY: (_READ_ONLY, True),
    # Any of them: a failed read or write may be the sign of a failed sync.
    sqlite3.SQLITE_IOERR: (_DISK, False),
    # The exception is the index of the log, which is memory that needs disk space.
    sqlite3.SQLITE_IOERR_SHMSIZE: (_FULL, True),
    sqlite3.SQLITE_CORRUPT: (_CORRUPT, False),
    sqlite3.SQLITE_NOTADB: (_CORRUPT, False),
}


class LostTurn(sqlite3.DatabaseError):
    """The database, opened anew, has not all that was acknowledged."""


class SqliteFile:
    """An open database file, or one in memory."""

    def __init__(self, folder: Path | None, reserve_bytes: int | None = None) -> None:
        self.path = (
            "the database in memory" if folder is None else str(folder / FILE_NAME)
        )
        # In texts: the operator who opens it reads them, and later clients do.
        self.where = self.path
        self.recoverable = True
        # Rehearsed; see `strike`.
        self.disk_fault: DiskFault | None = None
        self.folder = folder
        self._lock_file = -1 if folder is None else _take_folder(folder)
        # None: the folder is opened for a moment, by a command.
        self._reserve: Reserve | None = None
        try:
            if folder is not None and reserve_bytes is not None:
                self._reserve = Reserve(folder, reserve_bytes)
            self.connection = self._connect()
        except sqlite3.Error as error:
            self._release_folder()
            raise self.fault(error) from error
        except BaseException:
            self._release_folder()
            raise
        self.look()

    @property
    def is_nearly_full(self) -> bool:
        """Whether nothing should be added, so that the store can be emptied."""
        if self._reserve is None:
            return False
        return self._reserve.is_given_up or self._rehearses_reserve

    @property
    def _rehearses_reserve(self) -> bool:
        """Whether the disk is full by rehearsal, and the reserve takes what is left."""
        is_full = self.disk_fault is not None and self.disk_fault.kind == "full"
        return is_full and self._reserve is not None and self._reserve.size_bytes > 0

    def look(self) -> None:
        """Measure the space that is left; between transactions."""
        if self._reserve is not None:
            # What was committed is safe: a problem is one of the next transaction.
            with contextlib.suppress(sqlite3.Error, OSError):
                self._reserve.look(self._space)

    def _space(self) -> FileSpace:
        assert self.folder is not None
        page_bytes = limits.SQLITE_PAGE_BYTES
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        (unused,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        written = (self.folder / FILE_NAME).stat().st_size
        return FileSpace(max(pages * page_bytes - written, 0), unused * page_bytes)

    def _connect(self) -> sqlite3.Connection:
        if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
            raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old.")
        if self.folder is not None:
            _keep_private(self.folder / FILE_NAME)
        connection = sqlite3.connect(
            ":memory:" if self.folder is None else self.folder / FILE_NAME,
            timeout=limits.SQLITE_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            pages = limits.SQLITE_CHECKPOINT_PAGES
            if self._reserve is not None and self._reserve.size_bytes:
                pages = self._reserve.checkpoint_pages
            _set_up(connection, pages)
            _migrate(connection, self.where)
        except BaseException:
            connection.close()
            raise
        return connection

    def opened(self) -> None:
        """It is in use: from now on texts name no path of the server."""
        self.where = "the database of the namespace"

    def fault(self, error: sqlite3.Error) -> StoreFault:
        """Say what an error means, and remember whether it may pass."""
        if isinstance(error, LostTurn):
            return StoreFault(_LOST.format(where=self.where, text=error))
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        # The low byte is the kind of the error, the rest its circumstances.
        kind = code if code in _FAULTS else code & 0xFF
        text, recoverable = _FAULTS.get(kind, (_OTHER, True))
        self.recoverable = self.recoverable and recoverable
        return StoreFault(text.format(where=self.where, text=f"{name}: {error}"))

    def checkpoint(self) -> None:
        """Write the log into the database file, unless that cannot be done now."""
        try:
            self.strike()
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.OperationalError as error:
            # The disk is full, or rows are being read; a commit does not mind either.
            passing = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_LOCKED)
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in passing:
                raise
        self.look()

    def strike(self) -> None:
        """Where a commit meets the disk: fail or wait, if that is rehearsed."""
        fault = self.disk_fault
        if fault is None or self._rehearses_reserve:
            return
        if fault.kind == "slow":
            time.sleep(fault.seconds)
            return
        error = sqlite3.OperationalError("a rehearsed fault; see `twinbus fault list`")
        full = fault.kind == "full"
        error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_BUSY
        error.sqlite_errorname = "SQLITE_FULL" if full else "SQLITE_BUSY"
        raise error

    def reopen(self) -> StoreFault | None:
        """Open the file anew and prove that it takes writes, or say why not."""
        if self.folder is None:
            try:
                self.strike()
            except sqlite3.Error as error:
                return self.fault(error)
            return None
        try:
            self.strike()
            if self._reserve is not None:
                self._reserve.make_room()
            self.connection.close()
            if not self.recoverable:
                self._forget_cached()
            self.connection = self._connect()
            _probe(self.connection)
            if not self.recoverable:
                _checkpoint(self.connection)
                self.recoverable = True
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, OSError):
                error = sqlite3.OperationalError(str(error))
            # Until the next try there is no connection that could be used by mistake.
            self.connection.close()
            return self.fault(error)
        self.look()
        return None

    def _forget_cached(self) -> None:
        """Let the next reads come from the disk.

        After a failed sync the system's memory may hold what the disk does not.
        """
        assert self.folder is not None
        for name in (FILE_NAME, f"{FILE_NAME}-wal"):
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(self.folder / name, os.O_RDONLY)
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)

    def close(self) -> None:
        try:
            self.connection.close()
        except sqlite3.Error as error:
            raise self.fault(error) from error
        finally:
            self._release_folder()

    def _release_folder(self) -> None:
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1


class Glance(NamedTuple):
    """What a store shows without being opened."""

    # The setting that was asked for.
    setting: str | None
    # Whether nothing was ever kept in it: no entity and no setting.
    is_blank: bool


def read_setting(folder: Path, name: str) -> str | None:
    """One setting of the store in a folder, also while a server has the folder.

    Reads with a connection that cannot write. `ConfigError` if there is no store.
    """
    try:
        found = glance(folder, name)
    except StoreFault as fault:
        raise ConfigError(fault.text) from fault
    if found is None:
        raise ConfigError(
            f"There is no namespace in {folder}. "
            "Check --data and --namespace; `twinbus serve` makes a new one."
        )
    return found.setting


def glance(folder: Path, name: str) -> Glance | None:
    """Read a setting without making or changing a file; None if there is no store.

    Also while another process has the folder. `ConfigError` if this program is not the
    one to open it (a newer schema, another program's file), `StoreFault` if it cannot
    be read.
    """
    file = Path(os.path.realpath(folder / FILE_NAME))
    try:
        if not file.exists():
            return None
        # Without a log the file is complete. SQLite would make a log to read it, and
        # leave it there, or fail on a read-only disk.
        closed = not file.with_name(f"{file.name}-wal").exists()
        mode = "mode=ro&immutable=1" if closed else "mode=ro"
        connection = sqlite3.connect(f"{file.as_uri()}?{mode}", uri=True)
        try:
            return _glance(connection, name, str(file))
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise StoreFault(f"{file} cannot be read ({error}).") from error


def _glance(connection: sqlite3.Connection, name: str, where: str) -> Glance:
    _pending(connection, where)
    if not _tables(connection):
        # A process ended before it had made the tables.
        return Glance(None, is_blank=True)
    sql = load("sqlite", "entities")
    row = connection.execute(sql["setting"], (name,)).fetchone()
    (is_blank,) = connection.execute(sql["is_blank"]).fetchone()
    return Glance(None if row is None else str(row[0]), bool(is_blank))


def _take_folder(folder: Path) -> int:
    """Make the folder and lock it for this process; the lock ends with the process."""
    try:
        _make_durable(folder)
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(
            f"The data folder {folder} cannot be used ({error.strerror}). "
            "Choose another --data."
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "?"
        os.close(descriptor)
        raise StoreInUse(
            f"The data folder {folder} is in use by process {holder}; stop it or "
            "choose another --data."
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    return descriptor


def _keep_private(file: Path) -> None:
    """Make the file for its owner alone; SQLite gives its log the same permissions."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError:
        # Whatever is wrong with it, SQLite says it better.
        return


def _make_durable(folder: Path) -> None:
    """Make a folder so that its name survives a power loss."""
    if folder.is_dir():
        return
    _make_durable(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _set_up(connection: sqlite3.Connection, checkpoint_pages: int) -> None:
    checkpoint_bytes = checkpoint_pages * limits.SQLITE_PAGE_BYTES
    for pragma in (
        # Only a database without tables takes the page size.
        f"page_size = {limits.SQLITE_PAGE_BYTES}",
        "journal_mode = WAL",
        # Each commit is synced. With NORMAL a power loss takes accepted messages.
        "synchronous = FULL",
        f"wal_autocheckpoint = {checkpoint_pages}",
        f"journal_size_limit = {2 * checkpoint_bytes}",
        f"cache_size = {-limits.SQLITE_CACHE_KIB}",
        "temp_store = MEMORY",
        # Some builds overwrite whatever is deleted, so that a purge of a queue writes
        # as much as the queue holds: on a full disk it would fail.
        "secure_delete = FAST",
        "foreign_keys = OFF",
        # A damaged page is an error at once, not a wrong answer later.
        "cell_size_check = ON",
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _migrate(connection: sqlite3.Connection, where: str) -> None:
    for step in _pending(connection, where):
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{step.sql}\n"
            f"PRAGMA user_version = {step.number};\nCOMMIT;"
        )


def _pending(connection: sqlite3.Connection, where: str) -> list[Migration]:
    """The steps that a database still needs, if it is one of ours."""
    (current,) = connection.execute("PRAGMA user_version").fetchone()
    if current == 0 and _tables(connection):
        raise ConfigError(
            f"{where} is a database of another program. Choose another --data."
        )
    return pending("sqlite", current, where)


def _tables(connection: sqlite3.Connection) -> int:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return int(tables)


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Move the whole log into the database, and sync it."""
    (busy, _log, _moved) = connection.execute(
        "PRAGMA wal_checkpoint(TRUNCATE)"
    ).fetchone()
    if busy:
        raise sqlite3.OperationalError("the log cannot be moved into the database")


def _probe(connection: sqlite3.Connection) -> None:
    """Write some pages, for real, and take them away again."""
    name = "twinbus.probe"
    connection.execute(
        "INSERT OR REPLACE INTO setting VALUES (?, hex(zeroblob(?)))",
        (name, limits.STORE_PROBE_BYTES // 2),
    )
    connection.execute("DELETE FROM setting WHERE name = ?", (name,))
