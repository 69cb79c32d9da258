"""The connection of a shard: statements in a pipeline, and the wait for durability.

Owns the connection, which is made anew after every error, and the pipeline on it: a
statement is sent at once, and its answer is waited for when it is read. Knows nothing
of transactions or of what statements mean.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from typing import Any

import psycopg

from twinbus import limits
from twinbus.store.postgres.database import Connection, Database
from twinbus.store.queries import load

_SYNC = load("postgres", "turns")["sync"]


class Pipe:
    """Statements to the database of one shard."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self._connection: Connection | None = None
        # All statements go through one, from the first to the last.
        self._pipeline: psycopg.Pipeline | None = None
        self._in_pipeline = contextlib.ExitStack()
        # Set when PostgreSQL gave up waiting for a standby.
        self._is_unsynced = False
        # Counts up with every connection.
        self.connections = 0
        self._use(connection)

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as it is known."""
        connection = self._connection
        return connection is not None and not connection.closed

    def _use(self, connection: Connection) -> None:
        self._connection = connection
        self.connections += 1
        connection.add_notice_handler(self._noticed)
        self._in_pipeline = contextlib.ExitStack()
        self._pipeline = self._in_pipeline.enter_context(connection.pipeline())

    def _noticed(self, note: psycopg.errors.Diagnostic) -> None:
        # By its function: the text is in the language of the server.
        if note.source_function == "SyncRepWaitForLSN":
            self._is_unsynced = True

    def drop(self) -> None:
        """Give the connection up."""
        connection, self._connection, self._pipeline = self._connection, None, None
        if connection is not None:
            connection.close()
            with contextlib.suppress(psycopg.Error):
                self._in_pipeline.close()

    def connect(self, seconds_max: float = limits.PG_CONNECT_SECONDS) -> None:
        """Have a connection, within that time; `psycopg.Error` if there is none."""
        deadline = time.monotonic() + seconds_max
        while self._connection is None:
            left = deadline - time.monotonic()
            try:
                self._use(self._database.connect(left))
            except psycopg.Error:
                if left <= limits.PG_RETRY_SECONDS:
                    raise
                threading.Event().wait(limits.PG_RETRY_SECONDS)

    def execute(
        self, query: str, at: Any = None, *, prepare: bool = True
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Put a statement into the pipeline."""
        if self._connection is None:
            raise psycopg.OperationalError("there is no connection to the database")
        cursor = self._connection.cursor(binary=True)
        cursor.execute(query.encode(), at, prepare=None if prepare else False)
        self._send_all()
        return cursor

    def _send_all(self) -> None:
        """Send what the socket did not take at once.

        The driver does not: with some megabytes it would wait for an answer, while the
        server waits for the rest.
        """
        assert self._connection is not None
        link = self._connection.pgconn
        while link.flush():
            reads, _, _ = select.select([link.socket], [link.socket], [])
            if reads:
                link.consume_input()

    def finish(self) -> None:
        """Wait until all statements are answered; raises the first error."""
        if self._pipeline is None:
            raise psycopg.OperationalError("there is no connection to the database")
        self._pipeline.sync()

    def send_sync(self) -> None:
        """Ask for a record after which all turns before it are durable."""
        self._is_unsynced = False
        self.execute(_SYNC)

    def finish_synced(self) -> None:
        """Wait as `finish` does, until the record that was asked for is durable."""
        self.finish()
        if self._is_unsynced:
            # PostgreSQL was told not to wait for a standby: ask once more.
            self.send_sync()
            self.finish()
            if self._is_unsynced:
                raise psycopg.OperationalError("no standby has confirmed the turn")
