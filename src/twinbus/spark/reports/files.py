"""Which files of a ledger can be read, asked before Spark reads any.

Owns the look at names and footers: a file that is damaged, of another format or of a
newer version is set aside with its reason, and all others are used. Footers are read in
parallel, and nothing else of a file. A place that Arrow cannot list, such as `s3a://`,
is given to Spark as it is. A URL may hold a password or a token: texts for people have
it without them (`without_secrets`), and nothing of a file's content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from twinbus import limits
from twinbus.errors import ConfigError
from twinbus.ledger.schema import (
    DAY_PREFIX,
    EVENT_COLUMNS,
    EVENTS_FOLDER,
    FILE_SUFFIX,
    METADATA_KEY,
    OPERATION_COLUMNS,
    VERSION,
    arrow_schema,
)

DAMAGED, FOREIGN, NEWER = "damaged", "foreign", "newer"
# Of URLs in a text: the password before the last "@", and all from "?" or ";" on.
_PASSWORD = re.compile(r"(\w://[^:@/\s]*):\S*@")
_PARAMETERS = re.compile(r"(\w://[^?;\s]*[?;])\S*")
_DAY = re.compile(rf"{DAY_PREFIX}(\d{{4}}-\d{{2}}-\d{{2}})")


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that is left out, and why."""

    path: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Days:
    """The first and the last day that are wanted; None for all."""

    first: date | None = None
    last: date | None = None

    def has(self, day: date) -> bool:
        before = self.first is not None and day < self.first
        return not before and (self.last is None or day <= self.last)


@dataclass(slots=True)
class DayFiles:
    """One day of one table: its folder, and the files of it that can be read."""

    folder: str
    good: list[fs.FileInfo] = field(default_factory=list)
    bad: list[BadFile] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """What Spark reads: the folder, unless a file of it is to be left out."""
        if self.good and not self.bad:
            return [self.folder]
        return [info.path for info in self.good]


@dataclass(slots=True)
class LedgerFiles:
    """One ledger: the days of both tables."""

    root: str
    # Whether the files were looked at.
    listed: bool = True
    operations: dict[date, DayFiles] = field(default_factory=dict)
    events: dict[date, DayFiles] = field(default_factory=dict)

    @property
    def bad(self) -> list[BadFile]:
        tables = (*self.operations.values(), *self.events.values())
        return [bad for day in tables for bad in day.bad]

    def fingerprint(self, day: date) -> str:
        """What changes when a file of the day comes, goes or changes."""
        days = (table.get(day) for table in (self.operations, self.events))
        return "\n".join(
            f"{info.path} {info.size} {info.mtime_ns}"
            for found in days
            if found is not None
            for info in found.good
        )


def fingerprint(ledgers: Iterable[LedgerFiles], day: date) -> str:
    """The same of several ledgers, as one short text."""
    text = "\n".join(ledger.fingerprint(day) for ledger in ledgers)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def find_files(root: str, days: Days) -> LedgerFiles:
    """Look at all files of a ledger; `ConfigError` if it is none."""
    opened = open_place(root)
    if opened is None:
        return LedgerFiles(root.rstrip("/"), listed=False)
    system, base = opened
    found = LedgerFiles(base)
    if system.get_file_info(base).type is not fs.FileType.Directory:
        raise ConfigError(f"--ledger {without_secrets(root)} is no folder.")
    tables = (
        (base, found.operations, OPERATION_COLUMNS),
        (f"{base}/{EVENTS_FOLDER}", found.events, EVENT_COLUMNS),
    )
    with ThreadPoolExecutor(limits.REPORT_FOOTER_THREADS) as pool:
        for folder, table, columns in tables:
            for day, place in _day_folders(system, folder):
                if days.has(day):
                    table[day] = DayFiles(place)
            names = arrow_schema(columns)
            looked = [
                (each, info, pool.submit(_look, system, info, names))
                for each in table.values()
                for info in _files(system, each.folder)
            ]
            for each, info, future in looked:
                bad = future.result()
                if bad is None:
                    each.good.append(info)
                else:
                    each.bad.append(bad)
    return found


def open_place(root: str) -> tuple[fs.FileSystem, str] | None:
    """A folder or URL as Arrow reads it; None where only Spark can."""
    if "://" not in root and not root.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(root).absolute())
    try:
        system, base = fs.FileSystem.from_uri(root)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return system, str(base).rstrip("/")


def without_secrets(text: str) -> str:
    """A text whose URLs have no password, and nothing after their path."""
    return _PARAMETERS.sub(r"\1...", _PASSWORD.sub(r"\1:...@", text))


def _day_folders(system: fs.FileSystem, folder: str) -> list[tuple[date, str]]:
    found = []
    for info in _children(system, folder):
        name = _DAY.fullmatch(info.base_name)
        if name is None or info.type is not fs.FileType.Directory:
            continue
        try:
            found.append((date.fromisoformat(name[1]), info.path))
        except ValueError:
            # The 31st of February is a folder of another kind.
            continue
    return sorted(found)


def _files(system: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    infos = _children(system, folder)
    files = [info for info in infos if info.type is fs.FileType.File]
    return sorted(files, key=lambda info: info.path)


def _children(system: fs.FileSystem, folder: str) -> Sequence[fs.FileInfo]:
    selector = fs.FileSelector(folder, allow_not_found=True)
    infos: Sequence[fs.FileInfo] = system.get_file_info(selector)
    return [info for info in infos if not info.base_name.startswith((".", "_"))]


def _look(
    system: fs.FileSystem, info: fs.FileInfo, wanted: pa.Schema
) -> BadFile | None:
    """What is wrong with a file, by its name and its footer."""

    def bad(kind: str, reason: str) -> BadFile:
        return BadFile(info.path, kind, reason)

    if not info.base_name.endswith(FILE_SUFFIX):
        return bad(FOREIGN, f"its name does not end with {FILE_SUFFIX}")
    try:
        footer = pq.read_metadata(info.path, filesystem=system)
        schema = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError, ValueError) as error:
        text = str(error).strip().partition("\n")[0]
        return bad(DAMAGED, text or type(error).__name__)
    version = (footer.metadata or {}).get(METADATA_KEY.encode())
    if version is None:
        return bad(FOREIGN, "it is no file of a ledger")
    if version != VERSION.encode():
        if not version.isdigit():
            return bad(FOREIGN, "its version is no number")
        said = version.decode()
        return bad(NEWER, f"its version is {said}, and this twinbus reads {VERSION}")
    missing = [
        each.name
        for each in wanted
        if each.name not in schema.names or schema.field(each.name).type != each.type
    ]
    if missing:
        return bad(FOREIGN, f"it has no usable column {', '.join(missing)}")
    return None


def read_through(ledgers: Sequence[LedgerFiles]) -> list[BadFile]:
    """Read every file to its end, and set those aside that cannot be read.

    For when Spark has failed although all footers were good: it takes as long as a
    report, and tells which file it was.
    """
    found = []
    for ledger in ledgers:
        opened = open_place(ledger.root)
        if opened is None:
            continue
        system = opened[0]
        for day in (*ledger.operations.values(), *ledger.events.values()):
            for info in list(day.good):
                reason = _unreadable(system, info)
                if reason is not None:
                    day.good.remove(info)
                    day.bad.append(BadFile(info.path, DAMAGED, reason))
                    found.append(day.bad[-1])
    return found


def _unreadable(system: fs.FileSystem, info: fs.FileInfo) -> str | None:
    try:
        with system.open_input_file(info.path) as file:
            opened = pq.ParquetFile(file, page_checksum_verification=True)
            for batch in opened.iter_batches():
                batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return None
