"""What each outage did: who was hit, what was diverted, and how it came home.

Owns the measuring of outages that `outages.py` has found. Everything of a primary from
the start of an outage to the start of the next one counts as this one's. Where server
and clients have both counted something, the larger count is used.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.schema import ACCEPTED, PING, RECEIVE, SEND, SERVER, SYPHON
from twinbus.spark.reports.daily import Aggregates
from twinbus.spark.reports.outages import (
    DIVERTED,
    floor_minute,
    outages_of,
    seconds_of,
)
from twinbus.spark.reports.tables import is_backlog, label_of

_KEYS = ["primary", "start"]
COLUMNS = (
    "primary",
    "start",
    "end",
    "inferred",
    "open",
    "entities",
    "senders",
    "diverted_messages",
    "diverted_bytes",
    "diverted_operations",
    "drained_messages",
    "drained_bytes",
    "drained_operations",
    "home_messages",
    "home_bytes",
    "home_operations",
    "pings_accepted",
    "pings_failed",
    "drain_minutes",
    "duplicates",
    "longest_gap_minutes",
)


def find_outages(found: Aggregates, events: DataFrame) -> DataFrame:
    """All outages, with what each did; one row each, in order.

    `start` and `end` are timestamps. `drain_minutes` is null if nothing was drained,
    `duplicates` if no syphon has counted what it brought home.
    """
    lazy = outages_of(found, events)
    # Found once, since all measures need the bounds.
    outages = lazy.sparkSession.createDataFrame(lazy.collect(), lazy.schema).coalesce(1)
    bounds = outages.select("primary", "start", "end", "until")
    measured = (
        outages.join(_counts(bounds, found.signals.coalesce(1)), _KEYS, "left")
        .join(_told(bounds, events.coalesce(1)), _KEYS, "left")
        .join(_gaps(bounds, found.by_minute), _KEYS, "left")
    )
    entities = F.array_union(_list("entities"), _list("told_entities"))
    last, end = F.col("last_drained"), floor_minute(F.col("end"))
    copies = F.col("home_messages") - F.col("diverted_messages")
    zeros = {name: F.coalesce(F.col(name), F.lit(0)) for name in _COUNTED}
    return (
        measured.withColumns(zeros)
        .withColumns(
            {
                "entities": F.array_sort(F.array_remove(entities, "")),
                "senders": F.greatest(_zero("senders"), _zero("told_senders")),
                "drain_minutes": ((last + 60 - end) / 60).cast("int"),
                "duplicates": F.when(
                    F.col("home_messages") > 0, F.greatest(copies, F.lit(0))
                ),
                "longest_gap_minutes": _zero("longest_gap_minutes").cast("int"),
                "start": F.timestamp_micros((F.col("start") * 1_000_000).cast("long")),
                "end": F.timestamp_micros((F.col("end") * 1_000_000).cast("long")),
            }
        )
        .select(*COLUMNS)
        .orderBy("start", "primary")
    )


def _list(name: str) -> Column:
    return F.coalesce(F.col(name), F.array().cast("array<string>"))


def _zero(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0))


_COUNTED = COLUMNS[7:18]


def _counts(bounds: DataFrame, signals: DataFrame) -> DataFrame:
    """What the signals say from the start of an outage to the start of the next."""
    rows = signals.withColumn("at", seconds_of(F.col("minute")))
    begun = F.col("at") >= floor_minute(F.col("start"))
    over = F.col("until").isNull() | (F.col("at") < floor_minute(F.col("until")))
    inside = rows.join(F.broadcast(bounds), "primary").where(begun & over)
    accepted, backlog = F.col("outcome") == ACCEPTED, is_backlog(F.col("entity"))
    send, ping = F.col("operation") == SEND, F.col("operation") == PING
    home = send & ~backlog & (F.col("source") == SYPHON)
    hit = F.col("at") <= F.col("end")
    own = F.col("source") != SYPHON
    kinds = {
        "diverted": (send & backlog & accepted, "bytes_in"),
        "drained": ((F.col("operation") == RECEIVE) & backlog & accepted, "bytes_out"),
        "home": (home & accepted, "bytes_in"),
    }
    sums = [
        _larger(test, name).alias(f"{kind}_{alias}")
        for kind, (test, size) in kinds.items()
        for name, alias in (
            ("messages", "messages"),
            (size, "bytes"),
            ("operations", "operations"),
        )
    ]
    # Pings and diverted messages say who has failed over. Where there are none, those
    # whose sends failed are meant.
    over_now = hit & own & (ping | (send & backlog))
    failing = hit & own & send & ~backlog
    client, server = F.col("source") != SERVER, F.col("source") == SERVER
    senders = [
        _distinct(test & side, "sender")
        for test in (over_now, failing)
        for side in (client, server)
    ]
    away = F.collect_set(F.when(~backlog & (home | (hit & ping)), F.col("entity")))
    failed = F.collect_set(F.when(failing, F.col("entity")))
    return inside.groupBy(*_KEYS).agg(
        *sums,
        _larger(ping & accepted, "operations").alias("pings_accepted"),
        _larger(ping & ~accepted, "operations").alias("pings_failed"),
        F.when(F.size(away) > 0, away).otherwise(failed).alias("entities"),
        F.coalesce(*[F.when(each > 0, each) for each in senders]).alias("senders"),
        F.max(F.when(kinds["drained"][0], F.col("at"))).alias("last_drained"),
    )


def _larger(test: Column, name: str) -> Column:
    """The sum as servers have counted it, or as clients have: the larger one."""
    server = F.col("source") == SERVER
    sums = [
        F.sum(F.when(test & side, F.col(name)).otherwise(F.lit(0)))
        for side in (server, ~server)
    ]
    return F.greatest(*sums)


def _distinct(test: Column, name: str) -> Column:
    return F.count_distinct(F.when(test, F.col(name)))


def _told(bounds: DataFrame, events: DataFrame) -> DataFrame:
    """Who was hit by what the events say."""
    told = events.where(
        F.col("event").isin("failed over", "relapsed", DIVERTED)
    ).select(
        label_of(F.col("primary")).alias("primary"),
        "writer",
        "entity",
        seconds_of(F.col("at")).alias("at"),
    )
    inside = told.join(F.broadcast(bounds), "primary").where("at between start and end")
    return inside.groupBy(*_KEYS).agg(
        F.collect_set("entity").alias("told_entities"),
        F.count_distinct("writer").alias("told_senders"),
    )


def _gaps(bounds: DataFrame, by_minute: DataFrame) -> DataFrame:
    """The most minutes in a row in which no send was accepted at all."""
    accepted = by_minute.where("sent > 0 or diverted > 0").select(
        "primary", seconds_of(F.col("minute")).alias("at")
    )
    inside = (
        accepted.join(F.broadcast(bounds), "primary")
        .where(
            (F.col("at") >= floor_minute(F.col("start")))
            & (F.col("at") <= F.col("end"))
        )
        .select(*_KEYS, "at")
    )
    # The minutes around the outage bound a gap as accepted ones do.
    first = bounds.select(*_KEYS, (floor_minute(F.col("start")) - 60).alias("at"))
    last = bounds.select(*_KEYS, (floor_minute(F.col("end")) + 60).alias("at"))
    one = Window.partitionBy(*_KEYS).orderBy("at")
    gap = (F.col("at") - F.lag("at").over(one)) / 60 - 1
    rows = inside.unionByName(first).unionByName(last).coalesce(1)
    rows = rows.distinct().withColumn("gap", gap)
    return rows.groupBy(*_KEYS).agg(F.max("gap").alias("longest_gap_minutes"))
