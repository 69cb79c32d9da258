"""Outages: when a primary was away, found in what its clients told and counted.

Owns the finding. A *stretch* is a time in which one entity was away, for one sender or
as the rates show it; stretches of a primary that touch are one outage. Stretches come
from

* events: from `suspect` (or `failed over`, `relapsed`) to `failed back`;
* pings of an entity, with the sends that failed just before, since only an entity that
  has failed over is pinged;
* messages in backlog queues, which are sent there in an outage alone;
* minutes in which all sends of a namespace failed, several in a row.

An outage without events is inferred. Its bounds are minutes: the first in which a send
failed or was diverted, and the last in which one was diverted or a ping was sent. With
intervals of a minute for failover and pings both are right to one minute. Times are
seconds since 1970 inside, so that no time zone matters.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

from twinbus import limits
from twinbus.ledger.schema import ACCEPTED, FAILED, PING, SEND
from twinbus.pairing.events import EventKind
from twinbus.spark.reports.daily import Aggregates
from twinbus.spark.reports.tables import is_backlog, label_of

DIVERTED = "diverted"
_OVER = (EventKind.FAILED_OVER.value, EventKind.RELAPSED.value)
_BACK = EventKind.FAILED_BACK.value
_STATES = (EventKind.SUSPECT.value, EventKind.RECOVERED.value, *_OVER, _BACK, DIVERTED)
_NEAR = limits.REPORT_OUTAGE_GAP_MINUTES * 60
_STRETCH = ("primary", "start", "end", "told", "open")


def outages_of(found: Aggregates, events: DataFrame) -> DataFrame:
    """One row for each outage: primary, start, end, inferred and open.

    Also `until`, when the next outage of this primary starts, if there is one.
    """
    # Few rows, so one task does it all: each window would be a shuffle otherwise.
    signals = found.signals.coalesce(1)
    stretches = (
        _from_events(events.coalesce(1)),
        _from_pings(signals),
        _from_backlogs(signals),
        _from_failures(found.by_minute),
    )
    parts = [each.select(*_STRETCH) for each in stretches]
    return _merged(reduce(DataFrame.unionByName, parts).coalesce(1))


def seconds_of(time: Column) -> Column:
    """A time as seconds since 1970, with fractions."""
    return F.unix_micros(time) / F.lit(1_000_000)


def floor_minute(seconds: Column) -> Column:
    return F.floor(seconds / 60) * 60


# -- stretches -------------------------------------------------------------------------


def _from_events(events: DataFrame) -> DataFrame:
    told = events.where(F.col("event").isin(*_STATES)).withColumns(
        {"primary": label_of(F.col("primary")), "at": seconds_of(F.col("at"))}
    )
    one = Window.partitionBy("primary", "writer", "entity").orderBy("at")
    after = one.rowsBetween(1, Window.unboundedFollowing)
    # A process that ended while it was failed over tells no more than this.
    last = F.max("at").over(one.rowsBetween(0, Window.unboundedFollowing))
    before = F.lag("event").over(one) == EventKind.SUSPECT.value
    back = F.min(F.when(F.col("event") == _BACK, F.col("at"))).over(after)
    return told.withColumns(
        {
            "start": F.when(before, F.lag("at").over(one)).otherwise(F.col("at")),
            "open": back.isNull(),
            "end": F.coalesce(back, last),
            "told": F.lit(True),
        }
    ).where(F.col("event").isin(*_OVER))


def _from_pings(signals: DataFrame) -> DataFrame:
    ping = F.col("operation") == PING
    failed = (F.col("operation") == SEND) & (F.col("outcome") == FAILED)
    minutes = (
        signals.where(ping | (failed & ~is_backlog(F.col("entity"))))
        .groupBy("primary", "entity", seconds_of(F.col("minute")).alias("at"))
        .agg(F.max(ping.cast("int")).alias("bad"))
    )
    return _stretches(minutes, ("primary", "entity"), _NEAR).where("bad > 0")


def _from_backlogs(signals: DataFrame) -> DataFrame:
    minutes = (
        signals.where(is_backlog(F.col("entity")) & (F.col("operation") == SEND))
        .where(F.col("outcome") == ACCEPTED)
        .groupBy("primary", seconds_of(F.col("minute")).alias("at"))
        .agg(F.lit(1).alias("bad"))
    )
    return _stretches(minutes, ("primary",), _NEAR)


def _from_failures(by_minute: DataFrame) -> DataFrame:
    minutes = (
        by_minute.groupBy("primary", seconds_of(F.col("minute")).alias("at"))
        .agg(*[F.sum(name).alias(name) for name in ("failed", "sent", "home")])
        .where("failed > 0 and sent = 0 and home = 0")
        .withColumn("bad", F.lit(1))
        .coalesce(1)
    )
    least = limits.REPORT_FAILED_MINUTES_MIN
    found = _stretches(minutes, ("primary",), 60).where(F.col("bad") >= least)
    return found.withColumn("end", F.col("end") + 60)


def _stretches(minutes: DataFrame, keys: tuple[str, ...], gap: int) -> DataFrame:
    """Minutes that lie close together, as stretches; `bad` is summed up."""
    one = Window.partitionBy(*keys).orderBy("at")
    apart = F.col("at") - F.lag("at").over(one) > gap
    found = (
        minutes.withColumn("new", F.coalesce(apart, F.lit(True)).cast("int"))
        .withColumn("number", F.sum("new").over(one))
        .groupBy(*keys, "number")
        .agg(
            F.min("at").alias("start"),
            F.max("at").alias("end"),
            F.sum("bad").alias("bad"),
        )
    )
    return found.select(
        "primary",
        "start",
        "end",
        F.lit(False).alias("told"),
        F.lit(False).alias("open"),
        "bad",
    )


# -- outages ---------------------------------------------------------------------------


def _merged(stretches: DataFrame) -> DataFrame:
    one = Window.partitionBy("primary").orderBy("start", "end")
    earlier = one.rowsBetween(Window.unboundedPreceding, -1)
    apart = F.col("start") - F.max("end").over(earlier) > _NEAR
    numbered = stretches.withColumn("new", F.coalesce(apart, F.lit(True)).cast("int"))
    found = (
        numbered.withColumn("number", F.sum("new").over(one))
        .groupBy("primary", "number")
        .agg(
            _when_told(F.min, "start", told=True).alias("told_start"),
            _when_told(F.max, "end", told=True).alias("told_end"),
            _when_told(F.min, "start", told=False).alias("seen_start"),
            _when_told(F.max, "end", told=False).alias("seen_end"),
            F.max("open").alias("open"),
        )
    )
    return _bounded(found, Window.partitionBy("primary").orderBy("start"))


def _when_told(total: object, name: str, *, told: bool) -> Column:
    assert callable(total)
    wanted = F.col("told") if told else ~F.col("told")
    result: Column = total(F.when(wanted, F.col(name)))
    return result


def _bounded(found: DataFrame, in_order: WindowSpec) -> DataFrame:
    """Bounds are those that were told, unless the rates go on beyond them."""
    told, seen = F.col("told_start"), F.col("seen_start")
    start = F.when(seen < floor_minute(told) - 60, seen).otherwise(
        F.coalesce(told, seen)
    )
    end = F.greatest(F.col("told_end"), F.col("seen_end"))
    return (
        found.withColumn("start", start)
        .withColumn("end", F.greatest(end, F.col("start") + 60))
        .withColumn("inferred", told.isNull())
        .withColumn("until", F.lead("start").over(in_order))
        .select("primary", "start", "end", "inferred", "open", "until")
    )
