"""Months whose forecast is compared with a ledger: plans, outages and a price book."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from pyspark.sql import SparkSession

from tests.cost.ledgers import write_days
from tests.cost.simulated_month import ledger_rows
from twinbus.cli.cost_report import priced
from twinbus.cost.forecast import (
    FROM_BACKLOG,
    PINGS,
    TO_BACKLOG,
    PairPlan,
    forecast,
)
from twinbus.cost.prices import default_text, parse_prices
from twinbus.spark.reports.job import ReportPlan, report

HOUR_MS = 3_600_000
# At a full quarter of an hour, on the tenth day.
OUTAGE_AT_MS = 9 * 24 * HOUR_MS + 13 * HOUR_MS
PLAN = PairPlan(
    entities=3,
    # Each of the 6 senders sends once in 5 minutes.
    rate=Fraction(72, 3600),
    size_bytes=100_000,
    backlog_queues=4,
    syphons=2,
    senders=2,
    outage_ms=2 * HOUR_MS,
    outages_per_year=1,
    drain_rate=Fraction(2),
)
# Everything is charged, so that a wrong count of anything shows in the sum.
BOOK = parse_prices(
    default_text()
    .replace("settle: []", "settle: [accepted]")
    .replace("up_to_millions: 13\n", "up_to_millions: 0.01\n")
    .replace("up_to_gb: 100", "up_to_gb: 1"),
    "all.yaml",
)
MONTHS = {
    "healthy": (replace(PLAN, outages_per_year=0), ()),
    "one outage": (PLAN, (OUTAGE_AT_MS,)),
    "one outage, failover after a minute": (
        replace(PLAN, failover_interval_ms=60_000),
        (OUTAGE_AT_MS,),
    ),
    "one outage that is shorter than the failover interval": (
        replace(PLAN, failover_interval_ms=600_000, outage_ms=300_000),
        (OUTAGE_AT_MS,),
    ),
    "one outage, few messages": (
        replace(PLAN, rate=PLAN.rate / 6, failover_interval_ms=60_000),
        (OUTAGE_AT_MS,),
    ),
    "one outage, polls of ten minutes, three syphons": (
        replace(PLAN, poll_ms=600_000, syphons=3),
        (OUTAGE_AT_MS,),
    ),
}


def check_report(spark: SparkSession, folder: Path, name: str) -> None:
    """Report a simulated month on Spark, and compare it with its forecast."""
    plan, outages_ms = MONTHS[name]
    write_days(folder, ledger_rows(plan, outages_ms))

    found = report(spark, ReportPlan([str(folder)]))

    month = forecast(plan, BOOK).period("month")
    charged: Counter[str] = Counter()
    for row in found.days:
        if (row["operation"], row["outcome"]) in BOOK.charged:
            charged[row["stage"]] += row["operations"]
    assert charged == month.total.stages
    money = priced(found, BOOK)
    assert money.bill.operations == month.total.operations
    assert money.bill.total == month.total.money
    # What an outage added is what the forecast has of it.
    added = sum(month.total.stages.get(s, 0) for s in (TO_BACKLOG, FROM_BACKLOG, PINGS))
    assert sum(money.outage_operations) == added
    # The forecast counts those with a failover. The report also shows one that ended
    # before it: every send failed for some minutes.
    assert len(found.outages) == len(outages_ms)
    assert month.outages == (len(outages_ms) if plan.fails_over else 0)
