"""How a file of a ledger appears and goes.

Owns names, durability and who may read: the owner alone. A file is written under a
hidden name, synced and renamed, so that a reader sees all of it or none. Names of a
writer's files begin with the writer's name, so that several may share a folder and each
touches its own files alone.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import BinaryIO

from twinbus import limits
from twinbus.ledger.schema import DAY_PREFIX, EVENTS_FOLDER, FILE_SUFFIX

_DAY = re.compile(rf"{DAY_PREFIX}(\d{{4}}-\d{{2}}-\d{{2}})")
_UNUSUAL = re.compile(r"[^A-Za-z0-9.]+")
TEMPORARY = ".tmp-"


def day_of(wall_ms: int) -> str:
    """The day of a moment, in UTC: `2026-11-15`."""
    return _moment(wall_ms).strftime("%Y-%m-%d")


def _moment(wall_ms: int) -> datetime:
    return datetime.fromtimestamp(wall_ms / 1000, UTC)


def writer_name(*words: str) -> str:
    """A name for a writer that can be part of a file's name."""
    joined = _UNUSUAL.sub("-", "-".join(word for word in words if word)).strip("-.")
    return joined[: limits.LEDGER_WRITER_CHARS_MAX] or "writer"


def file_name(writer: str, minute_ms: int) -> str:
    """A new name for the rows of a minute."""
    time = _moment(minute_ms).strftime("%H%M%S")
    return f"{writer}-{time}-{secrets.token_hex(4)}{FILE_SUFFIX}"


def own_files(folder: Path, writer: str) -> list[str]:
    """The names of a writer's files in the folder of a day, oldest first."""
    ours = re.compile(rf"{re.escape(writer)}-\d{{6}}-[0-9a-f]{{8}}{FILE_SUFFIX}")
    return [name for name in _names(folder) if ours.fullmatch(name)]


def hidden_files(folder: Path, prefix: str, writer: str) -> list[str]:
    """The names of a writer's hidden files of one kind in the folder of a day."""
    ours = re.compile(
        rf"{re.escape(prefix + writer)}-\d{{6}}-[0-9a-f]{{8}}{FILE_SUFFIX}"
    )
    return [name for name in _names(folder) if ours.fullmatch(name)]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []


def day_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """The days of both tables, each with its folder."""
    for table in (root, root / EVENTS_FOLDER):
        for name in _names(table):
            found = _DAY.fullmatch(name)
            if found is not None and _is_day(found[1]):
                yield found[1], table / name


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        # The 31st of February is a folder of another kind.
        return False
    return True


def make_folder(path: Path) -> None:
    """Make a folder and those above it, for the owner alone."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


class LedgerDisk:
    """What is done to files; each step is on disk when it returns."""

    def write(self, path: Path, fill: Callable[[BinaryIO], object]) -> None:
        """Make a file with what `fill` writes into it."""
        make_folder(path.parent)
        # Names of entities are not public.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            fill(file)
        _sync(path)

    def rename(self, path: Path, name: str) -> None:
        """Give a file another name in its folder."""
        path.replace(path.with_name(name))
        _sync(path.parent)

    def remove(self, folder: Path, names: Iterable[str]) -> None:
        """Remove files, which may be gone already."""
        for name in names:
            (folder / name).unlink(missing_ok=True)
        _sync(folder)


def _sync(path: Path) -> None:
    """Sync a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
