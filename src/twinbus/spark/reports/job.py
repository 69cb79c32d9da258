"""A report as plain values: what Spark has found, small enough for a page.

Owns the order of the work: look at the files, compute or read the aggregates, find the
outages, and collect. What is collected is bounded: days by stage, the entities with the
most operations, rates in steps, and the minutes around the largest outages. Must not
know prices: operations are counted by kind and outcome, and a price book says later
what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from twinbus import limits
from twinbus.errors import TwinbusError
from twinbus.ledger.schema import SERVER
from twinbus.spark.reports.daily import RATES, Aggregates, aggregates
from twinbus.spark.reports.files import (
    BadFile,
    Days,
    LedgerFiles,
    find_files,
    fingerprint,
    read_through,
    without_secrets,
)
from twinbus.spark.reports.kept import Kept, as_aggregates
from twinbus.spark.reports.measures import find_outages
from twinbus.spark.reports.outages import seconds_of
from twinbus.spark.reports.tables import LedgerTables, tables_of

_MINUTE = 60
# Minutes of one step of a rate: parts of a day, and then days.
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, *range(1440, 1440 * 366, 1440))
# For a session that computes reports.
SPARK_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Sums of a day are small: more partitions would be more tasks and nothing else.
    "spark.sql.shuffle.partitions": "8",
    # A folder for each day is listed here, not in a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "5000",
    "spark.driver.memory": "2g",
}
Values = dict[str, Any]


class ReportFailed(TwinbusError):
    """Spark could not compute the report."""


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """What is asked for."""

    ledgers: Sequence[str]
    days: Days = field(default_factory=Days)
    # Where aggregates are kept; None for nowhere.
    kept: str | None = None


@dataclass(slots=True)
class ReportData:
    """What was found. Times are ISO 8601 in UTC, days too."""

    first: str | None = None
    last: str | None = None
    # By day, stage, operation and outcome.
    days: list[Values] = field(default_factory=list)
    # By entity and stage: the entities with the most operations.
    entities: list[Values] = field(default_factory=list)
    entities_left_out: int = 0
    # By day, entity and stage; empty if there are too many.
    days_entities: list[Values] = field(default_factory=list)
    days_entities_left_out: int = 0
    namespaces: list[str] = field(default_factory=list)
    # Rates by time and primary.
    step_minutes: int = 1
    rates: list[Values] = field(default_factory=list)
    outages: list[Values] = field(default_factory=list)
    # Minutes around the largest outages, by the place of the outage in the list.
    around: dict[int, list[Values]] = field(default_factory=dict)
    bad_files: list[BadFile] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    computed_days: int = 0


def look(plan: ReportPlan) -> list[LedgerFiles]:
    """Look at the files of a report, which needs no Spark."""
    return [find_files(root, plan.days) for root in plan.ledgers]


def report(
    spark: SparkSession, plan: ReportPlan, files: Sequence[LedgerFiles] | None = None
) -> ReportData:
    """Compute a report; files that cannot be read are left out and named."""
    files = look(plan) if files is None else files
    try:
        found = _report(spark, plan, files)
    except (PySparkException, Py4JJavaError) as error:
        # A footer can be good although the rows are not.
        if not read_through(files):
            raise ReportFailed(f"Spark failed: {_reason(error)}") from error
        spark.catalog.clearCache()
        found = _report(spark, plan, files)
    found.bad_files = [bad for ledger in files for bad in ledger.bad]
    unchecked = [ledger.root for ledger in files if not ledger.listed]
    found.unchecked = list(map(without_secrets, unchecked))
    return found


def _reason(error: Exception) -> str:
    """The line that says what went wrong; Java's comes second, after a colon."""
    lines = str(error).strip().splitlines()
    said = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
    return without_secrets(said)


def _report(
    spark: SparkSession, plan: ReportPlan, files: Sequence[LedgerFiles]
) -> ReportData:
    found = ReportData()
    tables, events, used = _tables(spark, plan, files, found)
    try:
        _collect(found, tables, events)
    finally:
        for table in used:
            table.unpersist()
    return found


def _tables(
    spark: SparkSession,
    plan: ReportPlan,
    files: Sequence[LedgerFiles],
    found: ReportData,
) -> tuple[Aggregates, DataFrame, list[DataFrame]]:
    """The aggregates and the events, and what has to be unpersisted at the end."""
    days = sorted({day for each in files for day in (*each.operations, *each.events)})
    if plan.kept is None or not all(each.listed for each in files):
        rows = tables_of(spark, files, plan.days)
        made = aggregates(rows.operations)
        found.computed_days = len(days)
        # The third table is read once.
        used = [each.persist() for each in (made.by_minute, made.signals, rows.events)]
        return made, rows.events, used
    kept = Kept.open(plan.kept)
    stale = kept.stale({day: fingerprint(files, day) for day in days})
    found.computed_days = len(stale)
    if stale:
        some = [_only(each, stale) for each in files]
        tables = _all_tables(tables_of(spark, some, plan.days))
        kept.replace(tables, {day: fingerprint(files, day) for day in stale})
    like = _all_tables(tables_of(spark, [], plan.days))
    wanted = [day for day in kept.days() if plan.days.has(day)]
    tables = kept.read(spark, like, wanted)
    return as_aggregates(tables), tables["events"], []


def _all_tables(rows: LedgerTables) -> dict[str, DataFrame]:
    return {**aggregates(rows.operations).tables(), "events": rows.events}


def _only(ledger: LedgerFiles, days: Sequence[date]) -> LedgerFiles:
    return LedgerFiles(
        ledger.root,
        ledger.listed,
        {day: files for day, files in ledger.operations.items() if day in days},
        {day: files for day, files in ledger.events.items() if day in days},
    )


