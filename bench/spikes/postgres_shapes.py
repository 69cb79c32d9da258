"""Shapes that a turn against PostgreSQL could have; `postgres_turn.py` compares them.

Owns the tables of the spike and one class per shape, with the same two turns: `send`
keeps a batch, `take` removes one in order. When they return, the turn is on disk. Each
counts the seconds of its last round trip. Knows nothing of processes or time.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from twinbus.clock import Now
from twinbus.store.opening import open_store
from twinbus.store.records import Record

_BODY_BYTES = 1024
_HEAD_BYTES = 48

SCHEMA = """
DROP TABLE IF EXISTS shard, message, turn;
DROP SEQUENCE IF EXISTS numbers;
CREATE TABLE shard (
    id int PRIMARY KEY, epoch bigint NOT NULL, lease_until timestamptz NOT NULL,
    last bigint NOT NULL, head bigint NOT NULL
);
-- Inserted and deleted, never updated.
CREATE TABLE message (
    id bigint PRIMARY KEY, enqueued_ms bigint NOT NULL,
    head bytea NOT NULL, bare bytea NOT NULL
);
-- One row per turn: the counters after it.
CREATE TABLE turn (
    number bigint PRIMARY KEY, last bigint NOT NULL, head bigint NOT NULL
);
CREATE SEQUENCE numbers CACHE 1000;
INSERT INTO shard VALUES (1, 1, now() + interval '1 hour', 0, 0);
INSERT INTO turn VALUES (0, 0, 0);
"""
_LOCK = "SELECT 1 FROM shard WHERE id = 1 FOR UPDATE"
_COUNTERS = "SELECT number, last, head FROM turn ORDER BY number DESC LIMIT 1"
_LOG = "INSERT INTO turn VALUES (%b::bigint, %b::bigint, %b::bigint)"
_INSERT = "INSERT INTO message VALUES (%b::bigint, 0, %b, %b)"
_INSERT_RUN = """
INSERT INTO message
SELECT %b::bigint + place, 0, head, bare
FROM unnest(%b::bytea[], %b::bytea[]) WITH ORDINALITY AS sent (head, bare, place)
"""
_READY = """
SELECT id, head, bare FROM message
WHERE id > (SELECT head FROM turn ORDER BY number DESC LIMIT 1)
ORDER BY id LIMIT %b::bigint
"""
_DELETE = "DELETE FROM message WHERE id = %b::bigint"
_DELETE_RUN = "DELETE FROM message WHERE id > %b::bigint AND id <= %b::bigint"
# An error, and with it the end of the transaction, if the epoch is another one.
_FENCE = """
SELECT 1 / count(*)
FROM (SELECT 1 FROM shard WHERE id = 1 AND epoch = %b::bigint FOR UPDATE) AS held
"""


class Sent(NamedTuple):
    """A message to be kept."""

    head: bytes
    bare: bytes


# Messages to keep, or how many to take.
Ask = list[Sent] | int


class Found(NamedTuple):
    """The counters of the queue, as the newest turn left them."""

    number: int
    last: int
    head: int


def messages(count: int) -> list[Sent]:
    """A batch to send."""
    return [Sent(os.urandom(_HEAD_BYTES), os.urandom(_BODY_BYTES))] * count


# -- shapes of a turn ------------------------------------------------------------------


class RowLock:
    """Lock the shard's row, read, decide, write runs and commit: two round trips."""

    processes_max = 3

    def __init__(self, where: str) -> None:
        self.db = psycopg.connect(where, autocommit=True, prepare_threshold=0)
        # Seconds of the last round trip of each turn: its writes and its commit.
        self.commits: list[float] = []

    def run(self, query: str, *at: Any) -> Any:
        """Run a statement; in a pipeline, its answer comes when it is fetched."""
        return self.db.execute(query, at, binary=True)

    def end(self, pipe: Any, started: float) -> None:
        """Send all of the pipeline and wait for its end, which has the commit.

        psycopg 3.3 ignores that a flush was not complete and waits for an answer, while
        the server waits for the rest: from some megabytes on, `sync` alone hangs.
        """
        connection = self.db.pgconn
        while connection.flush():
            reads, _, _ = select.select([connection.socket], [connection.socket], [])
            if reads:
                connection.consume_input()
        pipe.sync()
        self.commits.append(time.perf_counter() - started)

    def begin(self) -> Any:
        """Take the shard's lock; returns where the counters are read from."""
        self.run("BEGIN")
        self.run(_LOCK)
        return self.run(_COUNTERS)

    def commit(self, found: Found) -> None:
        """Write the counters and commit."""
        self.run(_LOG, found.number + 1, found.last, found.head)
        self.run("COMMIT")

    def send(self, batch: Sequence[Sent]) -> None:
        """A turn that keeps messages."""
        with self.db.pipeline() as pipe:
            found = Found._make(self.begin().fetchone())
            started = time.perf_counter()
            self.insert(found.last, batch)
            self.commit(found._replace(last=found.last + len(batch)))
            self.end(pipe, started)

    def take(self, limit: int) -> list[Sent]:
        """A turn that removes messages in order and returns them."""
        with self.db.pipeline() as pipe:
            counters, ready = self.begin(), self.run(_READY, limit)
            found, rows = Found._make(counters.fetchone()), ready.fetchall()
            started = time.perf_counter()
            if rows:
                self.delete(found.head, rows)
                found = found._replace(head=rows[-1][0])
            self.commit(found)
            self.end(pipe, started)
        return [Sent(head, bare) for _, head, bare in rows]

    def insert(self, last: int, batch: Sequence[Sent]) -> None:
        """Keep messages, numbered from `last` on."""
        self.run(_INSERT_RUN, last, [m.head for m in batch], [m.bare for m in batch])

    def delete(self, head: int, rows: Sequence[Any]) -> None:
        """Remove messages that follow on the head."""
        self.run(_DELETE_RUN, head, rows[-1][0])


