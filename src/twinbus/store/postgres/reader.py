"""Looks at a shard in PostgreSQL beside its store: messages, locks and sessions.

Owns a connection that cannot write; in a transaction it borrows that of the store. What
it sees is committed, and may be durable only a moment later.
Implements `reading.StoreReader`; knows nothing of counters in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import psycopg

from twinbus import limits
from twinbus.store.base import SEQUENCE_BITS, SEQUENCE_MASK, Stored
from twinbus.store.postgres.arrays import Integers
from twinbus.store.postgres.database import Database
from twinbus.store.queries import load
from twinbus.store.tables.reader import RowReader, told

_SQL = load("postgres", "messages", "reading")

Cursor = psycopg.Cursor[tuple[Any, ...]]
Run = Callable[[str, Any], Cursor]


class PostgresReader(RowReader):
    """A look at one shard; implements `reading.StoreReader`."""

    _driver_error = psycopg.Error
    _sql = _SQL

    def __init__(self, run: Run, close: Callable[[], None] = lambda: None) -> None:
        self._execute = run
        self.close = close

    @classmethod
    def open(cls, database: Database) -> Self:
        """Read a shard beside the nodes that serve it."""
        with told(psycopg.Error):
            connection = database.connect()
            connection.execute("SET default_transaction_read_only = on")

        def run(query: str, at: Any) -> Cursor:
            return connection.cursor(binary=True).execute(query.encode(), at)

        return cls(run, connection.close)

    def messages(
        self, container: int, start: int, wall_ms: int, session: str | None
    ) -> Iterator[Stored]:
        first = container << SEQUENCE_BITS | max(start, 0)
        end = (container + 1) << SEQUENCE_BITS
        query = _SQL["peek" if session is None else "peek_session"]
        # A few at first, since often one is asked for, and large ones may follow.
        limit = 1
        while start <= SEQUENCE_MASK and first < end:
            at = {
                "first": first,
                "end": end,
                "now_ms": wall_ms,
                "session": session,
                "limit": limit,
            }
            with told(psycopg.Error):
                rows = self._run(query, at).fetchall()
            for row in rows:
                yield Stored._make(row)
            if len(rows) < limit:
                return
            first = rows[-1][0] + 1
            limit = min(limit * 2, limits.PG_LOOK_ROWS_MAX)

    def _run(self, query: str, at: Any) -> Cursor:
        return self._execute(query, at)

    def _ids(self, ids: Sequence[int]) -> Integers:
        return Integers(ids)
