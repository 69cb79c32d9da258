"""`twinbus syphon`: move the backlog of a pair of namespaces to the primary.

Owns the command's options, the Spark session and what is shown while the job runs. The
job itself is `spark/syphon_job/`, or `syphon_application.py`; `syphon_engine.py`
chooses. Everything that can be wrong is said before Spark starts. Ctrl-C lets the tasks
finish the chunk in hand; a second one does not wait.

Exit code 1 also says that an `--until-empty` was stopped before the end.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus import limits
from twinbus.cli.output import Json, pairs, progress, show, show_all
from twinbus.cli.pair.options import CaFile, PrimaryName, PrimaryText, SecondaryText
from twinbus.cli.pair.syphon_engine import (
    EngineChoice,
    EngineName,
    SyphonEngine,
    by_size,
)
from twinbus.cli.secret import read_secret
from twinbus.cli.spark_session import JAVA_OPTIONS, first_line, spark_session
from twinbus.cli.trust import one_file
from twinbus.cost.prices import PriceBook, load_prices
from twinbus.errors import ArgumentError, ConfigError, TwinbusError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.cli.pair.syphon_view import ReportWatch, Snapshot
    from twinbus.spark.options import Options
    from twinbus.spark.syphon_job.driver import SyphonJob
    from twinbus.spark.syphon_job.job import SyphonRun

app = typer.Typer()

_LOCAL = "local[2,4]"
_COLUMNS = ("index", "destination", "messages", "bytes", "operations", "fate")
# What the options of the Spark job are called here.
_OPTIONS = {
    "primaryConnectionString": "--primary",
    "secondaryConnectionString": "--secondary",
    "primaryName": "--primary-name",
    "caFile": "--ca-file",
    "journalLocation": "--journal",
    "checkpointLocation": "--checkpoint",
    "chunkSize": "--chunk-size",
    "taskBudgetSeconds": "--task-seconds",
    "maxMessagesPerBatch": "--max-per-batch",
    "ttl": "--ttl",
    "ledger": "--ledger",
}
_FINAL = ("index", "moved", "redelivered", "skipped", "dead_lettered", "depth")


class SyphonFailed(TwinbusError):
    """The syphon ended with an error."""


Master = Annotated[
    str | None,
    typer.Option(
        help=f"Where Spark runs: spark://..., sc://..., yarn; otherwise {_LOCAL}, here."
    ),
]
UntilEmpty = Annotated[bool, typer.Option("--until-empty", help="Drain and exit.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would move where; change nothing.")
]
JournalPlace = Annotated[
    str | None,
    typer.Option(
        "--journal",
        metavar="DIR|URL",
        help="Where receipts are kept; with executors on other machines a place that "
        "all of them share.",
    ),
]
ChunkSize = Annotated[
    int | None, typer.Option(help="Messages that a task has in hand.")
]
TaskSeconds = Annotated[int | None, typer.Option(help="How long a task lasts, about.")]
MaxPerBatch = Annotated[
    int | None, typer.Option(help="Messages of one micro-batch, about.")
]
NoOrder = Annotated[
    bool,
    typer.Option("--no-order", help="Several tasks for one backlog queue; order goes."),
]
Ttl = Annotated[str | None, typer.Option(help="remaining, or restart at the primary.")]
LedgerFolder = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="DIR",
        help="Count what is received and sent there, as Parquet files.",
    ),
]
Checkpoint = Annotated[
    str | None, typer.Option(help="Spark's checkpoint location; may be left out.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; several."),
]
Prices = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --dry-run: a price book of yours."),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Serve Prometheus metrics there, on loopback."),
]


@app.command("syphon")
def syphon(
    primary: PrimaryText,
    secondary: SecondaryText,
    engine: EngineName = None,
    master: Master = None,
    until_empty: UntilEmpty = False,
    dry_run: DryRun = False,
    journal: JournalPlace = None,
    primary_name: PrimaryName = None,
    chunk_size: ChunkSize = None,
    task_seconds: TaskSeconds = None,
    max_per_batch: MaxPerBatch = None,
    no_order: NoOrder = False,
    ttl: Ttl = None,
    ledger: LedgerFolder = None,
    checkpoint: Checkpoint = None,
    conf: Conf = None,
    metrics_port: MetricsPort = None,
    ca_file: CaFile = None,
    prices: Prices = None,
    as_json: Json = False,
) -> None:
    """Move the backlog to the primary, on Spark or inside this process."""
    if prices is not None and not dry_run:
        raise ConfigError("--prices needs --dry-run: without it nothing is priced.")
    book = load_prices(prices) if dry_run else None
    options: dict[str, object] = {
        "primaryConnectionString": read_secret(primary).reveal(),
        "secondaryConnectionString": read_secret(secondary).reveal(),
        "primaryName": primary_name,
        "caFile": _path_text(one_file(ca_file)),
        "journalLocation": journal,
        "checkpointLocation": checkpoint,
        "chunkSize": chunk_size,
        "taskBudgetSeconds": task_seconds,
        "maxMessagesPerBatch": max_per_batch,
        "keepOrder": not no_order,
        "ttl": ttl,
        "ledger": ledger,
    }
    for_spark: dict[str, object] = {
        "--master": master,
        "--journal": journal,
        "--checkpoint": checkpoint,
        "--task-seconds": task_seconds,
        "--max-per-batch": max_per_batch,
        "--no-order": no_order,
        "--conf": conf,
        "--ledger": ledger,
        "--metrics-port": metrics_port is not None,
    }
    choice = EngineChoice(engine, until_empty, for_spark)
    if book is not None:
        choice.by_options()
        job, _, indexes = _checked(options, master or _LOCAL)
        _dry_run(job, indexes, book, as_json)
        return
    drain = _Drain(options, master or _LOCAL, until_empty, as_json)
    drain.run(choice, conf, metrics_port)


@dataclass(frozen=True, slots=True)
class _Drain:
    """What is to be drained, and how it is shown."""

    options: dict[str, object]
    master: str
    until_empty: bool
    as_json: bool

    def run(
        self, choice: EngineChoice, conf: list[str] | None, metrics_port: int | None
    ) -> None:
        """Drain with the engine that was chosen."""
        chosen = choice.by_options()
        if chosen is not None and chosen[0] is SyphonEngine.SPARK:
            _check_spark(self.master)
        job, given, indexes = _checked(self.options, self.master)
        engine, why = chosen or _by_size(job, indexes, self.master)
        said = f"Engine {engine.value}: {why}."
        if engine is SyphonEngine.APPLICATION:
            screen = _Screen(None, self.as_json, said)
            _drain_here(job, indexes, self.until_empty, screen)
            return
        from twinbus.spark.syphon_job.job import start

        spark = _session(self.master, dict(pairs("--conf", conf)))
        try:
            if metrics_port is not None:
                _serve_metrics(spark, metrics_port)
            run = start(spark, job, given, until_empty=self.until_empty)
            screen = _Screen(_ui_of(spark), self.as_json, said)
            _follow(run, screen, self.until_empty)
        finally:
            spark.stop()


def _checked(
    options: dict[str, object], master: str
) -> tuple[SyphonJob, Options, list[int]]:
    """The job, and the backlog queues that there are."""
    from twinbus.spark.syphon_job.job import check

    job, given = _prepare(options, master)
    return job, given, asyncio.run(check(job))


def _check_spark(master: str) -> None:
    from twinbus.spark.environment import check_environment

    check_environment(java=not master.startswith("sc:"))


def _by_size(
    job: SyphonJob, indexes: list[int], master: str
) -> tuple[SyphonEngine, str]:
    """What suits the backlog; without Spark it is drained here, whatever its size."""
    from twinbus.cli.pair.syphon_application import depth_of

    engine, why = by_size(asyncio.run(depth_of(job, indexes)))
    if engine is SyphonEngine.SPARK:
        try:
            _check_spark(master)
        except ConfigError as error:
            return SyphonEngine.APPLICATION, f"{why}, but {error.text.rstrip('.')}"
    return engine, why


def _drain_here(
    job: SyphonJob, indexes: list[int], until_empty: bool, screen: _Screen
) -> None:
    from twinbus.cli.pair.syphon_application import ApplicationSyphon

    syphon = ApplicationSyphon(job, indexes, until_empty=until_empty)
    interrupts = _Interrupts()
    with interrupts.counted(), screen.opened():
        shot, ended = asyncio.run(
            syphon.run(
                lambda found: screen.show(found, time.time()),
                lambda: interrupts.count > 0,
            )
        )
    screen.end(shot, "drained" if ended else "stopped")
    if until_empty and not ended and shot.depth:
        raise SyphonFailed("Stopped before the backlog was empty.")


def _prepare(options: dict[str, object], master: str) -> tuple[SyphonJob, Options]:
    """Read the options; what is refused is named as on the command line."""
    from twinbus.spark.syphon_job.job import prepare

    try:
        return prepare(options, master)
    except ArgumentError as error:
        text = error.text
        for name, option in _OPTIONS.items():
            text = text.replace(f"Option '{name}'", option)
        raise ArgumentError(text) from None


def _path_text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _dry_run(
    job: SyphonJob, indexes: list[int], book: PriceBook, as_json: bool
) -> None:
    from twinbus.cli.pair.syphon_dry import forecast, summary

    with progress(None) as advance:
        found = asyncio.run(forecast(job, indexes, advance))
    if as_json:
        lines = [asdict(each) for each in found]
        show({**summary(found, book), "queues": lines}, as_json=True)
        return
    show_all([asdict(each) for each in found], _COLUMNS, as_json)
    show(summary(found, book), as_json)


# -- Spark ---------------------------------------------------------------------------


def _session(master: str, settings: dict[str, str]) -> SparkSession:
    from twinbus.spark.syphon_job.job import SPARK_SETTINGS

    # The messages never come through Java, so it need not be fast, only there soon.
    usual = {**SPARK_SETTINGS, JAVA_OPTIONS: "-XX:TieredStopAtLevel=1"}
    return spark_session("twinbus syphon", master, usual, settings)


def _serve_metrics(spark: SparkSession, port: int) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from twinbus.spark.syphon_job.metrics import SyphonMetrics

    registry = CollectorRegistry()
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise ConfigError(
            f"--metrics-port {port} cannot be used ({error.strerror})."
        ) from error
    spark.streams.addListener(SyphonMetrics(registry))


def _ui_of(spark: SparkSession) -> str | None:
    try:
        found: str | None = spark.sparkContext.uiWebUrl
    except Exception:  # noqa: BLE001
        # With Spark Connect only the server knows.
        return None
    return found


# -- while it runs -------------------------------------------------------------------


class _Screen:
    """Where snapshots go: a table that changes, lines, or JSON."""

    def __init__(self, ui: str | None, as_json: bool, engine: str) -> None:
        self._ui = ui
        self._as_json = as_json
        self._note = f"{engine} Spark UI {ui}" if ui else engine
        self._live: Any = None
        self._printed_at = 0.0
        self._printed = (-1, 0, 0, 0)

    @contextmanager
    def opened(self) -> Iterator[None]:
        if self._as_json or not sys.stderr.isatty():
            print(self._note, file=sys.stderr)
            yield
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), auto_refresh=False) as self._live:
            yield

    def say(self, text: str) -> None:
        """Something to know, besides the numbers."""
        self._note = text
        if self._live is None:
            print(text, file=sys.stderr)

    def show(self, shot: Snapshot, now: float) -> None:
        """The numbers of the moment."""
        from twinbus.cli.pair.syphon_view import line_of, table_of

        if self._live is not None:
            table = table_of(shot, "twinbus syphon", self._note)
            self._live.update(table, refresh=True)
            return
        # Idle for days, it has nothing to say.
        news = (shot.epoch, shot.depth, shot.moved, shot.dead_lettered)
        soon = now - self._printed_at < limits.CLI_LINE_SECONDS
        if news == self._printed or (shot.epoch == self._printed[0] and soon):
            return
        self._printed, self._printed_at = news, now
        if self._as_json:
            print(json.dumps({**shot.as_dict(), "ui": self._ui}), flush=True)
        else:
            print(line_of(shot), file=sys.stderr, flush=True)

    def end(self, shot: Snapshot, ended: str) -> None:
        """The last word, on standard output."""
        if self._as_json:
            print(json.dumps({**shot.as_dict(), "ui": self._ui, "ended": ended}))
            return
        show_all([asdict(line) for line in shot.queues], _FINAL, as_json=False)
        dead = f", {shot.dead_lettered} dead-lettered" if shot.dead_lettered else ""
        print(f"{ended}: {shot.moved} moved, {shot.depth} left{dead}.")
        if dead:
            print(
                "'twinbus backlog peek --dead-letter' shows why, and 'twinbus backlog "
                "replay' puts them back."
            )


class _Interrupts:
    """Ctrl-C and a polite kill, counted instead of raised."""

    def __init__(self) -> None:
        self.count = 0
        self.news = threading.Event()

    def _heard(self, *_: object) -> None:
        self.count += 1
        self.news.set()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Instead of Spark's own handler, which would cancel the tasks at once."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._heard) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _follow(run: SyphonRun, screen: _Screen, until_empty: bool) -> None:
    """Show how it goes until it ends."""
    from twinbus.cli.pair.syphon_view import ReportWatch

    watch = ReportWatch(run.reports)
    interrupts = _Interrupts()
    with interrupts.counted(), screen.opened():
        _watch_until_end(run, screen, watch, interrupts)
        shot = watch.look(time.time())
    error = run.query.exception()
    if error is not None:
        raise SyphonFailed(_reason(str(error)))
    if interrupts.count and until_empty and shot.depth:
        screen.end(shot, "stopped")
        raise SyphonFailed("Stopped before the backlog was empty.")
    screen.end(shot, "stopped" if interrupts.count else "drained")


def _watch_until_end(
    run: SyphonRun, screen: _Screen, watch: ReportWatch, interrupts: _Interrupts
) -> None:
    asked = False
    while run.query.isActive:
        now = time.time()
        shot = watch.look(now)
        screen.show(shot, now)
        if interrupts.count and not asked:
            run.ask_stop()
            screen.say("Stopping after the chunk in hand; Ctrl-C again to stop now.")
            asked = True
        if interrupts.count > 1 or (asked and not shot.working):
            run.query.stop()
            return
        interrupts.news.wait(limits.CLI_LOOK_SECONDS)
        interrupts.news.clear()


def _reason(text: str) -> str:
    """What a person wants of Spark's error: the words of ours, if there are any."""
    ours = re.findall(r"^twinbus\.[\w.]+: (.+)$", text, re.MULTILINE)
    return ours[-1] if ours else first_line(text)
