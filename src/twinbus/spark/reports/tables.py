"""A ledger as two DataFrames, and the words of a report as columns of them.

Owns which stage a row is of, what a namespace is called (a server says `contoso`, a
client says `contoso.servicebus.windows.net`), and how files become rows. `day` is that
of the folder. Must not know what is computed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from twinbus.cost.forecast import (
    FROM_BACKLOG,
    FROM_PRIMARY,
    PINGS,
    POLLS,
    SETTLEMENTS,
    TO_BACKLOG,
    TO_PRIMARY,
)
from twinbus.ledger.schema import (
    DAY_PREFIX,
    EVENT_COLUMNS,
    EVENTS_FOLDER,
    OPERATION_COLUMNS,
    PING,
    POLL,
    RECEIVE,
    SEND,
    SETTLE,
)
from twinbus.pairing.rules.naming import MIDDLE
from twinbus.spark.reports.files import Days, LedgerFiles, find_files

# What belongs to no stage: renewals, schedules, peeks and administration.
OTHER = "other"

_TYPES = {"time": "timestamp", "string": "string", "int32": "int", "int64": "bigint"}
_MARK = f"/{MIDDLE}/"


@dataclass(frozen=True, slots=True)
class LedgerTables:
    """The two tables of one or more ledgers, and the files that they come from."""

    operations: DataFrame
    events: DataFrame
    files: tuple[LedgerFiles, ...] = ()


def read_ledger(
    spark: SparkSession, roots: Sequence[str], days: Days | None = None
) -> LedgerTables:
    """Read ledgers; files that cannot be used are left out and listed in `files`."""
    wanted = days or Days()
    files = tuple(find_files(root, wanted) for root in roots)
    return tables_of(spark, files, wanted)


def tables_of(
    spark: SparkSession, files: Sequence[LedgerFiles], days: Days
) -> LedgerTables:
    """The rows of these files."""
    return LedgerTables(
        _union(spark, files, OPERATION_COLUMNS, days),
        _union(spark, files, EVENT_COLUMNS, days),
        tuple(files),
    )


def _union(
    spark: SparkSession,
    files: Sequence[LedgerFiles],
    columns: tuple[tuple[str, str], ...],
    days: Days,
) -> DataFrame:
    ddl = ", ".join(f"`{name}` {_TYPES[kind]}" for name, kind in columns) + ", day date"
    events = columns is EVENT_COLUMNS
    parts = []
    for ledger in files:
        base = f"{ledger.root}/{EVENTS_FOLDER}" if events else ledger.root
        table = ledger.events if events else ledger.operations
        paths = [path for day in table.values() for path in day.paths]
        if not ledger.listed and not events:
            paths = [f"{base}/{DAY_PREFIX}*"]
        if paths:
            reader = spark.read.schema(ddl).option("basePath", base)
            parts.append(reader.parquet(*paths))
    if not parts:
        return spark.createDataFrame([], ddl)
    rows = reduce(DataFrame.unionByName, parts)
    if days.first is not None:
        rows = rows.where(F.col("day") >= F.lit(days.first))
    if days.last is not None:
        rows = rows.where(F.col("day") <= F.lit(days.last))
    return rows


# -- words -----------------------------------------------------------------------------


def is_backlog(entity: Column) -> Column:
    """Whether an entity is a backlog queue."""
    return F.instr(entity, _MARK) > 0


def label_of(namespace: Column) -> Column:
    """What a namespace is called in the paths of its backlog queues.

    The first label of a host name; of an address, the whole with its port and dashes;
    see `primary_label` in `pairing/rules/naming.py`.
    """
    name = F.lower(namespace)
    address = name.rlike(r"^(localhost|[0-9.]+|\[?[0-9a-f:%]*:[0-9a-f:%]*\]?)(:\d+)?$")
    plain = F.regexp_replace(F.translate(name, "[]", ""), "[.:%]", "-")
    dashed = F.ltrim(plain, F.lit("-"))
    return F.when(address, dashed).otherwise(F.substring_index(name, ".", 1))


def primary_of(namespace: Column, entity: Column) -> Column:
    """The primary that a row is about: for a backlog queue, the one in its path."""
    path = F.lower(F.substring_index(entity, _MARK, 1))
    return F.when(is_backlog(entity), path).otherwise(label_of(namespace))


def stage_of(entity: Column, operation: Column) -> Column:
    """Which stage of a message's way an operation belongs to."""
    backlog = is_backlog(entity)
    send, receive = operation == SEND, operation == RECEIVE
    return (
        F.when(send & backlog, TO_BACKLOG)
        .when(send, TO_PRIMARY)
        .when(receive & backlog, FROM_BACKLOG)
        .when(receive, FROM_PRIMARY)
        .when(operation == PING, PINGS)
        .when(operation == POLL, POLLS)
        .when(operation == SETTLE, SETTLEMENTS)
        .otherwise(OTHER)
    )
