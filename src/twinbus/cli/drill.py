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
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus import limits
from twinbus.cli.output import Json
from twinbus.errors import ConfigError, TwinbusError

if TYPE_CHECKING:
    from twinbus.drill.director import Performance, Screen
    from twinbus.drill.plan import Plan

app = typer.Typer()

_BROKEN_PROMISE = 1
_INTERRUPTED = 130
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
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep logs, histories and data of the drill.")
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
    keep: Keep = False,
    cast: Annotated[str, typer.Option(hidden=True)] = "",
    as_json: Json = False,
) -> None:
    """Rehearse an outage on two real servers; fails unless nothing was lost."""
    from twinbus.drill.plan import Wishes, make_plan

    if seed is None:
        seed = random.SystemRandom().randrange(limits.DRILL_SEED_MAX)
    plan = make_plan(Wishes(fault, messages, seconds, senders, seed, syphon, cast))
    _check_paths(report, cast)
    if plan.syphon == "spark":
        _check_spark()
    folder = Path(tempfile.mkdtemp(prefix="twinbus-drill-"))
    ok = False
    try:
        summary = _carry_out(plan, folder, report, as_json=as_json)
        ok = summary["ok"]
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


def _carry_out(
    plan: Plan, folder: Path, report: Path | None, *, as_json: bool
) -> dict[str, Any]:
    from twinbus.drill.screen import opened
    from twinbus.drill.summary import summary_of

    try:
        with opened(as_json=as_json) as screen:
            performance = asyncio.run(_perform(plan, folder, screen))
    except TwinbusError as error:
        if as_json:
            print(json.dumps({"ok": False, "reasons": [error.text]}))
        raise
    summary = summary_of(performance)
    if report is not None:
        _write_report(report, summary, performance)
        summary["report"] = str(report)
    _show(summary, as_json=as_json)
    return summary


async def _perform(plan: Plan, folder: Path, screen: Screen) -> Performance:
    from twinbus.drill.director import Director

    task = asyncio.current_task()
    assert task is not None
    # A polite kill is like Ctrl-C, which the loop knows already.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await Director(plan, folder, screen).run()


def _write_report(
    report: Path, summary: dict[str, Any], performance: Performance
) -> None:
    from twinbus.drill.report import write
    from twinbus.drill.timeline import timeline_of

    timeline = timeline_of(performance.events, performance.scene, performance.begun_ms)
    try:
        write(report, summary, timeline)
    except OSError as error:
        raise ConfigError(f"--report {report} cannot be written: {error}") from error


def _show(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))
        return
    from rich.console import Console

    from twinbus.drill.screen import final_table

    Console().print(final_table(summary))
    if "report" in summary:
        print(f"The report is in {summary['report']}")
