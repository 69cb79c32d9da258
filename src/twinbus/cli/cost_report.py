"""`twinbus cost report`: what ledgers show; `twinbus cost synthetic`: a made-up one.

Owns the options, the Spark session and the order of the output. The work is
`spark/reports/`, the money `cost/spent.py`, the tables `cost_report_view.py`, the page
`cost/page/`. Whatever can be wrong is said before Spark starts.

Exit code 2 also says that files of a ledger could not be used; the report has the rest.
"""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus import limits
from twinbus.cli.output import Json, pairs
from twinbus.cost.prices import PriceBook, load_prices
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.cost.spent import Spent
    from twinbus.spark.reports.files import Days, LedgerFiles
    from twinbus.spark.reports.job import ReportData, ReportPlan

app = typer.Typer()

# As in main.py, which imports this.
_NOT_TRIED = 2

Ledgers = Annotated[
    list[str],
    typer.Option("--ledger", metavar="DIR|URL", help="A ledger; may be repeated."),
]
First = Annotated[
    str | None,
    typer.Option("--from", metavar="YYYY-MM-DD", help="The first day, in UTC."),
]
Last = Annotated[
    str | None,
    typer.Option("--to", metavar="YYYY-MM-DD", help="The last day, in UTC."),
]
Master = Annotated[
    str, typer.Option(help="Where Spark runs: local[*], spark://..., sc://..., yarn.")
]
Prices = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A price book; see 'cost prices'.")
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page there.")
]
Keep = Annotated[
    str | None,
    typer.Option(
        "--parquet",
        metavar="DIR|URL",
        help="Keep the aggregates of each day there; only days that have changed are "
        "computed again.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; several."),
]


@app.command("report")
def report_command(
    ledger: Ledgers,
    first: First = None,
    last: Last = None,
    master: Master = "local[*]",
    prices: Prices = None,
    html: Html = None,
    parquet: Keep = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Report what ledgers show: operations, costs and outages, on Spark."""
    from twinbus.spark.environment import check_environment

    check_environment(java=not master.startswith("sc:"))
    from twinbus.spark.reports.job import ReportData, ReportPlan, look

    book = load_prices(prices)
    _check_page(html)
    plan = ReportPlan(ledger, _days(first, last), parquet)
    files = look(plan)
    if any(each.operations or not each.listed for each in files) or parquet:
        found = _computed(plan, files, master, dict(pairs("--conf", conf)))
    else:
        found = ReportData(bad_files=[bad for each in files for bad in each.bad])
    _show(found, book, plan, html, as_json=as_json)
    if found.bad_files:
        sys.exit(_NOT_TRIED)


def make_page(ledgers: list[str], page: Path) -> dict[str, Any]:
    """Write the page about whole ledgers; returns what it shows."""
    from twinbus.cli.cost_report_view import report_json
    from twinbus.cost.page.page import write_page
    from twinbus.spark.reports.job import ReportPlan, look

    plan = ReportPlan(ledgers, _days(None, None), None)
    found = _computed(plan, look(plan), "local[2]", {})
    shown = report_json(found, priced(found, load_prices(None)))
    write_page(page, shown)
    return shown


def _days(first: str | None, last: str | None) -> Days:
    from twinbus.spark.reports.files import Days

    wanted = Days(_day("--from", first), _day("--to", last))
    if wanted.first and wanted.last and wanted.first > wanted.last:
        raise ConfigError(f"--from {first} is after --to {last}. Exchange them.")
    return wanted


def _day(option: str, text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r} is no day. Write it as 2026-11-15."
        ) from None


def _check_page(html: Path | None) -> None:
    if html is not None and (html.is_dir() or not html.absolute().parent.is_dir()):
        raise ConfigError(f"--html {html} cannot be written. Name a file in a folder.")


def _computed(
    plan: ReportPlan, files: list[LedgerFiles], master: str, given: dict[str, str]
) -> ReportData:
    from twinbus.cli.spark_session import spark_session
    from twinbus.spark.reports.job import SPARK_SETTINGS, report

    spark = spark_session("twinbus cost report", master, SPARK_SETTINGS, given)
    try:
        return report(spark, plan, files)
    finally:
        spark.stop()


def _show(
    found: ReportData,
    book: PriceBook,
    plan: ReportPlan,
    html: Path | None,
    *,
    as_json: bool,
) -> None:
    from twinbus.cli.cost_report_view import report_json, report_lines, show_tables

    for bad in found.bad_files:
        text = f"{bad.path} is left out: {bad.kind}, {bad.reason}."
        print(f"twinbus: {text}", file=sys.stderr)
    for root in found.unchecked:
        text = f"{root}: its files were not checked, since only Spark can list them."
        print(f"twinbus: {text}", file=sys.stderr)
    money = priced(found, book)
    if as_json:
        print(json.dumps(report_json(found, money)))
    elif found.first is None:
        print(_nothing(plan))
    else:
        show_tables(found, money)
        for line in report_lines(found, money):
            print(line)
    if html is not None:
        from twinbus.cost.page.page import write_page

        write_page(html, report_json(found, money))


def priced(found: ReportData, book: PriceBook) -> Spent:
    """The money of what a report has found."""
    from twinbus.cost.spent import spent

    namespaces = len(found.namespaces) or 1
    return spent(book, found.days, found.outages, _length(found), namespaces)


def _length(found: ReportData) -> int:
    if found.first is None or found.last is None:
        return 1
    first, last = date.fromisoformat(found.first), date.fromisoformat(found.last)
    return (last - first).days + 1


def _nothing(plan: ReportPlan) -> str:
    from twinbus.spark.reports.files import without_secrets

    first, last = plan.days.first, plan.days.last
    time = f" from {first}" if first else ""
    time += f" to {last}" if last else ""
    return f"There are no rows{time} in {without_secrets(', '.join(plan.ledgers))}."


Rows = Annotated[int, typer.Option(min=1, help="How many rows.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="A new or empty folder.")]
DayCount = Annotated[
    int, typer.Option("--days", min=1, max=limits.SYNTHETIC_DAYS_MAX, help="Days.")
]
Entities = Annotated[
    int, typer.Option(min=2, max=limits.SYNTHETIC_ENTITIES_MAX, help="Queues.")
]
Outages = Annotated[
    int, typer.Option(min=0, max=limits.SYNTHETIC_OUTAGES_MAX, help="Outages.")
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")]


@app.command("synthetic")
def synthetic_command(
    rows: Rows,
    out: Out,
    days: DayCount = 365,
    entities: Entities = 1000,
    outages: Outages = 20,
    seed: Seed = 1,
) -> None:
    """Write a made-up ledger, and the truth about its outages in truth.json."""
    from twinbus.ledger.synthetic.traffic import SyntheticPlan
    from twinbus.ledger.synthetic.writing import TRUTH_FILE, write_synthetic

    plan = SyntheticPlan(rows, days, entities, outages, seed)
    write_synthetic(plan, out)
    print(f"{rows:,} rows of {days} days in {out}, their truth in {out / TRUTH_FILE}.")