class EarlyRelease(RowLock):
    """Commit without a sync, which ends the lock, then sync before the answer.

    So the sync is outside the lock, and PostgreSQL does it for several nodes at once.
    The log of the database is synced in its order, so what another process read of this
    turn is on disk when that process has synced its own.
    """

    def commit(self, found: Found) -> None:
        self.run("SET LOCAL synchronous_commit = off")
        super().commit(found)
        self.run("SELECT pg_logical_emit_message(true, 'turn', '')")


class StatementPerMessage(RowLock):
    """The same with a statement for each message, pipelined: two round trips."""

    def insert(self, last: int, batch: Sequence[Sent]) -> None:
        for number, message in enumerate(batch, last + 1):
            self.run(_INSERT, number, *message)

    def delete(self, head: int, rows: Sequence[Any]) -> None:
        del head
        for row in rows:
            self.run(_DELETE, row[0])


class RoundTripPerMessage(StatementPerMessage):
    """The same with each statement answered before the next: what a port would do."""

    def send(self, batch: Sequence[Sent]) -> None:
        found = Found._make(self.begin().fetchone())
        self.insert(found.last, batch)
        started = time.perf_counter()
        self.commit(found._replace(last=found.last + len(batch)))
        self.commits.append(time.perf_counter() - started)

    def take(self, limit: int) -> list[Sent]:
        found = Found._make(self.begin().fetchone())
        rows = self.run(_READY, limit).fetchall()
        self.delete(found.head, rows)
        started = time.perf_counter()
        head = rows[-1][0] if rows else found.head
        self.commit(found._replace(head=head))
        self.commits.append(time.perf_counter() - started)
        return [Sent(head, bare) for _, head, bare in rows]


class Copy(RowLock):
    """Sends by binary COPY, which cannot be pipelined: four round trips."""

    _ROW = struct.Struct("!hiqiqi")
    _SIZE = struct.Struct("!i")

    def send(self, batch: Sequence[Sent]) -> None:
        with self.db.pipeline():
            found = Found._make(self.begin().fetchone())
        started = time.perf_counter()
        with self.db.cursor().copy("COPY message FROM STDIN (FORMAT binary)") as copy:
            copy.write(b"".join(self._rows(found.last, batch)))
        with self.db.pipeline() as pipe:
            self.commit(found._replace(last=found.last + len(batch)))
            self.end(pipe, started)

    def _rows(self, last: int, batch: Sequence[Sent]) -> Iterator[bytes]:
        yield b"PGCOPY\n\xff\r\n\0" + bytes(8)
        for number, (head, bare) in enumerate(batch, last + 1):
            yield self._ROW.pack(4, 8, number, 8, 0, len(head))
            yield head
            yield self._SIZE.pack(len(bare))
            yield bare
        yield b"\xff\xff"


