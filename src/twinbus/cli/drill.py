"""`twinbus drill`: rehearse an outage end to end, and prove that nothing was lost.

Owns the command's options and its end: the folder, the report, the last lines and the
exit code. What happens in between is `twinbus.drill`. Ctrl-C ends every process that
the drill has started.

Exit codes: 0 nothing was lost and every promise was kept; 1 a promise was broken, or
the drill could not be carried through, and the text says which; 2 it was not tried,
because of an option or a missing Java; 130 it was stopped with Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus import limits
from twinbus.cli.output import Json
from twinbus.cli.secret import read_secret
from twinbus.cli.trust import CaFile, CaFiles, one_file
from twinbus.client.transport.endpoint import endpoint_of
from twinbus.core.sas import parse_connection_string
from twinbus.errors import ConfigError, TwinbusError

if TYPE_CHECKING:
    from twinbus.drill.director import Director, Performance
    from twinbus.drill.plan import Plan
    from twinbus.drill.site.given_site import GivenNamespaces

app = typer.Typer()

_BROKEN_PROMISE = 1
_INTERRUPTED = 130
_HIDDEN = "@FILE and env:NAME keep it secret."
_EPILOG = (
    "Exit codes: 0 nothing was lost; 1 a promise was broken or the drill could not be "
    "carried through; 2 it was not tried; 130 it was stopped."
)


Messages = Annotated[int | None, typer.Option(help="Send so many messages in all.")]
Seconds = Annotated[
    float | None,
    typer.Option(help="Send for so long, 300 messages a second. [default: 30]"),
]
Senders = Annotated[int, typer.Option(help="Processes that send.")]
FaultName = Annotated[
    str,
    typer.Option(
        help="What happens to the primary: kill, stop (it hangs), cut (it cannot be "
        "reached), throttle, storage-full, storage-slow, send-down, sick (pings "
        "succeed and sends fail), stall, unauthorized, both (the secondary is cut "
        "off, too), or random (the seed chooses)."
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="All chance comes from it. [default: another each time]"),
]
SyphonKind = Annotated[
    str, typer.Option(help="What drains the backlog: spark or application.")
]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE.html", help="Write a report with a picture there."),
]
NoCost = Annotated[
    bool,
    typer.Option("--no-cost", help="Make no page about what the outage has cost."),
]
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep logs, histories and data of the drill.")
]


PrimaryGiven = Annotated[
    str | None,
    typer.Option(
        "--primary",
        metavar="CS",
        help="The connection string of a namespace of yours to use as the primary, "
        f"with entities of the drill's own; {_HIDDEN} Needs Manage.",
    ),
]
SecondaryGiven = Annotated[
    str | None,
    typer.Option("--secondary", metavar="CS", help="The same for the secondary."),
]


@app.command("drill", epilog=_EPILOG)
def drill(
    messages: Messages = None,
    seconds: Seconds = None,
    senders: Senders = 3,
    fault: FaultName = "kill",
    seed: Seed = None,
    syphon: SyphonKind = "spark",
    report: Report = None,
    no_cost: NoCost = False,
    keep: Keep = False,
    primary: PrimaryGiven = None,
    secondary: SecondaryGiven = None,
    ca_file: CaFile = None,
    cast: Annotated[str, typer.Option(hidden=True)] = "",
    as_json: Json = False,
) -> None:
    """Rehearse an outage on two real servers; fails unless nothing was lost."""
    from twinbus.drill.plan import Wishes, make_plan

    if seed is None:
        seed = random.SystemRandom().randrange(limits.DRILL_SEED_MAX)
    given = _given(primary, secondary, one_file(ca_file))
    plan = make_plan(
        Wishes(
            fault,
            messages,
            seconds,
            senders,
            seed,
            syphon,
            cast,
            prefix="" if given is None else f"twinbus-drill-{token_hex(4)}/",
            given=_again(primary, secondary, ca_file),
        )
    )
    _check_paths(report, cast)
    if plan.syphon == "spark":
        _check_spark()
    folder = Path(tempfile.mkdtemp(prefix="twinbus-drill-"))
    ok = False
    try:
        performance = _carry_out(plan, folder, given, as_json=as_json)
        summary = _summary(performance, folder, report, cost=not no_cost)
        _show(summary, as_json=as_json)
        ok = summary["ok"]
    except ConfigError:
        # It was not tried.
        ok = True
        raise
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("twinbus: The drill was stopped; nothing of it runs.", file=sys.stderr)
        ok = True
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        if ok and not keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"Logs, histories and data are in {folder}", file=sys.stderr)
    if not ok:
        raise typer.Exit(_BROKEN_PROMISE)


def _check_paths(report: Path | None, cast: str) -> None:
    if report is not None and not report.parent.is_dir():
        raise ConfigError(f"--report {report}: there is no folder '{report.parent}'.")
    try:
        known = not cast or find_spec(cast) is not None
    except ModuleNotFoundError:
        known = False
    if not known:
        raise ConfigError(f"--cast {cast}: there is no such package.")


def _check_spark() -> None:
    from twinbus.spark.environment import check_environment

    try:
        check_environment()
    except ConfigError as error:
        raise ConfigError(
            f"{error.text} Or run the drill without Spark: --syphon application."
        ) from None


def _given(
    primary: str | None, secondary: str | None, ca_file: Path | None
) -> GivenNamespaces | None:
    """The namespaces that the user has named; None if the drill starts servers."""
    from twinbus.drill.site.given_site import GivenNamespaces

    if primary is None and secondary is None:
        if ca_file is not None:
            raise ConfigError("--ca-file is for --primary and --secondary.")
        return None
    if primary is None or secondary is None:
        raise ConfigError("Give both --primary and --secondary, or neither.")
    first, second = (read_secret(each).reveal() for each in (primary, secondary))
    places = {
        endpoint_of(parse_connection_string(text)).target for text in (first, second)
    }
    if len(places) == 1:
        raise ConfigError("--primary and --secondary are one namespace. Name two.")
    return GivenNamespaces(first, second, ca_file)


def _again(primary: str | None, secondary: str | None, ca_file: CaFiles) -> str:
    """The same options again, without keys."""
    words = {"--primary": primary, "--secondary": secondary}
    shown = [
        f"{option} {given if given.startswith(('@', 'env:')) else 'CS'}"
        for option, given in words.items()
        if given is not None
    ]
    return " ".join([*shown, *(f"--ca-file {file}" for file in ca_file or ())])


def _carry_out(
    plan: Plan, folder: Path, given: GivenNamespaces | None, *, as_json: bool
) -> Performance:
    from twinbus.drill.director import Director
    from twinbus.drill.screen import opened

    try:
        with opened(as_json=as_json) as screen:
            director = Director(plan, folder, screen, given)
            try:
                return asyncio.run(_perform(director))
            finally:
                for name in director.left:
                    text = f"twinbus: {name} could not be removed. Delete it."
                    print(text, file=sys.stderr)
    except TwinbusError as error:
        if as_json:
            print(json.dumps({"ok": False, "reasons": [error.text]}))
        raise


def _summary(
    performance: Performance, folder: Path, report: Path | None, *, cost: bool
) -> dict[str, Any]:
    """Write the report, and beside it the ledgers and what they show."""
    from twinbus.drill.report.summary import summary_of

    summary = summary_of(performance)
    if report is not None:
        summary["report"] = str(report)
        ledger = _keep_ledgers(folder, report)
        summary["ledger"] = str(ledger)
        if cost:
            _report_cost(ledger, report, summary)
        _write_report(report, summary, performance)
    return summary


def _report_cost(ledger: Path, report: Path, summary: dict[str, Any]) -> None:
    from twinbus.cli.cost_report import make_page
    from twinbus.spark.environment import check_environment

    page = report.with_name(f"{report.stem}-cost.html")
    try:
        check_environment()
        shown = make_page([str(part) for part in sorted(ledger.iterdir())], page)
    except (TwinbusError, OSError) as error:
        # The drill has its result without it.
        print(f"twinbus: There is no page of costs: {error}", file=sys.stderr)
        return
    summary["cost"] = {
        "page": str(page),
        "operations": shown["bill"]["operations"],
        "outages": shown["outages"],
    }


async def _perform(director: Director) -> Performance:
    task = asyncio.current_task()
    assert task is not None
    # A polite kill is like Ctrl-C, which the loop knows already.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await director.run()


def _write_report(
    report: Path, summary: dict[str, Any], performance: Performance
) -> None:
    from twinbus.drill.report.report import write
    from twinbus.drill.report.timeline import timeline_of

    timeline = timeline_of(performance.events, performance.scene, performance.begun_ms)
    try:
        write(report, summary, timeline)
    except OSError as error:
        raise ConfigError(f"--report {report} cannot be written: {error}") from error


def _keep_ledgers(folder: Path, report: Path) -> Path:
    """Put the ledgers beside the report, in place of those of a drill before."""
    from twinbus.drill.plan import LEDGERS

    kept = report.with_name(f"{report.stem}-{LEDGERS}")
    for part in sorted((folder / LEDGERS).glob("*")):
        shutil.rmtree(kept / part.name, ignore_errors=True)
        shutil.copytree(part, kept / part.name, dirs_exist_ok=True)
    return kept


def _show(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))
        return
    from rich.console import Console

    from twinbus.drill.screen import final_table

    Console().print(final_table(summary))
    if "report" in summary:
        print(f"The report is in {summary['report']}")
        print(f"What would be billed is in {summary['ledger']}")
    if "cost" in summary:
        print(f"What the outage has cost is in {summary['cost']['page']}")
