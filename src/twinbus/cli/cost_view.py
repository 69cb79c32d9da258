"""How a forecast looks: tables for people, and JSON with keys that stay.

Owns names and order of both. Money is text in JSON, since a number would lose its
decimals; times are seconds. Knows nothing about how figures come about.
"""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from twinbus.cost.forecast import (
    IDLE,
    PHASES,
    STAGES,
    CostForecast,
    PeriodForecast,
    PhaseFigures,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_PERIODS = {"day": "day", "month": "30 days", "year": "365 days"}


def terminal() -> Console:
    """Standard output, for tables; in plain black and white numbers."""
    from rich.console import Console

    return Console(highlight=False)


# -- for machines ----------------------------------------------------------------------


def _key(words: str) -> str:
    return words.replace(" ", "_")


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction) else value


def _figures_json(figures: PhaseFigures) -> dict[str, Any]:
    return {
        "operations": figures.operations,
        "money": str(figures.money),
        "stages": {_key(stage): figures.stages.get(stage, 0) for stage in STAGES},
    }


def _period_json(period: PeriodForecast) -> dict[str, Any]:
    phases = {
        _key(phase): _figures_json(period.phases[phase])
        if phase in period.phases
        else None
        for phase in PHASES
    }
    return {
        "days": period.days,
        "outages": period.outages,
        "phases": phases,
        "total": _figures_json(period.total),
        "unpaired": _figures_json(period.unpaired),
        "pairing_adds": {
            "operations": period.added_operations,
            "money": str(period.added_money),
        },
    }


def forecast_json(found: CostForecast) -> dict[str, Any]:
    """All of a forecast; `null` for the phases of an outage that does not fit."""
    plan, holds_ms = found.plan, found.plan.backlog_holds_ms
    return {
        "plan": {each.name: _plain(getattr(plan, each.name)) for each in fields(plan)},
        "prices": found.book.name,
        "currency": found.book.currency,
        "periods": {period.name: _period_json(period) for period in found.periods},
        "backlog": {
            "bytes": plan.backlog_bytes,
            "holds_seconds": None if holds_ms is None else holds_ms / 1_000,
        },
        "outage": {
            "diverted_messages": plan.diverted if plan.fails_over else 0,
            "pings_per_entity_and_sender": plan.pings,
            "drain_seconds": plan.drain_ms / 1_000,
            "received_again_at_most": plan.received_again,
        },
    }


# -- for people ------------------------------------------------------------------------


def _table(title: str, first: str, names: list[str]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", expand=False)
    table.add_column(first, no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _stage_table(found: CostForecast) -> Table:
    """The month, by stage."""
    month = found.period("month")
    shown = [phase for phase in PHASES if phase in month.phases]
    outage = "with one outage" if month.outages else "without an outage"
    table = _table(f"Operations in 30 days {outage}", "stage", shown)
    for stage in STAGES:
        counts = [month.phases[phase].stages.get(stage, 0) for phase in shown]
        if any(counts):
            table.add_row(stage, *(f"{count:,}" for count in counts))
    table.add_section()
    table.add_row("all", *(f"{month.phases[phase].operations:,}" for phase in shown))
    return table


def _period_table(found: CostForecast, *, money: bool) -> Table:
    """The phases in a day, a month and a year: operations, or money."""
    periods = found.periods

    def cell(figures: PhaseFigures | None) -> str:
        if figures is None:
            return "-"
        return f"{figures.money:,}" if money else f"{figures.operations:,}"

    title = f"Money, in {found.book.currency}" if money else "Operations"
    names = [
        f"{_PERIODS[period.name]}, {_outages(period.outages)}" for period in periods
    ]
    table = _table(title, "phase", names)
    for phase in PHASES:
        table.add_row(phase, *(cell(period.phases.get(phase)) for period in periods))
        if phase == IDLE:
            table.add_section()
    table.add_section()
    table.add_row("all but idle", *(cell(period.total) for period in periods))
    table.add_row("without a pair", *(cell(period.unpaired) for period in periods))
    added = [p.added_money if money else p.added_operations for p in periods]
    table.add_row("pairing adds", *(f"{each:,}" for each in added))
    return table


def _outages(count: int) -> str:
    return f"{count or 'no'} outage{'' if count == 1 else 's'}"


def _time(time_ms: int | None) -> str:
    """A time as the options take it, to the second."""
    if time_ms is None:
        return "-"
    minutes, seconds = divmod(time_ms // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = {"d": days, "h": hours, "m": minutes, "s": seconds}
    return "".join(f"{count}{unit}" for unit, count in parts.items() if count) or "0s"


def _notes(found: CostForecast) -> list[str]:
    plan = found.plan
    size = f"{plan.backlog_queues * 5:,} GB in {plan.backlog_queues:,} backlog queues"
    notes = [f"The backlog ({size}) holds an outage of {_time(plan.backlog_holds_ms)}."]
    holds_ms = plan.backlog_holds_ms
    if holds_ms is not None and plan.outage_ms > holds_ms:
        notes.append(
            f"An outage of {_time(plan.outage_ms)} does not fit: sends would fail. "
            "Use more backlog queues."
        )
    if plan.fails_over:
        notes.append(
            f"An outage diverts {plan.diverted:,} messages; to drain them takes "
            f"{_time(plan.drain_ms)}."
        )
    if plan.received_again:
        notes.append(
            "Syphons that wait through an outage receive messages again when their "
            f"locks end: up to about {plan.received_again:,} operations more, which "
            "are not in the tables."
        )
    notes.append(f"Prices: {found.book.name}.")
    if found.book.name == "example":
        notes[-1] += (
            " They are the prices of no service; 'twinbus cost prices' prints the "
            "file to change."
        )
    return notes


def forecast_tables(found: CostForecast) -> RenderableType:
    """Everything about one plan."""
    from rich.console import Group
    from rich.text import Text

    return Group(
        _stage_table(found),
        _period_table(found, money=False),
        _period_table(found, money=True),
        *(Text(note) for note in _notes(found)),
    )


def compared_table(option: str, found: dict[str, CostForecast]) -> RenderableType:
    """Several plans, a line each."""
    from rich.console import Group
    from rich.text import Text

    book = next(iter(found.values())).book
    names = ["idle", "pairing adds", "its money", "all money", "holds"]
    title = f"By --{option}, money in {book.currency}"
    table = _table(title, "value", names)
    for value, each in found.items():
        month, year = each.period("month"), each.period("year")
        table.add_row(
            value,
            f"{month.phases[IDLE].operations:,}",
            f"{year.added_operations:,}",
            f"{year.added_money:,}",
            f"{year.total.money:,}",
            _time(each.plan.backlog_holds_ms),
        )
    notes = (
        "idle: operations in 30 days without messages",
        "pairing adds, its money: to 365 days of the same messages without a pair",
        "all money: 365 days with the pair",
        "holds: the longest outage that fits into the backlog",
    )
    return Group(table, *(Text(note) for note in notes))
