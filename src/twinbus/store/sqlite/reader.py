"""Looks at the SQLite file beside the store: messages, locks and sessions, read only.

Owns a connection that cannot write; in a transaction it borrows that of the store. The
log of the database lets readers and the writer work at the same time.
Implements `reading.StoreReader`; knows nothing of counters in memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from twinbus import limits
from twinbus.errors import StoreFault
from twinbus.store.base import SEQUENCE_BITS, SEQUENCE_MASK, Stored
from twinbus.store.queries import load
from twinbus.store.reading import SessionRow
from twinbus.store.sqlite.file import FILE_NAME

_SQL = load("sqlite", "messages", "reading")


class SqliteReader:
    """A look at one file; implements `reading.StoreReader`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read the store in a folder, beside the process that has it."""
        with _told():
            connection = sqlite3.connect(
                f"{(folder / FILE_NAME).resolve().as_uri()}?mode=ro",
                uri=True,
                timeout=limits.SQLITE_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.text_factory = _decoded
            connection.execute("PRAGMA query_only = ON")
        return cls(connection)

    def messages(
        self, container: int, start: int, wall_ms: int, session: str | None
    ) -> Iterator[Stored]:
        if start > SEQUENCE_MASK:
            return
        at = {
            "first": container << SEQUENCE_BITS | max(start, 0),
            "end": (container + 1) << SEQUENCE_BITS,
            "now_ms": wall_ms,
            "session": session,
            "limit": -1,
        }
        query = _SQL["peek" if session is None else "peek_session"]
        with _told():
            cursor = self._connection.execute(query, at)
            try:
                for row in cursor:
                    yield Stored._make(row)
            finally:
                cursor.close()

    def oldest_ms(self, containers: Iterable[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        with _told():
            for container in containers:
                base = container << SEQUENCE_BITS
                at = (base, base | SEQUENCE_MASK)
                row = self._connection.execute(_SQL["oldest"], at).fetchone()
                if row is not None:
                    found[container] = row[0]
        return found

    def locked(self, ids: Sequence[int]) -> set[int]:
        with _told():
            rows = self._connection.execute(_SQL["locked_ids"], (json.dumps([*ids]),))
            return {row[0] for row in rows}

    def sessions(self, container: int, after: str, limit: int) -> list[SessionRow]:
        at = {"container": container, "after": after, "limit": limit}
        with _told():
            rows = self._connection.execute(_SQL["sessions_after"], at)
            return [SessionRow._make(row) for row in rows]

    def close(self) -> None:
        self._connection.close()


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        text = f"The database of the namespace cannot be read ({error}). Try again."
        raise StoreFault(text) from error
