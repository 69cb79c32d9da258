"""The syphon as a streaming source: what Spark calls, and nothing more.

    offset     {"epoch": n}: micro-batches so far; the truth is in the queues
    partition  one task of `driver.py`
    row        what one task did; messages themselves never come through here

Spark pickles the source and its reader into every task. So the class that is registered
only makes the real source, and that gives its keys to the reader and forgets them; a
reader that is pickled forgets them too. Only tickets travel, inside partitions. The
thinking is in `driver.py` and `task.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from twinbus.spark.syphon_job.driver import SyphonDriver, SyphonJob, SyphonTask
from twinbus.spark.syphon_job.reports import Report
from twinbus.spark.syphon_job.task import run_task

NAME = "twinbus_syphon"
SCHEMA = """
    queue string, epoch bigint, slice int, seconds double, ended string,
    receives bigint, received bigint, redelivered bigint,
    moved bigint, moved_bytes bigint, skipped bigint, pings bigint,
    parked bigint, resting bigint, unknown bigint, late bigint,
    dead_lettered bigint, dead_letter_reasons map<string, bigint>,
    destinations map<string, struct<moved: bigint, moved_bytes: bigint, state: string>>
"""
# The columns that can be added up.
NUMBERS = (
    *("receives", "received", "redelivered", "moved", "moved_bytes", "skipped"),
    *("pings", "parked", "resting", "unknown", "late", "dead_lettered"),
)


def row_of(report: Report) -> tuple[Any, ...]:
    """A report as a row of the schema."""
    counts = report.counts
    plain = counts.as_dict()
    plain["dead_lettered"] = sum(counts.dead_lettered.values())
    destinations = {
        path: (each.moved, each.moved_bytes, each.state)
        for path, each in counts.destinations.items()
    }
    return (
        report.queue,
        report.epoch,
        report.slice,
        (report.updated_ms - report.started_ms) / 1000,
        report.ended,
        *(plain[name] for name in NUMBERS),
        counts.dead_lettered,
        destinations,
    )


class SyphonPartition(InputPartition):
    """One task. It carries tokens, which print as stars."""

    def __init__(self, task: SyphonTask) -> None:
        super().__init__(task)


def source_class(job: SyphonJob) -> type[DataSource]:
    """A class to register with Spark, for this job."""

    class Registered(DataSource):
        # Pickled by value, with the job in its cell; what it makes is pickled by name.
        def __new__(cls, options: Any) -> Any:
            del options
            return SyphonSource(job)

        @classmethod
        def name(cls) -> str:
            return f"{NAME}_{job.settings.run}"

    return Registered


class SyphonSource(DataSource):
    """The source itself; hands its job to the first reader."""

    def __init__(self, job: SyphonJob) -> None:
        super().__init__({})
        self._job: SyphonJob | None = job

    @classmethod
    def name(cls) -> str:
        """As plans show it."""
        return NAME

    def schema(self) -> str:
        """One row for each task."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> SyphonReader:
        """The reader, and with it the keys."""
        del schema
        job, self._job = self._job, None
        assert job is not None, "a syphon has one reader in each process"
        return SyphonReader(job)


class SyphonReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Asks the driver's part for work, and runs tasks in workers."""

    def __init__(self, job: SyphonJob) -> None:
        self._job: SyphonJob | None = job
        self._driver: SyphonDriver | None = None
        self._until_empty = False

    def __getstate__(self) -> dict[str, Any]:
        """What workers get: nothing. A task is all they need."""
        return {"_job": None, "_driver": None, "_until_empty": False}

    # -- in the driver -----------------------------------------------------------------

    @property
    def _running(self) -> SyphonDriver:
        if self._driver is None:
            job = self._job
            assert job is not None, "only the driver decides"
            self._driver = SyphonDriver(job.settings, job.primary, job.secondary)
        return self._driver

    def prepareForTriggerAvailableNow(self) -> None:
        """Drain and end."""
        self._until_empty = True

    def initialOffset(self) -> dict[str, int]:
        """No micro-batch yet."""
        return {"epoch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """As the options say."""
        assert self._job is not None
        most = self._job.settings.messages_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The next epoch if there is work; otherwise the same again."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        epoch = start["epoch"]
        work = self._running.has_work(epoch, most, until_empty=self._until_empty)
        return {"epoch": epoch + 1} if work else start

    def reportLatestOffset(self) -> dict[str, Any]:
        """How deep each queue is; Spark shows it in the progress."""
        return self._running.status()

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Sequence[InputPartition]:
        """The tasks of an epoch."""
        if start == end:
            return []
        return [SyphonPartition(task) for task in self._running.tasks(end["epoch"])]

    def stop(self) -> None:
        """The query has ended."""
        if self._driver is not None:
            self._driver.close()

    # -- in a worker -------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Run a task; one row."""
        yield row_of(run_task(partition.value))