class OneRoundTrip(RowLock):
    """The database numbers and chooses; nothing is decided in between."""

    _SEND = """
    WITH newest AS (SELECT * FROM turn ORDER BY number DESC LIMIT 1), kept AS (
        INSERT INTO message
        SELECT newest.last + place, 0, sent.head, bare
        FROM newest, unnest(%b::bytea[], %b::bytea[])
            WITH ORDINALITY AS sent (head, bare, place)
    )
    INSERT INTO turn SELECT number + 1, last + %b::bigint, head FROM newest
    """
    _TAKE = """
    WITH newest AS (SELECT * FROM turn ORDER BY number DESC LIMIT 1), gone AS (
        DELETE FROM message WHERE id IN (
            SELECT id FROM message WHERE id > (SELECT head FROM newest)
            ORDER BY id LIMIT %b::bigint
        ) RETURNING id, head, bare
    ), logged AS (
        INSERT INTO turn
        SELECT number + 1, last, coalesce((SELECT max(id) FROM gone), head) FROM newest
    )
    SELECT id, head, bare FROM gone ORDER BY id
    """

    def _turn(self, query: str, *at: Any) -> Any:
        with self.db.pipeline() as pipe:
            started = time.perf_counter()
            self.run("BEGIN")
            self.run(_LOCK)
            answer = self.run(query, *at)
            self.run("COMMIT")
            self.end(pipe, started)
        return answer

    def send(self, batch: Sequence[Sent]) -> None:
        heads, bares = [m.head for m in batch], [m.bare for m in batch]
        self._turn(self._SEND, heads, bares, len(batch))

    def take(self, limit: int) -> list[Sent]:
        rows = self._turn(self._TAKE, limit).fetchall()
        return [Sent(head, bare) for _, head, bare in rows]


class CountersInRow(RowLock):
    """The counters are columns of the shard's row, updated by every turn."""

    def begin(self) -> Any:
        self.run("BEGIN")
        return self.run("SELECT 0, last, head FROM shard WHERE id = 1 FOR UPDATE")

    def commit(self, found: Found) -> None:
        update = "UPDATE shard SET last = %b::bigint, head = %b::bigint WHERE id = 1"
        self.run(update, found.last, found.head)
        self.run("COMMIT")

    def take(self, limit: int) -> list[Sent]:
        with self.db.pipeline() as pipe:
            counters = self.begin()
            query = _READY.replace(
                "FROM turn ORDER BY number DESC LIMIT 1", "FROM shard"
            )
            ready = self.run(query, limit)
            found, rows = Found._make(counters.fetchone()), ready.fetchall()
            started = time.perf_counter()
            self.delete(found.head, rows)
            self.commit(found._replace(head=rows[-1][0]))
            self.end(pipe, started)
        return [Sent(head, bare) for _, head, bare in rows]


class SkipLocked(RowLock):
    """No shard: each taker locks free rows and skips those of others. No order."""

    _SEND = """
    INSERT INTO message SELECT nextval('numbers'), 0, head, bare
    FROM unnest(%b::bytea[], %b::bytea[]) AS sent (head, bare)
    """
    _TAKE = """
    DELETE FROM message WHERE id = ANY (ARRAY(
        SELECT id FROM message ORDER BY id LIMIT %b::bigint FOR UPDATE SKIP LOCKED
    )) RETURNING id, head, bare
    """

    def send(self, batch: Sequence[Sent]) -> None:
        started = time.perf_counter()
        self.run(self._SEND, [m.head for m in batch], [m.bare for m in batch])
        self.commits.append(time.perf_counter() - started)

    def take(self, limit: int) -> list[Sent]:
        started = time.perf_counter()
        rows = self.run(self._TAKE, limit).fetchall()
        self.commits.append(time.perf_counter() - started)
        return [Sent(head, bare) for _, head, bare in rows]


