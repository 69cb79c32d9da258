"""Looks at the SQLite file beside the store: messages, locks and sessions, read only.

Owns a connection that cannot write; in a transaction it borrows that of the store. The
log of the database lets readers and the writer work at the same time.
Implements `reading.StoreReader`; knows nothing of counters in memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from heapq import merge
from pathlib import Path
from typing import Any, Self

from twinbus import limits
from twinbus.store.base import SEQUENCE_BITS, SEQUENCE_MASK, Stored
from twinbus.store.queries import load
from twinbus.store.sqlite.file import FILE_NAME
from twinbus.store.sqlite.packs import packed_messages
from twinbus.store.tables.reader import RowReader, told

_SQL = load("sqlite", "messages", "reading")


class SqliteReader(RowReader):
    """A look at one file; implements `reading.StoreReader`."""

    _driver_error = sqlite3.Error
    _sql = _SQL

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read the store in a folder, beside the process that has it."""
        with told(sqlite3.Error):
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
        first = container << SEQUENCE_BITS | max(start, 0)
        end = (container + 1) << SEQUENCE_BITS
        at = {
            "first": first,
            "end": end,
            "now_ms": wall_ms,
            "session": session,
            "limit": -1,
        }
        query = _SQL["peek" if session is None else "peek_session"]
        with told(sqlite3.Error), ExitStack() as stack:
            cursor = stack.enter_context(closing(self._connection.execute(query, at)))
            found: Iterator[Stored] = map(Stored._make, cursor)
            if session is None:
                packed = packed_messages(self._connection, first, end)
                # Packs first: their messages may become rows meanwhile, and rows
                # never become packs.
                found = merge(stack.enter_context(closing(packed)), found)
            yield from found

    def _run(self, query: str, at: Any) -> sqlite3.Cursor:
        return self._connection.execute(query, at)

    def _ids(self, ids: Sequence[int]) -> str:
        return json.dumps([*ids])

    def close(self) -> None:
        self._connection.close()


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
