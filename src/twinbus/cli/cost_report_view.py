"""How a report of ledgers looks: tables for people, and JSON with keys that stay.

Owns names and order of both. Money is text in JSON, since a number would lose its
decimals. Tables are bounded: the last days and the entities with the most operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.cli.output import show_all
from twinbus.cost.forecast import STAGES
from twinbus.cost.spent import Spent
from twinbus.ledger.schema import BUSY

if TYPE_CHECKING:
    from twinbus.spark.reports.job import ReportData

_ALL_STAGES = (*STAGES, "other")
Values = Mapping[str, Any]


# -- for machines ----------------------------------------------------------------------


def report_json(found: ReportData, money: Spent) -> dict[str, Any]:
    """All of a report; also what a page is made of."""
    outages = [
        {**outage, "added_operations": count, "cost": str(cost)}
        for outage, count, cost in zip(
            found.outages, money.outage_operations, money.outages, strict=True
        )
    ]
    return {
        "from": found.first,
        "to": found.last,
        "prices": money.book.name,
        "currency": money.book.currency,
        "namespaces": found.namespaces,
        "bill": {
            "total": str(money.bill.total),
            "operations": money.bill.operations,
            "lines": {line.name: str(line.amount) for line in money.bill.lines},
        },
        "days": _with_cost(found.days, money),
        "entities": found.entities,
        "entities_left_out": found.entities_left_out,
        "days_entities": found.days_entities,
        "days_entities_left_out": found.days_entities_left_out,
        "outages": outages,
        "step_minutes": found.step_minutes,
        "rates": found.rates,
        "around": {str(place): rows for place, rows in found.around.items()},
        "computed_days": found.computed_days,
        "bad_files": [asdict(bad) for bad in found.bad_files],
        "unchecked": found.unchecked,
    }


def _with_cost(rows: Sequence[Values], money: Spent) -> list[dict[str, Any]]:
    """The rows of days, each with its share of the price of its stage."""
    charged = money.book.charged
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        if (row["operation"], row["outcome"]) in charged:
            counts[row["day"], row["stage"]] += row["operations"]
    found = []
    for row in rows:
        share, place = 0.0, (row["day"], row["stage"])
        if (row["operation"], row["outcome"]) in charged and counts[place]:
            share = money.stages[place] * row["operations"] / counts[place]
        found.append({**row, "cost": round(share, 6)})
    return found


# -- for people ------------------------------------------------------------------------


def show_tables(found: ReportData, money: Spent) -> None:
    """Days, entities and outages."""
    print(f"Operations by day, {found.first} to {found.last}")
    _show_by("day", _last_days(found.days))
    if found.entities:
        print("\nOperations by entity")
        _show_by("entity", _largest(found.entities))
    if found.outages:
        print("\nOutages (times are UTC)")
        rows = [
            _outage(*each) for each in zip(found.outages, money.outages, strict=True)
        ]
        show_all(rows, list(rows[0]), as_json=False)
    print()


def report_lines(found: ReportData, money: Spent) -> Iterator[str]:
    """What the tables do not say."""
    bill = money.bill
    lines = ", ".join(
        f"{line.name} {line.amount}" for line in bill.lines if line.amount
    )
    yield (
        f"{bill.operations:,} operations are charged, and all costs {bill.total} "
        f"{bill.currency} by the prices of '{money.book.name}' ({lines or 'free'})."
    )
    inferred = sum(outage["inferred"] for outage in found.outages)
    told = len(found.outages) - inferred
    yield f"Outages: {told} told by events, {inferred} inferred from rates."
    gaps = sum(row["gap_minutes"] for row in found.days)
    if gaps:
        yield f"Minutes that writers have no rows for, because they crashed: {gaps:,}."
    if found.bad_files:
        yield f"Files that were left out: {len(found.bad_files)}; see above."


def _last_days(rows: Sequence[Values]) -> list[Values]:
    days = sorted({row["day"] for row in rows})[-limits.REPORT_DAYS_SHOWN_MAX :]
    return [row for row in rows if row["day"] in days]


def _largest(rows: Sequence[Values]) -> list[Values]:
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[row["entity"]] += row["operations"]
    most = sorted(totals, key=lambda name: -totals[name])
    chosen = most[: limits.REPORT_ENTITIES_SHOWN_MAX]
    return [row for row in rows if row["entity"] in chosen]


def _show_by(key: str, rows: Sequence[Values]) -> None:
    """Operations by stage, denied ones and traffic, a line for each key."""
    stages = [stage for stage in _ALL_STAGES if any(r["stage"] == stage for r in rows)]
    lines = []
    for each in dict.fromkeys(row[key] for row in rows):
        own = [row for row in rows if row[key] == each]
        line = {key: each or "(the namespace)"}
        for stage in stages:
            count = sum(row["operations"] for row in own if row["stage"] == stage)
            line[stage] = f"{count:,}"
        denied = sum(row["operations"] for row in own if row["outcome"] == BUSY)
        line["denied"] = f"{denied:,}"
        for name, size in (("MB in", "bytes_in"), ("MB out", "bytes_out")):
            line[name] = f"{sum(row[size] for row in own) / 1e6:,.1f}"
        lines.append(line)
    show_all(lines, [key, *stages, "denied", "MB in", "MB out"], as_json=False)


def _outage(outage: Values, cost: Decimal) -> dict[str, str | None]:
    drain, copies = outage["drain_minutes"], outage["duplicates"]
    return {
        "primary": outage["primary"],
        "start": outage["start"],
        "end": outage["end"] + (" open" if outage["open"] else ""),
        "found by": "rates (inferred)" if outage["inferred"] else "events",
        "entities": f"{len(outage['entities']):,}",
        "senders": f"{outage['senders']:,}",
        "diverted": f"{outage['diverted_messages']:,}",
        "MB": f"{outage['diverted_bytes'] / 1e6:,.1f}",
        "drain": None if drain is None else f"{drain} min",
        "duplicates": None if copies is None else f"{copies:,}",
        "longest gap": f"{outage['longest_gap_minutes']} min",
        "added cost": f"{cost:.4f}",
    }
