"""The syphon on Spark: starts the job that moves the backlog to the primary.

    query = syphon(spark, primaryConnectionStringEnv="PRIMARY",
                   secondaryConnectionStringEnv="SECONDARY", until_empty=True)
    query.awaitTermination()

Owns the options, the look at both namespaces before Spark starts to work, and the
query: one row for each task, added up in its progress under the name `syphon`. Rule:
whatever is wrong with the options, the keys or the namespaces is one error here, and
never a failed task. What the job does is in `driver.py` and `task.py`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.transport.loop_thread import LoopThread
from twinbus.errors import (
    UNREACHABLE_HINT,
    ArgumentError,
    RemoteError,
    TwinbusError,
    Unreachable,
)
from twinbus.pairing.errors import AliasInvalid, NoBacklogQueue, SameNamespace
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.envelope import Backlogged
from twinbus.pairing.rules.naming import primary_label
from twinbus.pairing.rules.syphon_rules import TTL_REMAINING, TTL_RULES
from twinbus.spark.options import Access, Options
from twinbus.spark.syphon_job.access import KeyedNamespace
from twinbus.spark.syphon_job.backlog import Backlog
from twinbus.spark.syphon_job.driver import SyphonJob, SyphonSettings
from twinbus.spark.syphon_job.reports import Reports
from twinbus.spark.syphon_job.storage import storage_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PRIMARY = (
    "primaryConnectionString",
    "primaryConnectionStringEnv",
    "primaryConnectionStringFile",
)
SECONDARY = (
    "secondaryConnectionString",
    "secondaryConnectionStringEnv",
    "secondaryConnectionStringFile",
)
OPTIONS = (
    *PRIMARY,
    *SECONDARY,
    "caFile",
    "primaryName",
    "journalLocation",
    "checkpointLocation",
    "queryName",
    "chunkSize",
    "taskBudgetSeconds",
    "maxMessagesPerBatch",
    "keepOrder",
    "parallelism",
    "ttl",
    "ledger",
)
# What a session needs for a syphon: a task that is run twice at once sends twice, and
# one that fails is worth repeating.
SPARK_SETTINGS = {"spark.speculation": "false", "spark.task.maxFailures": "8"}

_CHUNK = 2 * limits.SYPHON_CHUNK_MESSAGES
# A path that is asked for with a key when no message names another.
_NO_ENTITY = "twinbus-syphon-check"
_RUN_TIME = "%Y%m%dT%H%M%S"


class SyphonCannotStart(TwinbusError):
    """One of the two namespaces is not as the syphon needs it."""


@dataclass(frozen=True, slots=True)
class SyphonRun:
    """A syphon that was started."""

    query: StreamingQuery
    reports: Reports
    settings: SyphonSettings

    def ask_stop(self) -> None:
        """Have the tasks end after the chunk in hand; then stop the query."""
        self.reports.ask_stop()


def syphon(
    spark: SparkSession, *, until_empty: bool = False, **options: object
) -> StreamingQuery:
    """Move the backlog to the primary, until they are empty or for ever.

    Returns at once, with the query; raises if it cannot work. Options are those of the
    documentation, by their names.
    """
    job, given = prepare(options, _master(spark))
    # A notebook has an event loop already, so this one is in a thread.
    thread = LoopThread("twinbus-syphon-check")
    try:
        thread.run(lambda: check(job))
    finally:
        thread.stop()
    return start(spark, job, given, until_empty=until_empty).query


# -- options -------------------------------------------------------------------------


def prepare(options: dict[str, object], master: str) -> tuple[SyphonJob, Options]:
    """Read the options; what is wrong with one is said with its name."""
    texts = {name: _text(value) for name, value in options.items() if value is not None}
    given = Options(texts, OPTIONS)
    ca_pem = _ca_pem(given.text("caFile"))
    primary = _namespace(given.access(PRIMARY), ca_pem)
    secondary = _namespace(given.access(SECONDARY), ca_pem)
    if primary.target == secondary.target:
        raise SameNamespace
    name = given.text("primaryName") or primary_label(*primary.target)
    stamp = datetime.now(UTC).strftime(_RUN_TIME)
    most = given.integer(
        "maxMessagesPerBatch", 0, low=1, high=limits.BATCH_MESSAGES_MAX_OPTION
    )
    settings = SyphonSettings(
        primary=name,
        journal=given.text("journalLocation") or _usual_journal(master),
        pair_folder=f"{secondary.name.replace(':', '-')}/{name}",
        run=f"{stamp}-{secrets.token_hex(4)}",
        chunk=given.integer(
            "chunkSize", _CHUNK, low=2, high=limits.SYPHON_CHUNK_MESSAGES_MAX
        ),
        keep_order=not given.has("keepOrder") or given.flag("keepOrder"),
        parallelism=given.integer(
            "parallelism", 0, low=1, high=limits.SYPHON_PARALLELISM_MAX
        ),
        task_budget_seconds=given.integer(
            "taskBudgetSeconds",
            limits.SYPHON_TASK_SECONDS,
            low=1,
            high=limits.SYPHON_TASK_SECONDS_MAX,
        ),
        messages_max=most or None,
        ttl_rule=given.choice("ttl", TTL_RULES, TTL_REMAINING),
        ledger=_ledger(given.text("ledger")),
    )
    return SyphonJob(settings, primary, secondary), given


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _namespace(access: Access, ca_pem: str | None) -> KeyedNamespace:
    return KeyedNamespace(access.parsed(), ca_pem)


def _ca_pem(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(
            f"Option 'caFile': '{file}' cannot be read as certificates ({error})."
        ) from None


def _ledger(folder: str | None) -> str | None:
    """The folder of the ledger, from the root on: executors have other places."""
    if folder is not None and "://" in folder:
        raise ArgumentError(
            f"Option 'ledger': '{folder}' is no folder. Give one that is mounted on "
            "all executors, or that each of them may have for itself."
        )
    return None if folder is None else str(Path(folder).expanduser().absolute())


def _usual_journal(master: str) -> str:
    if not master.startswith("local"):
        raise ArgumentError(
            "Option 'journalLocation' is missing: name a folder or an address that the "
            "driver and all executors share, such as s3://bucket/twinbus."
        )
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return str(Path(state).expanduser() / "twinbus" / "journal")


def _master(spark: SparkSession) -> str:
    return spark.conf.get("spark.master", "") or ""


# -- a look before the start ---------------------------------------------------------


async def check(job: SyphonJob) -> list[int]:
    """Refuse what cannot work; returns the backlog queues that there are."""
    settings = job.settings
    async with (
        job.secondary.connection() as secondary,
        job.primary.connection() as primary,
    ):
        backlog = Backlog(secondary, settings.primary)
        try:
            found = await asyncio.wait_for(backlog.find(), limits.SYPHON_CHECK_SECONDS)
        except (RemoteError, TimeoutError) as error:
            raise _refused("secondary", job.secondary, error, "Listen") from error
        if not found:
            raise NoBacklogQueue(
                f"'{job.secondary.name}' has no backlog queue of '{settings.primary}'. "
                "Pair the namespaces first, or name the primary as the senders do."
            )
        try:
            await primary.open(limits.SYPHON_CHECK_SECONDS)
            path = await _some_destination(secondary, backlog, found)
            if path is None and job.primary.has_key:
                # It need not exist: only a wrong key is an error here.
                path = _NO_ENTITY
            if path is not None:
                await _check_sends(primary, path)
        except (RemoteError, TimeoutError) as error:
            raise _refused("primary", job.primary, error, "Send") from error
    return found


async def _some_destination(
    secondary: Connection, backlog: Backlog, indexes: list[int]
) -> str | None:
    """Where the first message of some backlog queue wants to go."""
    for index in indexes:
        for message in await secondary.management(backlog.path(index)).peek(1):
            try:
                return Backlogged(message.payload).aliases().path
            except AliasInvalid:
                continue
    return None


async def _check_sends(primary: Connection, path: str) -> None:
    try:
        async with primary.sender(path) as sender:
            await sender.open(limits.SYPHON_CHECK_SECONDS)
    except RemoteError as error:
        # What else may be wrong with one entity is the rules' business.
        if kind_of(error) is Failure.ACCESS:
            raise


def _refused(
    which: str, namespace: KeyedNamespace, error: Exception, right: str
) -> SyphonCannotStart:
    text = error.text if isinstance(error, TwinbusError) else "No answer in time."
    hint = ""
    if kind_of(error) is Failure.ACCESS:
        hint = f" The key needs the right to {right}."
    elif isinstance(error, Unreachable):
        hint = f" {UNREACHABLE_HINT}"
    return SyphonCannotStart(f"The {which} '{namespace.name}': {text}{hint}")


# -- the query -----------------------------------------------------------------------


def start(
    spark: SparkSession, job: SyphonJob, given: Options, *, until_empty: bool
) -> SyphonRun:
    """Start the query of a job that was checked."""
    from dataclasses import replace

    from twinbus.spark.syphon_job.source import NAME, source_class

    settings = job.settings
    if (spark.conf.get("spark.speculation", "false") or "").lower() == "true":
        raise ArgumentError(
            "'spark.speculation' must be false: a task that runs twice sends twice."
        )
    if not settings.parallelism:
        settings = replace(settings, parallelism=_running_at_once(spark))
        job = SyphonJob(settings, job.primary, job.secondary)
    reports = Reports(storage_at(settings.journal), settings.pair_folder, settings.run)
    _begin(reports, settings)
    spark.dataSource.register(source_class(job))
    rows = spark.readStream.format(f"{NAME}_{settings.run}").load()
    writer = observed(rows).writeStream.format("noop")
    writer = writer.queryName(given.text("queryName") or f"{NAME}_{settings.run}")
    checkpoint = given.text("checkpointLocation")
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if until_empty:
        writer = writer.trigger(availableNow=True)
    return SyphonRun(writer.start(), reports, settings)


def observed(rows: DataFrame) -> DataFrame:
    """The rows, whose sums and list come into the progress as they pass."""
    from pyspark.sql import functions as column

    from twinbus.spark.syphon_job.source import NUMBERS

    sums: list[Any] = [column.sum(name).alias(name) for name in NUMBERS]
    tasks = column.collect_list(column.struct("*")).alias("tasks")
    return rows.observe("syphon", *sums, tasks)


def _running_at_once(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001
        # With Spark Connect the client does not know.
        return limits.SYPHON_PARALLELISM_UNKNOWN


def _begin(reports: Reports, settings: SyphonSettings) -> None:
    """Make the run's folder, and forget runs of long ago."""
    try:
        reports.begin()
    except OSError as error:
        raise ArgumentError(
            f"Option 'journalLocation': '{settings.journal}' cannot be written "
            f"({error})."
        ) from error
    kept = timedelta(days=limits.SYPHON_RUNS_KEPT_DAYS)
    reports.forget_before((datetime.now(UTC) - kept).strftime(_RUN_TIME))
