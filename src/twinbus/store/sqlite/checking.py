"""A quick look at the files of a data folder, beside the server that has them.

Owns the check that SQLite offers for structure: pages, records and their order, without
indexes. It reads and writes nothing, takes its time from a limit, and needs no lock of
the folder. Knows nothing of messages.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote

from twinbus import limits
from twinbus.store.sqlite.file import FILE_NAME

# SQLite asks so often whether to go on: about every 10 ms.
_STEPS = 100_000
_SOUND = ["ok"]


def check_stores(data: Path, seconds_max: float) -> list[dict[str, Any]]:
    """Check every store below a data folder, all of them within that time."""
    until = monotonic() + seconds_max
    # Shards elsewhere have a link, which `**` does not follow.
    found = [*data.glob(f"*/*/{FILE_NAME}"), *data.rglob(FILE_NAME)]
    files = {file.resolve(): file for file in found}
    return [check_store(file, until) for file in sorted(files.values())]


def check_store(file: Path, until: float) -> dict[str, Any]:
    """Check one store until that moment; `sound` is None if there was no time."""
    began = monotonic()
    sound: bool | None
    try:
        problems = _problems(file, until)
        sound = problems == _SOUND
    except sqlite3.Error as error:
        problems = [str(error)]
        out_of_time = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
        sound = None if out_of_time else False
    return {
        "file": str(file),
        "size_bytes": file.stat().st_size,
        "sound": sound,
        "problems": [] if sound else problems,
        "seconds": round(monotonic() - began, 3),
    }


def _problems(file: Path, until: float) -> list[str]:
    connection = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
    try:
        connection.set_progress_handler(lambda: monotonic() >= until, _STEPS)
        most = limits.STORE_PROBLEMS_MAX
        rows = connection.execute(f"PRAGMA quick_check({most})").fetchall()
        return [str(row[0]) for row in rows]
    finally:
        connection.close()


__all__ = ["check_store", "check_stores"]
