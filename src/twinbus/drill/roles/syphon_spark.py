"""A child that runs the syphon on Spark.

Owns the Spark session of a drill. It is started at once, while the traffic flows,
because that takes longest; each drain begins on command and ends by itself. When there
are no more commands, the child ends with all that Spark has started.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.drill.roles.stage import Line, ledger_of, plan_of, say
from twinbus.drill.site.access import NamespaceAccess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Two tasks at a time, each tried four times; plain `local[2]` never tries again.
_MASTER = "local[2,4]"
# For a Java that lives for a minute: half the work to start, measured.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Commands:
    """Commands, read in a thread, since Spark's calls block."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        # There is nothing here that an orderly end would save. Java and the workers of
        # Python end with this group.
        os.killpg(os.getpgrp(), signal.SIGKILL)

    def next(self) -> Line:
        """Wait for the next one."""
        line: Line = json.loads(self._lines.get())
        return line


def main(prepare: Callable[[Line], None] = lambda _: None) -> None:
    """Start Spark, then drain whenever told to. `prepare` is called before Spark."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begun = monotonic()
    commands = Commands()
    job = commands.next()
    prepare(job)
    spark = _session(job)
    say(ready=True, seconds=round(monotonic() - begun, 1))
    drains = moved = 0
    while commands.next():
        drains += 1
        moved += _drain(spark, job, drains, moved)
        say(moved=moved, drained=True)


def _session(job: Line) -> SparkSession:
    from pyspark.sql import SparkSession

    from twinbus.spark.syphon_job.job import SPARK_SETTINGS

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **SPARK_SETTINGS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.local.dir": str(Path(job["folder"]) / "spark"),
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.appName("twinbus drill").master(_MASTER)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _drain(spark: SparkSession, job: Line, number: int, before: int) -> int:
    """Drain once; returns how many messages came home."""
    from twinbus.spark import syphon

    folder = Path(job["folder"])
    # Past any proxy: it works when the fault is over.
    primary, secondary = (
        NamespaceAccess(**job["primary"]),
        NamespaceAccess(**job["secondary"]),
    )
    trust = {"caFile": primary.ca_file} if primary.ca_file else {}
    query = syphon(
        spark,
        until_empty=True,
        primaryConnectionString=primary.text,
        secondaryConnectionString=secondary.text,
        primaryName=plan_of(job).primary_name,
        journalLocation=str(folder / "journal"),
        checkpointLocation=str(folder / f"checkpoint-{number}"),
        taskBudgetSeconds=limits.DRILL_TASK_SECONDS,
        ledger=ledger_of(job),
        **trust,
    )
    while not query.awaitTermination(limits.DRILL_SPARK_LOOK_SECONDS):
        say(moved=before + _moved(query))
    return _moved(query)


def _moved(query: StreamingQuery) -> int:
    observed = (each.observedMetrics.get("syphon") for each in query.recentProgress)
    return sum(row.moved or 0 for row in observed if row is not None)


if __name__ == "__main__":
    main()
