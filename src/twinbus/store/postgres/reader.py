"""Looks at a shard in PostgreSQL beside its store: messages, locks and sessions.

Owns a connection that cannot write; in a transaction it borrows that of the store. What
it sees is committed, and may be durable only a moment later.
Implements `reading.StoreReader`; knows nothing of counters in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import psycopg

from twinbus import limits
from twinbus.errors import StoreFault
from twinbus.store.base import SEQUENCE_BITS, SEQUENCE_MASK, Stored
from twinbus.store.postgres.database import Database
from twinbus.store.queries import load
from twinbus.store.reading import SessionRow

_SQL = load("postgres", "messages", "reading")

Run = Callable[[str, Any], psycopg.Cursor[tuple[Any, ...]]]


class PostgresReader:
    """A look at one shard; implements `reading.StoreReader`."""

    def __init__(self, run: Run, close: Callable[[], None] = lambda: None) -> None:
        self._run = run
        self.close = close

    @classmethod
    def open(cls, database: Database) -> Self:
        """Read a shard beside the nodes that serve it."""
        with _told():
            connection = database.connect()
            connection.execute("SET default_transaction_read_only = on")

        def run(query: str, at: Any) -> psycopg.Cursor[tuple[Any, ...]]:
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
            with _told():
                rows = self._run(query, at).fetchall()
            for row in rows:
                yield Stored._make(row)
            if len(rows) < limit:
                return
            first = rows[-1][0] + 1
            limit = min(limit * 2, limits.PG_LOOK_ROWS_MAX)

    def oldest_ms(self, containers: Iterable[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        with _told():
            for container in containers:
                base = container << SEQUENCE_BITS
                at = (base, base | SEQUENCE_MASK)
                row = self._run(_SQL["oldest"], at).fetchone()
                if row is not None:
                    found[container] = row[0]
        return found

    def locked(self, ids: Sequence[int]) -> set[int]:
        with _told():
            rows = self._run(_SQL["locked_ids"], ([*ids],)).fetchall()
        return {row[0] for row in rows}

    def sessions(self, container: int, after: str, limit: int) -> list[SessionRow]:
        at = {"container": container, "after": after, "limit": limit}
        with _told():
            rows = self._run(_SQL["sessions_after"], at).fetchall()
        return [SessionRow._make(row) for row in rows]


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        text = f"The database of the namespace cannot be read ({error}). Try again."
        raise StoreFault(text) from error