class Lease(RowLock):
    """One owner with counters in memory, checked by its epoch; others ask it."""

    _READY = """
    SELECT id, head, bare FROM message WHERE id > %b::bigint
    ORDER BY id LIMIT %b::bigint
    """

    def __init__(self, where: str) -> None:
        super().__init__(where)
        (self.epoch,) = self.run("SELECT epoch FROM shard WHERE id = 1").fetchone()
        self.found = Found._make(self.run(_COUNTERS).fetchone())

    def turn(self, sends: Sequence[Sent], limit: int) -> list[Sent]:
        """Keep what all processes sent, and take for all: one commit."""
        found, rows = self.found, []
        with self.db.pipeline() as pipe:
            self.run("BEGIN")
            self.run(_FENCE, self.epoch)
            started = time.perf_counter()
            if sends:
                self.insert(found.last, sends)
                found = found._replace(last=found.last + len(sends))
            if limit:
                rows = self.run(self._READY, found.head, limit).fetchall()
                started = time.perf_counter()
            if rows:
                self.delete(found.head, rows)
                found = found._replace(head=rows[-1][0])
            self.commit(found)
            self.end(pipe, started)
        self.found = found._replace(number=found.number + 1)
        return [Sent(head, bare) for _, head, bare in rows]

    def send(self, batch: Sequence[Sent]) -> None:
        self.turn(batch, 0)

    def take(self, limit: int) -> list[Sent]:
        return self.turn((), limit)

    def serve(self, asks: Sequence[Ask]) -> list[list[Sent]]:
        """One turn for all that the processes ask for; an answer for each."""
        sends = [m for ask in asks if isinstance(ask, list) for m in ask]
        rows = self.turn(sends, sum(ask for ask in asks if isinstance(ask, int)))
        answers: list[list[Sent]] = []
        for ask in asks:
            count = ask if isinstance(ask, int) else 0
            answers.append(rows[:count])
            rows = rows[count:]
        return answers


class Asking:
    """A process beside the owner: its turns are questions to it."""

    def __init__(self, owner: Connection) -> None:
        self._owner = owner
        self.commits: list[float] = []

    def send(self, batch: Sequence[Sent]) -> None:
        self._ask(list(batch))

    def take(self, limit: int) -> list[Sent]:
        return self._ask(limit)

    def _ask(self, what: Ask) -> list[Sent]:
        started = time.perf_counter()
        self._owner.send(what)
        answer: list[Sent] = self._owner.recv()
        self.commits.append(time.perf_counter() - started)
        return answer


class OurStore:
    """The store of today: SQLite, in one process, through its contract."""

    processes_max = 1

    def __init__(self, where: str) -> None:
        self._store = open_store(Path(where))
        self.commits: list[float] = []
        with self._turn():
            self._queue = self._store.insert_entity("queue", "q", "{}", 1)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self._store.begin()
        yield
        started = time.perf_counter()
        self._store.commit()
        self.commits.append(time.perf_counter() - started)

    def send(self, batch: Sequence[Sent]) -> None:
        with self._turn():
            self._store.append(self._queue, [Record(*m) for m in batch], Now.at(1))

    def take(self, limit: int) -> list[Sent]:
        with self._turn():
            taken = self._store.take(self._queue, limit, Now.at(1))
        return [Sent(stored.head, stored.bare) for stored in taken]


LEASE = "lease, others ask the owner"
SHAPES: dict[str, type[RowLock | OurStore]] = {
    "our store (SQLite)": OurStore,
    "row lock, runs": RowLock,
    "row lock, runs, one round trip": OneRoundTrip,
    "row lock, runs, early release": EarlyRelease,
    "row lock, COPY": Copy,
    "row lock, statement per message": StatementPerMessage,
    "row lock, round trip per message": RoundTripPerMessage,
    LEASE: Lease,
    "no shard, SKIP LOCKED": SkipLocked,
}
PINNED: dict[str, type[RowLock | OurStore]] = {
    "row lock, counters in the turn log": RowLock,
    "row lock, counters in the shard's row": CountersInRow,
    "no shard, SKIP LOCKED": SkipLocked,
}
ALL = SHAPES | PINNED
