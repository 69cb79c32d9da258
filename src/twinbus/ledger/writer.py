"""Minutes become files; gaps, retention and compaction.

Owns one writer's part of a ledger folder. A marker, `.open-<writer>`, is there from
`open` to `close` and holds the first minute that is not written yet; it is locked, so
that two processes of one name take different ones. A marker without a lock at `open` is
the trace of a crash, and becomes a row `gap`. So does a time in which nothing could be
written. A failure is logged once, its rows are dropped and counted: a ledger must never
hurt a message.

Everything here blocks; `keeper.py` runs it in a thread. Time comes in as an argument.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from twinbus import limits
from twinbus.ledger.compaction import (
    clean,
    compact,
    compact_apart,
    is_compact,
    is_unfinished,
)
from twinbus.ledger.counts import Counted, LedgerEvent
from twinbus.ledger.files import (
    TEMPORARY,
    LedgerDisk,
    day_folders,
    day_of,
    file_name,
    make_folder,
    own_files,
)
from twinbus.ledger.parquet import parquet_bytes
from twinbus.ledger.schema import (
    ACCEPTED,
    DAY_PREFIX,
    EVENT_COLUMNS,
    EVENTS_FOLDER,
    GAP,
    METADATA_KEY,
    OPERATION_COLUMNS,
    VERSION,
)

log = logging.getLogger("twinbus.ledger")

_MARKER = ".open-"


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """Where a ledger is, and what rows say of their writer."""

    folder: Path
    # See `files.writer_name`; a number is added if another process has it.
    writer: str
    # For rows `gap`.
    namespace: str
    source: str
    days_max: int = limits.LEDGER_DAYS_MAX
    # Whether a child process reads files, so that this one never loads Arrow. Not for
    # an application: what it runs as may start no other program like it.
    compacts_apart: bool = False


class LedgerWriter:
    """Writes one process's rows."""

    def __init__(self, options: LedgerOptions, disk: LedgerDisk | None = None) -> None:
        self.options = options
        # Its name from `open` on.
        self.name = options.writer
        # Read by other threads.
        self.rows_written = 0
        self.rows_dropped = 0
        self._disk = disk or LedgerDisk()
        self._marker: int | None = None
        # The first minute that is missing; None if all are there.
        self._gap_from_ms: int | None = None
        self._failed = False
        self._maintained = ""

    # -- from open to close ------------------------------------------------------------

    def open(self, minute_ms: int) -> None:
        """Take a marker; what is counted from that minute on will be written."""
        with self._surviving():
            self._open(minute_ms)
        self._maintain(minute_ms)

    def _open(self, minute_ms: int) -> None:
        folder = self.options.folder
        make_folder(folder)
        self.name, self._marker = self._free_marker()
        crashed_ms = _read_minute(self._marker)
        if crashed_ms is not None:
            self._gap_from_ms = self._first_missing(crashed_ms)
        for _day, path in day_folders(folder):
            clean(path, self.name, self._disk)
        self._write_gap(minute_ms)
        self._note(minute_ms)

    def _free_marker(self) -> tuple[str, int]:
        """The name that no other process has, and its locked marker."""
        asked = self.options.writer
        most = limits.LEDGER_WRITERS_MAX
        for name in (asked, *(f"{asked}-{number}" for number in range(2, most + 1))):
            handle = _locked(self.options.folder / f"{_MARKER}{name}")
            if handle is not None:
                return name, handle
        raise OSError(f"{most} processes of the name {asked} write there")

    def write(self, minute_ms: int, counted: Counted) -> None:
        """Write what was counted in a minute that is over."""
        with self._surviving(len(counted.cells), minute_ms):
            if self._marker is None:
                self._open(minute_ms)
            self._write_gap(minute_ms)
            rows = self._operations(minute_ms, counted)
            self._write(self.options.folder, minute_ms, OPERATION_COLUMNS, rows)
        with self._surviving(len(counted.events)):
            told = [_event_row(self.name, event) for event in counted.events]
            table = self.options.folder / EVENTS_FOLDER
            self._write(table, minute_ms, EVENT_COLUMNS, told)
        with self._surviving():
            if self._gap_from_ms is None:
                self._note(minute_ms + limits.LEDGER_MINUTE_MS)
        self._maintain(minute_ms + limits.LEDGER_MINUTE_MS)

    def close(self) -> None:
        """All is written: the next start finds no trace of a crash.

        If it is not, the marker stays, and the next start writes the gap.
        """
        marker, self._marker = self._marker, None
        if marker is not None:
            with contextlib.suppress(OSError):
                if self._gap_from_ms is None:
                    (self.options.folder / f"{_MARKER}{self.name}").unlink()
            os.close(marker)

    @contextlib.contextmanager
    def _surviving(self, rows: int = 0, minute_ms: int | None = None) -> Iterator[None]:
        """Log the first of several failures, and count the rows that each costs."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.rows_dropped += rows
            if minute_ms is not None and self._gap_from_ms is None:
                self._gap_from_ms = minute_ms
            if not self._failed:
                self._failed = True
                text = "the ledger in %s cannot be written, and misses rows: %s"
                log.error(text, self.options.folder, error)  # noqa: TRY400
        else:
            if self._failed and rows:
                self._failed = False
                log.warning("the ledger in %s is written again", self.options.folder)

    # -- the marker --------------------------------------------------------------------

    def _note(self, minute_ms: int) -> None:
        assert self._marker is not None
        os.pwrite(self._marker, f"{minute_ms:015d}\n".encode(), 0)
        os.fsync(self._marker)

    def _first_missing(self, minute_ms: int) -> int:
        """The first minute without rows; a crash may have come before the note."""
        folder = self.options.folder / f"{DAY_PREFIX}{day_of(minute_ms)}"
        time = file_name(self.name, minute_ms).rpartition("-")[0]
        if any(name.startswith(time) for name in own_files(folder, self.name)):
            return minute_ms + limits.LEDGER_MINUTE_MS
        return minute_ms

    # -- rows --------------------------------------------------------------------------

    def _write_gap(self, minute_ms: int) -> None:
        """Say for how many minutes before this one there are no rows, if any."""
        from_ms = self._gap_from_ms
        if from_ms is None:
            return
        minutes = max((minute_ms - from_ms) // limits.LEDGER_MINUTE_MS, 1)
        whose = self.options.namespace, self.name, self.options.source
        row = (from_ms * 1000, *whose, "", GAP, ACCEPTED, "", "", *[0] * 5, minutes)
        self._write(self.options.folder, from_ms, OPERATION_COLUMNS, [row])
        self._gap_from_ms = None

    def _operations(self, minute_ms: int, counted: Counted) -> list[tuple[Any, ...]]:
        name, time = self.name, minute_ms * 1000
        return [
            (
                time,
                place.namespace,
                name,
                place.source,
                place.entity,
                operation,
                outcome,
                place.key,
                place.connection,
                each,
                *cell,
                0,
            )
            for (place, operation, outcome, each), cell in counted.cells.items()
        ]

    def _write(
        self,
        table: Path,
        minute_ms: int,
        columns: tuple[tuple[str, str], ...],
        rows: Sequence[tuple[Any, ...]],
    ) -> None:
        """Make one file of the day that the rows belong to, if there are any."""
        if not rows:
            return
        folder = table / f"{DAY_PREFIX}{day_of(minute_ms)}"
        name = file_name(self.name, minute_ms)
        temporary = folder / f"{TEMPORARY}{name}"
        content = parquet_bytes(columns, rows, {METADATA_KEY: VERSION})
        self._disk.write(temporary, lambda file: file.write(content))
        self._disk.rename(temporary, name)
        self.rows_written += len(rows)

    # -- days --------------------------------------------------------------------------

    def _maintain(self, wall_ms: int) -> None:
        """Once a day: compact days that are over, and remove those that are too old."""
        today = day_of(wall_ms)
        if today == self._maintained or self._marker is None:
            return
        self._maintained = today
        try:
            found = list(day_folders(self.options.folder))
            oldest = self._oldest_kept(today, {day for day, _ in found})
            for day, folder in found:
                if day < oldest:
                    shutil.rmtree(folder, ignore_errors=True)
            kept = [(day < today, folder) for day, folder in found if day >= oldest]
            self._compact(kept)
        except Exception as error:  # noqa: BLE001
            text = "the ledger in %s has more files than it needs until tomorrow: %s"
            log.warning(text, self.options.folder, error)

    def _compact(self, days: list[tuple[bool, Path]]) -> None:
        """Compact days that are closed; of others, finish what a crash has left."""
        name = self.name
        wanted = [
            folder
            for closed, folder in days
            if is_unfinished(folder, name) or (closed and not is_compact(folder, name))
        ]
        if not wanted:
            return
        if self.options.compacts_apart and sys.executable:
            assert self._marker is not None
            compact_apart(wanted, name, self._marker)
            return
        for folder in wanted:
            compact(folder, name, self._disk)

    def _oldest_kept(self, today: str, days: set[str]) -> str:
        """The first day that stays.

        A clock that steps far ahead must not remove all days, so time has gone on from
        the newest other day by one day at most.
        """
        newest = max(days - {today}, default=today)
        reached = date.fromisoformat(newest) + timedelta(days=1)
        reached = min(reached, date.fromisoformat(today))
        return (reached - timedelta(days=self.options.days_max)).isoformat()


def _locked(path: Path) -> int | None:
    """The marker of that name, locked; None if another process has it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        # The process that had it has removed it meanwhile.
        os.close(handle)


def _read_minute(handle: int) -> int | None:
    """The minute in a marker; None if it is new."""
    text = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else None


def _event_row(writer: str, event: LedgerEvent) -> tuple[Any, ...]:
    at_ms, *others = event
    return (at_ms * 1000, writer, *others)
