"""Copies a namespace from its folder into a database, while it is stopped.

Owns the way of each table, in one transaction of the database, and the check: every
row is read again, and counts and hashes must be those of the folder. Rules: the folder
is only read, and no other process may have it; the database must not have the namespace
yet. Steady times (ends of locks, windows) go on by the clock of the database.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from heapq import merge
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from twinbus import limits
from twinbus.errors import ConfigError
from twinbus.store.base import FOREVER_MS
from twinbus.store.opening import DatabaseUrl
from twinbus.store.postgres.database import Connection, Database
from twinbus.store.sqlite.file import SqliteFile
from twinbus.store.sqlite.packs import Pack, packs_in

# Settings that are about the folder.
_OF_THE_FOLDER = ("clock", "shard", "turn", "twinbus.probe")
_CLOCK = "clock"


class _Table(NamedTuple):
    """A table, its columns with their types, and which are steady times."""

    name: str
    columns: dict[str, str]
    steady: tuple[str, ...] = ()
    # What is read instead of the table itself.
    source: str = ""
    # The first columns that make the order, which is the same in both databases.
    key: int = 1


_MESSAGE = {
    "id": "int8",
    "enqueued_ms": "int8",
    "deliveries": "int8",
    "expires_ms": "int8",
    "session": "text",
    "origin": "int8",
    "source": "text",
    "head": "bytea",
    "bare": "bytea",
}
_TABLES = (
    _Table(
        "entity",
        {
            "id": "int8",
            "kind": "text",
            "key": "text",
            "body": "text",
            "created_ms": "int8",
            "updated_ms": "int8",
        },
    ),
    _Table(
        "container",
        dict.fromkeys(
            (
                "id",
                "last_sequence",
                "head",
                "active",
                "deferred",
                "scheduled",
                "size_bytes",
                "accessed_ms",
                "held_sessions",
            ),
            "int8",
        ),
    ),
    _Table("message", _MESSAGE),
    _Table(
        "mark",
        dict.fromkeys(("id", "deliveries", "state"), "int8"),
        source="SELECT id, 0, state FROM message WHERE state <> 0",
    ),
    _Table("scheduled", {**_MESSAGE, "due_ms": "int8"}),
    _Table(
        "lock", dict.fromkeys(("id", "nonce", "until_ms"), "int8"), steady=("until_ms",)
    ),
    _Table("returned", {"id": "int8"}),
    _Table(
        "session",
        {
            "container": "int8",
            "name": "text",
            **dict.fromkeys(("active", "messages", "served_ms", "head"), "int8"),
            **dict.fromkeys(("nonce", "until_ms"), "int8"),
        },
        steady=("served_ms", "until_ms"),
        key=2,
    ),
    _Table(
        "session_state",
        {"container": "int8", "name": "text", "updated_ms": "int8", "state": "bytea"},
        key=2,
    ),
    _Table(
        "duplicate",
        {"container": "int8", "key": "text", "until_ms": "int8"},
        steady=("until_ms",),
        key=2,
    ),
    _Table(
        "quarantine",
        {**_MESSAGE, "due_ms": "int8", "reason": "text", "state": "int8"},
    ),
)


def copy_namespace(
    folder: Path,
    url: DatabaseUrl,
    name: str,
    report: Callable[[int], None] = lambda _rows: None,
) -> dict[str, int]:
    """Copy the namespace of a folder into a database; returns the rows of each table.

    `report` is told now and then how many more rows were copied.
    `ConfigError` says why it cannot be copied; then the database is as it was, but for
    an empty schema.
    """
    if list(folder.glob("shard-*")):
        raise ConfigError(
            f"The namespace in {folder} has several shards, and in a database it has "
            "one. Move its messages with a pair or by your own clients."
        )
    database = Database(url.reveal(), name, 0)
    source = SqliteFile(folder)
    try:
        source.connection.text_factory = _text
        with closing(database.open()) as target, target.transaction():
            _check_target(target, database, name)
            try:
                return _Copy(source.connection, target, report).run()
            except psycopg.DataError as error:
                raise ConfigError(
                    f"A row of {folder} cannot be kept in PostgreSQL ({error})."
                ) from None
    finally:
        source.close()


def _check_target(target: Connection, database: Database, name: str) -> None:
    target.execute("SELECT folded FROM shard FOR UPDATE")
    row = target.execute(
        "SELECT (SELECT count(*) FROM entity) + (SELECT count(*) FROM setting), "
        "(SELECT count(*) FROM node WHERE seen_at > now() - %s * interval '1 second')",
        (limits.PG_NODE_SEEN_SECONDS,),
    ).fetchone()
    assert row is not None
    if row[1]:
        raise ConfigError(
            f"A server has the namespace {name} in {database.where}. Stop it first."
        )
    if row[0]:
        raise ConfigError(
            f"There is a namespace {name} in {database.where} already. Choose another "
            f"--namespace, or drop its schema {database.schema} first."
        )


class _Copy:
    """One copy, inside the transaction of the database."""

    def __init__(
        self,
        source: sqlite3.Connection,
        target: Connection,
        report: Callable[[int], None],
    ) -> None:
        self._source = source
        self._target = target
        self._report = report
        self._shift_ms = _shift_ms(source)
        self._rows = 0

    def run(self) -> dict[str, int]:
        """Copy and check every table."""
        found = {table.name: self._copy(table) for table in _TABLES}
        settings = self._source.execute("SELECT name, value FROM setting").fetchall()
        for name, value in settings:
            if name not in _OF_THE_FOLDER:
                query = "INSERT INTO setting VALUES (%s, %s)"
                self._target.execute(query, (name, value))
        last = self._source.execute(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entity'"
        ).fetchone()
        self._target.execute("UPDATE last_entity SET id = %s", last)
        return found

    def _copy(self, table: _Table) -> int:
        columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
        name = sql.Identifier(table.name)
        into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(name, columns)
        written = hashlib.blake2b()
        with self._target.cursor().copy(into) as copy:
            copy.set_types(list(table.columns.values()))
            rows = _hashed(self._read(table), written)
            count = sum(1 for _ in map(copy.write_row, rows))
        order = sql.SQL(", ").join(
            map(sql.Identifier, list(table.columns)[: table.key])
        )
        back = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(columns, name, order)
        found = hashlib.blake2b()
        with self._target.cursor("check", binary=True) as cursor:
            cursor.execute(back)
            again = sum(1 for _ in _hashed(cursor, found))
        if (count, written.digest()) != (again, found.digest()):
            raise ConfigError(
                f"The rows of {table.name} are not the same in both databases: {count} "
                f"in the folder, {again} in PostgreSQL. Nothing was copied."
            )
        return count

    def _source_rows(self, table: _Table) -> Iterator[tuple[Any, ...]]:
        """The rows of a table; messages in packs, and their locks, have one each."""
        rows = self._source.execute(_query(table))
        if table.name == "message":
            return merge(rows, _packed_rows(self._source))
        if table.name == "lock":
            return merge(rows, _packed_locks(self._source))
        return rows

    def _read(self, table: _Table) -> Iterator[tuple[Any, ...]]:
        """The rows of a table, with its steady times moved."""
        moved = [
            place for place, name in enumerate(table.columns) if name in table.steady
        ]
        for row in self._source_rows(table):
            self._rows += 1
            if self._rows % limits.COPY_REPORT_ROWS == 0:
                self._report(limits.COPY_REPORT_ROWS)
            if moved:
                values = list(row)
                for place in moved:
                    if values[place] is not None and values[place] != FOREVER_MS:
                        values[place] += self._shift_ms
                yield tuple(values)
            else:
                yield row


def _query(table: _Table) -> str:
    order = ", ".join(list(table.columns)[: table.key])
    columns = ", ".join(table.columns)
    # Both are our own.
    source = table.source or f"SELECT {columns} FROM {table.name}"  # noqa: S608
    return f"{source} ORDER BY {order}"


def _all_packs(source: sqlite3.Connection) -> Iterator[Pack]:
    # Ids of messages have 63 bits.
    return packs_in(source, 0, (1 << 63) - 1)


def _packed_rows(source: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """The messages in packs, with the columns of `_MESSAGE`."""
    for pack in _all_packs(source):
        for each in pack.messages():
            times = (each.enqueued_ms, each.deliveries, each.expires_ms)
            came = (each.session, each.origin, each.source)
            yield (each.id, *times, *came, each.head, each.bare)


def _packed_locks(source: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """The locks of messages in packs."""
    for pack in _all_packs(source):
        if pack.nonce is not None:
            for key in range(pack.first, pack.last + 1):
                yield (key, pack.nonce, pack.until_ms)


def _hashed(rows: Iterable[tuple[Any, ...]], into: Any) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        into.update(repr(row).encode())
        yield row


def _shift_ms(source: sqlite3.Connection) -> int:
    """From the steady time of the folder to that of the database: its wall time."""
    query = "SELECT value FROM setting WHERE name = ?"
    row = source.execute(query, (_CLOCK,)).fetchone()
    if row is None:
        return 0
    steady_ms, wall_ms = map(int, row[0].split())
    return wall_ms - steady_ms


def _text(value: bytes) -> str:
    """Text as it is; what cannot be read is in quarantine."""
    return value.decode("utf-8", "replace")
