"""A program that adds and removes rows of a bare SQLite database, for power-loss tests.

Run it as `python -m tests.faults.bare_workload FOLDER NOTES FULL|NORMAL|OFF COMMITS`.
It uses the settings of the store, commits in groups, and says in its notes what it is
about to do and what it acknowledges. Knows nothing of twinbus: it shows what SQLite
itself promises, and that the tool can tell a safe setting from an unsafe one.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from pathlib import Path

_NAME = "bare.db"
# Small, so that a short run passes many checkpoints.
_CHECKPOINT_PAGES = 30


def body_of(name: int) -> bytes:
    """The contents of a row follow from its id, so that a reader can tell damage."""
    chance = random.Random(name)
    return chance.randbytes(chance.choice((40, 900, 5000)))


def connect(folder: Path, synchronous: str) -> sqlite3.Connection:
    database = sqlite3.connect(folder / _NAME, isolation_level=None)
    database.execute("PRAGMA page_size=8192")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={synchronous}")
    database.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
    database.execute(
        "CREATE TABLE IF NOT EXISTS message (id INTEGER PRIMARY KEY, body BLOB)"
    )
    return database


def inspect(folder: Path) -> set[str]:
    """The ids that are there and whole. Raises if the database is damaged."""
    path = folder / _NAME
    if not path.exists():
        return set()
    database = sqlite3.connect(path)
    try:
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        assert verdict == "ok", verdict
        tables = database.execute("SELECT name FROM sqlite_schema").fetchall()
        if ("message",) not in tables:
            return set()
        rows = database.execute("SELECT id, body FROM message").fetchall()
    finally:
        database.close()
    for name, body in rows:
        assert body == body_of(name), f"the contents of {name} are damaged"
    return {str(name) for name, _ in rows}


def run(folder: Path, notes: Path, synchronous: str, commits: int) -> None:
    chance = random.Random(commits)
    database = connect(folder, synchronous)
    present: list[int] = []
    added = 0
    with notes.open("ab", buffering=0) as said:
        for commit in range(commits):
            if commit and commit % (commits // 3) == 0:
                # The last one to close moves everything out of the log and removes it.
                database.close()
                database = connect(folder, synchronous)
            more = list(range(added, added + chance.randint(1, 6)))
            added += len(more)
            count = chance.randint(0, min(len(present), 6))
            less = [present.pop(0) for _ in range(count)]
            changes = " ".join([f"+{name}" for name in more] + [f"-{n}" for n in less])
            os.write(said.fileno(), f"? {changes}\n".encode())
            database.execute("BEGIN IMMEDIATE")
            for name in more:
                database.execute(
                    "INSERT INTO message VALUES (?, ?)", (name, body_of(name))
                )
            for name in less:
                database.execute("DELETE FROM message WHERE id = ?", (name,))
            database.execute("COMMIT")
            os.write(said.fileno(), f"! {changes}\n".encode())
            present += more
    database.close()


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
