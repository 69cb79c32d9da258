"""Three nodes of ours with one PostgreSQL and a synchronous standby, on loopback.

Owns their start and end, the processor time of all of them, a transaction that stays
open beside them, and raw `COPY` into the same database.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.messages import contents
from bench.processes import cpu_seconds, twinbus
from bench.target import Target
from tests.postgres import PostgresServer

NODES = 3
# What one transaction of the raw copy has.
COPY_ROWS = 1000
# As on a server for the purpose; the tests' own are small, and not synced.
_SETTINGS = {"fsync": "on", "shared_buffers": "256MB", "max_wal_size": "4GB"}


@dataclass(slots=True)
class Site:
    """The nodes and their database."""

    targets: list[Target]
    primary: PostgresServer
    standby: PostgresServer

    def nodes_cpu_seconds(self) -> float:
        return sum(cpu_seconds(target.pid) for target in self.targets)

    def database_cpu_seconds(self) -> float:
        return cpu_seconds(self.primary.pid) + cpu_seconds(self.standby.pid)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Hold back the removal of dead rows, as a long report or a backup would."""
        with psycopg.connect(self.primary.url()) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT txid_current()")
            yield

    def copy(self, count: int) -> tuple[float, float]:
        """Raw `COPY` of messages of the same size.

        Gives rows per second, and PostgreSQL's microseconds of processor time per row.
        """
        rows = [(number, body) for number, (_, body) in enumerate(contents(count))]
        with psycopg.connect(self.primary.url()) as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS raw (id bigint PRIMARY KEY, body bytea)"
            )
            connection.execute("TRUNCATE raw")
            connection.commit()
            before, started = self.database_cpu_seconds(), time.perf_counter()
            for start in range(0, count, COPY_ROWS):
                text = "COPY raw FROM STDIN (FORMAT BINARY)"
                with connection.cursor() as cursor, cursor.copy(text) as copy:
                    copy.set_types(["int8", "bytea"])
                    for row in rows[start : start + COPY_ROWS]:
                        copy.write_row(row)
                connection.commit()
            seconds = time.perf_counter() - started
            spent = self.database_cpu_seconds() - before
            return count / seconds, spent / count * 1e6


@contextmanager
def cluster_site(folder: Path) -> Iterator[Site]:
    """Run all of it until the block ends."""
    with ExitStack() as stack:
        primary = PostgresServer.make(_SETTINGS)
        stack.callback(primary.stop)
        standby = primary.standby()
        stack.callback(standby.stop)
        both = f"{primary.folder},{standby.folder}"
        url = primary.url().replace(str(primary.folder), both)
        targets = [
            stack.enter_context(
                twinbus(folder / str(number), options=("--database", url))
            )
            for number in range(NODES)
        ]
        yield Site(targets, primary, standby)
