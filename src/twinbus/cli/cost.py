"""`twinbus cost`: what a pair of namespaces costs.

Owns the options of `cost prices` and `cost forecast`, and reads each with one parser,
also where `--compare` gives several values. The arithmetic is `twinbus.cost`; how a
forecast looks is `cost_view.py`. A further command of the group has a module of its own
beside this one, which the last lines of this file import and register with `app`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus import limits
from twinbus.cli.cost_report import app as report_app
from twinbus.cli.output import Json
from twinbus.cost.forecast import CostForecast, PairPlan, forecast
from twinbus.cost.prices import default_text, load_prices
from twinbus.cost.quantities import (
    parse_count,
    parse_rate,
    parse_size_bytes,
    parse_time_ms,
)
from twinbus.errors import ConfigError

app = typer.Typer(help="What a pair of namespaces costs.", no_args_is_help=True)

Prices = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A price book; 'twinbus cost prices' prints one to start from.",
    ),
]


@app.command("prices")
def prices() -> None:
    """Print the default price book, whose figures are examples, as YAML."""
    print(default_text(), end="")


# -- options ---------------------------------------------------------------------------


def _between(least_ms: int, most_ms: int, text: str) -> int:
    time_ms = parse_time_ms(text)
    if not least_ms <= time_ms <= most_ms:
        least, most = f"{least_ms / 1_000:g}s", f"{most_ms / 1_000:g}s"
        raise ConfigError(f"{text!r} is not between {least} and {most}.")
    return time_ms


def _some(text: str) -> Fraction:
    rate = parse_rate(text)
    if not rate:
        raise ConfigError(f"{text!r} would take for ever. Write 1000/s.")
    return rate


_FROM_0, _FROM_1 = partial(parse_count, least=0), partial(parse_count, least=1)

# By the name of the option: the field of the plan, and how its text is read.
_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "entities": ("entities", _FROM_1),
    "rate": ("rate", parse_rate),
    "size": ("size_bytes", parse_size_bytes),
    "backlog-queues": ("backlog_queues", _FROM_1),
    "syphons": ("syphons", _FROM_0),
    "senders": ("senders", _FROM_1),
    "ping-interval": (
        "ping_interval_ms",
        partial(_between, limits.PING_INTERVAL_MS_MIN, limits.PING_INTERVAL_MS_MAX),
    ),
    "failover-interval": (
        "failover_interval_ms",
        partial(_between, 0, limits.FAILOVER_INTERVAL_MS_MAX),
    ),
    "poll": ("poll_ms", partial(_between, 1_000, limits.FORECAST_MS_MAX)),
    "outage": ("outage_ms", parse_time_ms),
    "outages-per-year": ("outages_per_year", _FROM_0),
    "drain-rate": ("drain_rate", _some),
}


def _read(plan: PairPlan, name: str, text: str) -> PairPlan:
    field, parse = _READ[name]
    try:
        return replace(plan, **{field: parse(text.strip())})
    except ConfigError as refusal:
        raise ConfigError(f"--{name}: {refusal.text}") from None


def _compared(text: str) -> tuple[str, list[str]]:
    """The option that is compared, and its values."""
    name, _, values = text.partition("=")
    name = name.strip().removeprefix("--")
    if name not in _READ:
        raise ConfigError(
            f"--compare {text!r}: write NAME=VALUE,VALUE with one of "
            f"{', '.join(_READ)}."
        )
    found = [value.strip() for value in values.split(",")]
    if len(found) > limits.FORECAST_COMPARED_MAX:
        most = limits.FORECAST_COMPARED_MAX
        raise ConfigError(f"--compare {name}: has more than {most} values.")
    return name, found


Entities = Annotated[str, typer.Option(metavar="N", help="Queues and topics sent to.")]
Rate = Annotated[
    str,
    typer.Option(
        metavar="N/UNIT", help="Messages to all of them: 100/s, 90/m, 5000/h."
    ),
]
Size = Annotated[str, typer.Option(metavar="SIZE", help="Of a message: 500, 2KB, 1MB.")]
Queues = Annotated[str, typer.Option(metavar="N", help="Backlog queues of the pair.")]
Syphons = Annotated[
    str,
    typer.Option(metavar="N", help="Processes that wait for a backlog all the time."),
]
Senders = Annotated[
    str, typer.Option(metavar="N", help="Factories that send, each to every entity.")
]
PingInterval = Annotated[
    str, typer.Option(metavar="TIME", help="From ping to ping: 30s, 1m.")
]
FailoverInterval = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Time before failover; its sends are held and then diverted. The pair's "
        "own default is 1m; 0s counts one ping more.",
    ),
]
Poll = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="How long a receive waits; 10m where a service ends idle links.",
    ),
]
Outage = Annotated[
    str,
    typer.Option(metavar="TIME", help="From the first failed send to the failback."),
]
Outages = Annotated[str, typer.Option(metavar="N", help="Such outages in a year.")]
DrainRate = Annotated[
    str, typer.Option(metavar="N/UNIT", help="Messages that all syphons move.")
]
Compare = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=VALUE,VALUE",
        help="Several values of one option: backlog-queues=5,10,20.",
    ),
]


@app.command("forecast")
def show_forecast(
    entities: Entities = "1",
    rate: Rate = "10/s",
    size: Size = "1KB",
    backlog_queues: Queues = str(limits.BACKLOG_QUEUES_DEFAULT),
    syphons: Syphons = "1",
    senders: Senders = "1",
    ping_interval: PingInterval = "1m",
    failover_interval: FailoverInterval = "0s",
    poll: Poll = "15m",
    outage: Outage = "1h",
    outages_per_year: Outages = "1",
    drain_rate: DrainRate = "1000/s",
    prices: Prices = None,
    compare: Compare = None,
    as_json: Json = False,
) -> None:
    """Say what a pair will cost: operations and money, per day, month and year."""
    # In the order of `_READ`.
    texts = (
        *(entities, rate, size, backlog_queues, syphons, senders),
        *(ping_interval, failover_interval, poll, outage, outages_per_year),
        drain_rate,
    )
    plan = PairPlan()
    for name, text in zip(_READ, texts, strict=True):
        plan = _read(plan, name, text)
    book = load_prices(prices)
    if compare is None:
        _show(forecast(plan, book), as_json=as_json)
        return
    option, values = _compared(compare)
    found = {value: forecast(_read(plan, option, value), book) for value in values}
    _show_compared(option, found, as_json=as_json)


def _show(found: CostForecast, *, as_json: bool) -> None:
    from twinbus.cli.cost_view import forecast_json, forecast_tables, terminal

    if as_json:
        print(json.dumps(forecast_json(found)))
    else:
        terminal().print(forecast_tables(found))


def _show_compared(
    option: str, found: dict[str, CostForecast], *, as_json: bool
) -> None:
    from twinbus.cli.cost_view import compared_table, forecast_json, terminal

    if as_json:
        each = [{"value": value, **forecast_json(one)} for value, one in found.items()]
        print(json.dumps({"compared": option, "forecasts": each}))
    else:
        terminal().print(compared_table(option, found))


# -- further commands ------------------------------------------------------------------

app.add_typer(report_app)
