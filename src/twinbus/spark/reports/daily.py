"""The aggregates of a ledger, day by day.

Owns the only part that reads every row: three sums over it. `by_entity` is the bill,
`by_minute` the rates, `signals` the rows that an outage leaves behind (pings, failed
sends, everything at a backlog queue or of a syphon), which are few. Words are added
after the sums, so that a row costs little.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.schema import (
    ACCEPTED,
    BUSY,
    FAILED,
    PING,
    RECEIVE,
    SEND,
    SERVER,
    SYPHON,
)
from twinbus.spark.reports.tables import is_backlog, label_of, primary_of, stage_of

_SUMS = ("operations", "messages", "bytes_in", "bytes_out")
# The rates of a minute.
RATES = ("sent", "received", "home", "failed", "busy", "diverted", "drained", "pings")


@dataclass(frozen=True, slots=True)
class Aggregates:
    """The three tables, each with a column `day`."""

    by_entity: DataFrame
    by_minute: DataFrame
    signals: DataFrame

    def tables(self) -> dict[str, DataFrame]:
        return {
            "by_entity": self.by_entity,
            "by_minute": self.by_minute,
            "signals": self.signals,
        }


def aggregates(operations: DataFrame) -> Aggregates:
    """All aggregates of the table of operations."""
    return Aggregates(
        _by_entity(operations), _by_minute(operations), _signals(operations)
    )


def _by_entity(operations: DataFrame) -> DataFrame:
    keys = ("day", "namespace", "source", "entity", "operation", "outcome")
    sums = [F.sum(name).alias(name) for name in _SUMS]
    gaps = F.sum("gap_minutes").cast("bigint").alias("gap_minutes")
    found = operations.groupBy(*keys).agg(*sums, gaps)
    entity, operation = F.col("entity"), F.col("operation")
    return found.withColumns(
        {
            "stage": stage_of(entity, operation),
            "label": label_of(F.col("namespace")),
        }
    )


def _by_minute(operations: DataFrame) -> DataFrame:
    backlog = F.col("backlog")
    accepted = F.col("outcome") == ACCEPTED
    send = F.col("operation") == SEND
    home = F.col("source") == SYPHON
    counted = {
        "sent": send & ~backlog & accepted & ~home,
        "received": (F.col("operation") == RECEIVE) & ~backlog & accepted,
        "home": send & ~backlog & accepted & home,
        "failed": send & ~backlog & (F.col("outcome") == FAILED),
        "busy": send & (F.col("outcome") == BUSY),
        "diverted": send & backlog & accepted,
        "drained": (F.col("operation") == RECEIVE) & backlog & accepted,
    }
    sums = [_sum_if("messages", test).alias(name) for name, test in counted.items()]
    pings = _sum_if("operations", F.col("operation") == PING).alias("pings")
    path = F.when(is_backlog(F.col("entity")), F.col("entity"))
    rows = operations.withColumn("path", path).withColumn("backlog", path.isNotNull())
    found = rows.groupBy("day", "minute", "namespace", "source", "path").agg(
        *sums, pings
    )
    primary = primary_of(F.col("namespace"), F.coalesce("path", F.lit("")))
    return (
        found.withColumn("primary", primary)
        .groupBy("day", "minute", "primary", "source")
        .agg(*[F.sum(name).alias(name) for name in RATES])
    )


def _sum_if(name: str, test: Column) -> Column:
    return F.sum(F.when(test, F.col(name)).otherwise(F.lit(0)))


def _signals(operations: DataFrame) -> DataFrame:
    operation, outcome, source = (
        F.col(name) for name in ("operation", "outcome", "source")
    )
    backlog = is_backlog(F.col("entity"))
    moved = operation.isin(SEND, RECEIVE) & (backlog | (source == SYPHON))
    wanted = moved | (operation == PING) | ((operation == SEND) & (outcome == FAILED))
    # A server knows senders by their keys, a client by its own name.
    sender = F.when(source == SERVER, F.col("key")).otherwise(F.col("writer"))
    keys = ("day", "minute", "primary", "source", "sender", "entity", "operation")
    rows = operations.where(wanted).withColumns(
        {"sender": sender, "primary": primary_of(F.col("namespace"), F.col("entity"))}
    )
    sums = [F.sum(name).alias(name) for name in _SUMS]
    return rows.groupBy(*keys, "outcome").agg(*sums)
