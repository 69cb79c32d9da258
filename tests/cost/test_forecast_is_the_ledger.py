"""A simulated month of the pairing rules costs what the forecast said.

The rules run for 30 days and leave the rows of a ledger; added up and priced, they are
the forecast of the same plan, to the operation and to the cent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.cost.months import BOOK, MONTHS, OUTAGE_AT_MS, PLAN
from tests.cost.simulated_month import DAYS, START, ledger_rows
from twinbus.cost.forecast import (
    FROM_BACKLOG,
    FROM_PRIMARY,
    PINGS,
    POLLS,
    SETTLEMENTS,
    TO_BACKLOG,
    TO_PRIMARY,
    PairPlan,
    forecast,
)
from twinbus.cost.prices import PriceBook
from twinbus.cost.usage import Usage
from twinbus.ledger.schema import OPERATION_COLUMNS

_SIMPLE = {"ping": PINGS, "poll": POLLS, "settle": SETTLEMENTS}
_TO, _FROM = (TO_PRIMARY, TO_BACKLOG), (FROM_PRIMARY, FROM_BACKLOG)

Rows = Iterable[Mapping[str, Any]]


def stage_of(row: Mapping[str, Any]) -> str:
    operation = row["operation"]
    if operation in _SIMPLE:
        return _SIMPLE[operation]
    stages = {"send": _TO, "receive": _FROM}[operation]
    return stages["x-servicebus-transfer/" in row["entity"]]


def usage_of(rows: Rows, plan: PairPlan) -> Usage:
    """What a month of a pair used, by its ledger."""
    charges: Counter[tuple[str, str]] = Counter()
    bytes_in = bytes_out = 0
    for row in rows:
        charges[row["operation"], row["outcome"]] += row["operations"]
        bytes_in += row["bytes_in"]
        bytes_out += row["bytes_out"]
    links = 2 * (plan.senders + plan.syphons)
    return Usage(Fraction(DAYS), charges, bytes_in, bytes_out, 2, links)


def stages_of(rows: Rows, book: PriceBook) -> Counter[str]:
    """The charged operations of a ledger, by stage."""
    stages: Counter[str] = Counter()
    for row in rows:
        if (row["operation"], row["outcome"]) in book.charged:
            stages[stage_of(row)] += row["operations"]
    return stages


@pytest.mark.parametrize("name", MONTHS)
def test_the_ledger_of_a_month_is_its_forecast(name: str) -> None:
    plan, outages_ms = MONTHS[name]

    rows = ledger_rows(plan, outages_ms)

    month = forecast(plan, BOOK).period("month").total
    assert stages_of(rows, BOOK) == month.stages
    bill = BOOK.bill(usage_of(rows, plan))
    assert bill.operations == month.operations
    assert bill.total == month.money


def test_the_outage_of_the_simulation_has_its_charges() -> None:
    """The comparison above would hold for two months in which nothing happens."""
    stages = stages_of(ledger_rows(PLAN, (OUTAGE_AT_MS,)), BOOK)

    # 6 senders diverted 24 messages each, of two units.
    assert stages[TO_BACKLOG] == stages[FROM_BACKLOG] == 6 * 24 * 2
    assert stages[TO_PRIMARY] == stages[FROM_PRIMARY] == 72 * 24 * 30 * 2
    assert stages[PINGS] == 6 * 121


def test_the_rows_have_the_columns_of_a_ledger() -> None:
    rows = ledger_rows(replace(PLAN, rate=Fraction(6, 86_400)))

    assert {tuple(row) for row in rows} == {tuple(n for n, _ in OPERATION_COLUMNS)}
    assert min(row["minute"] for row in rows) == START
    days = {row["minute"].date() for row in rows}
    assert len(days) == DAYS