# -- collecting ------------------------------------------------------------------------


def _collect(found: ReportData, tables: Aggregates, events: DataFrame) -> None:
    billed = counted_once(tables.by_entity).persist()
    try:
        found.days = _sums(billed, "day", "stage", "operation", "outcome")
        if not found.days:
            return
        every = [each["day"] for each in found.days]
        found.first, found.last = min(every), max(every)
        names = billed.select("label").distinct().orderBy("label").collect()
        found.namespaces = [each["label"] for each in names]
        _collect_entities(found, billed)
    finally:
        billed.unpersist()
    rates = _rates(tables.by_minute)
    first, last = (date.fromisoformat(day) for day in (found.first, found.last))
    minutes = ((last - first).days + 1) * 1440
    found.step_minutes = next(
        step for step in _STEPS if minutes / step <= limits.REPORT_STEPS_MAX
    )
    found.rates = _in_steps(rates, first, found.step_minutes * _MINUTE)
    found.outages = _plain(find_outages(tables, events))
    _collect_around(found, rates)


def counted_once(by_entity: DataFrame) -> DataFrame:
    """Without what clients counted of a namespace whose server has counted the day."""
    server = F.col("source") == SERVER
    served = by_entity.where(server).select("day", "label").distinct()
    others = by_entity.where(~server)
    alone = others.join(F.broadcast(served), ["day", "label"], "left_anti")
    return by_entity.where(server).unionByName(alone)


def _sums(rows: DataFrame, *keys: str) -> list[Values]:
    names = ("operations", "messages", "bytes_in", "bytes_out", "gap_minutes")
    sums = [F.sum(name).alias(name) for name in names]
    return _plain(rows.groupBy(*keys).agg(*sums).orderBy(*keys))


def _collect_entities(found: ReportData, billed: DataFrame) -> None:
    most = limits.REPORT_ENTITIES_MAX
    totals = (
        billed.groupBy("label", "entity")
        .agg(F.sum("operations").alias("total"))
        .persist()
    )
    top = totals.orderBy(F.desc("total"), "label", "entity").limit(most)
    found.entities_left_out = max(totals.count() - most, 0)
    chosen = billed.join(F.broadcast(top.drop("total")), ["label", "entity"])
    stages = ("stage", "operation", "outcome")
    found.entities = _sums(chosen, "label", "entity", *stages)
    totals.unpersist()
    keys = ("day", "label", "entity", "stage")
    pieces = billed.groupBy(*keys).count().count()
    if pieces > limits.REPORT_DETAIL_ROWS_MAX:
        found.days_entities_left_out = pieces
    else:
        found.days_entities = _sums(billed, *keys)


def _rates(by_minute: DataFrame) -> DataFrame:
    """Counts by minute and primary: the server's or the clients', the larger ones."""
    server = F.col("source") == SERVER
    zero = F.lit(0)

    def larger(name: str) -> Any:
        sides = [
            F.sum(F.when(side, F.col(name)).otherwise(zero))
            for side in (server, ~server)
        ]
        return F.greatest(*sides).alias(name)

    at = seconds_of(F.col("minute")).cast("long").alias("at")
    return by_minute.groupBy(at, "primary").agg(*map(larger, RATES))


def _in_steps(rates: DataFrame, first: date, step: int) -> list[Values]:
    begun = (first - _EPOCH.date()).days * 86_400
    at = (F.floor((F.col("at") - begun) / step) * step + begun).alias("at")
    sums = [F.sum(name).alias(name) for name in RATES]
    return _plain(rates.groupBy(at, "primary").agg(*sums).orderBy("at", "primary"))


def _collect_around(found: ReportData, rates: DataFrame) -> None:
    """The minutes of the largest outages, with some before and the drain after."""
    places = sorted(
        range(len(found.outages)),
        key=lambda place: -found.outages[place]["diverted_messages"],
    )[: limits.REPORT_OUTAGES_DRAWN_MAX]
    spark = rates.sparkSession
    windows = []
    for place in places:
        outage = found.outages[place]
        start, end = (_seconds(outage[name]) for name in ("start", "end"))
        drained = (outage["drain_minutes"] or 0) * _MINUTE
        before = limits.REPORT_MINUTES_AROUND * _MINUTE
        after = max(drained, 0) + before
        longest = start + limits.REPORT_MINUTES_DRAWN_MAX * _MINUTE
        windows.append(
            (place, outage["primary"], start - before, min(end + after, longest))
        )
    if not windows:
        return
    ddl = "place int, primary string, first double, last double"
    chosen = F.broadcast(spark.createDataFrame(windows, ddl))
    inside = rates.join(chosen, "primary").where("at between first and last")
    for each in _plain(inside.drop("first", "last").orderBy("place", "at")):
        found.around.setdefault(each.pop("place"), []).append(each)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _plain(rows: DataFrame) -> list[Values]:
    """The rows as plain values; times as text in UTC, wherever this runs."""
    times = [name for name, kind in rows.dtypes if kind == "timestamp"]
    numbers = rows.withColumns({name: F.unix_micros(F.col(name)) for name in times})
    found = [each.asDict() for each in numbers.collect()]
    for each in found:
        for name, value in each.items():
            if name in times:
                each[name] = _iso(value)
            elif isinstance(value, date):
                each[name] = value.isoformat()
    return found


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_iso_seconds = partial(datetime.isoformat, timespec="seconds")


def _iso(micros: int) -> str:
    text = _iso_seconds(_EPOCH + timedelta(microseconds=micros))
    return text.replace("+00:00", "Z")
