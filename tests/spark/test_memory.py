"""Python workers stay small, however large messages are and however many.

A worker's peak is what the system remembers of it (`VmHWM`). Workers are kept between
queries, so a query that needs more than those before shows up in the difference.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.bus import Bus
from tests.spark.conftest import ROOT
from tests.spark.processes import workers

pytestmark = pytest.mark.timeout(300)

SIZE_BYTES = 250_000


def peak_mb(spark: SparkSession) -> float:
    """The largest peak of a worker."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return max(each.peak_mb for each in workers(gateway.proc.pid))


def copy(spark: SparkSession, bus: Bus, name: str, folder: Path) -> int:
    """Move all messages of a queue into another in one batch; returns how many."""
    source = bus.options(
        f"{name}-in",
        settle="spool",
        spoolLocation=folder / "spool",
        maxMessagesPerBatch=100_000,
        taskBudgetSeconds=300,
    )
    query = (
        spark.readStream.format("servicebus")
        .options(**source)
        .load()
        .writeStream.format("servicebus")
        .options(**bus.options(f"{name}-out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(280)
    return sum(each["numInputRows"] for each in query.recentProgress)


def measure(
    spark: SparkSession, bus: Bus, name: str, folder: Path, count: int
) -> float:
    """The peak after so many messages were copied."""
    for at in range(0, count, 100):
        bus.fill(f"{name}-in", min(100, count - at), SIZE_BYTES)
    assert copy(spark, bus, name, folder) == count
    assert bus.held(f"{name}-in") == 0
    bus.namespace.purge(f"{name}-out")
    return peak_mb(spark)


@pytest.fixture
def queues(bus: Bus, name: str) -> str:
    for end in ("in", "out"):
        bus.namespace.create_queue(f"{name}-{end}")
    return name


def test_large_messages_do_not_make_a_worker_large(
    bus: Bus, name: str, tmp_path: Path
) -> None:
    """A hundred megabytes in one task take no more than the first twenty-five."""
    for queue in (name, f"{name}-2", f"{name}-out"):
        bus.namespace.create_queue(queue)
    for queue in (name, f"{name}-2"):
        for _ in range(4):
            bus.fill(queue, 100, SIZE_BYTES)
    text = bus.namespace.connection_string
    command = [sys.executable, "-m", "tests.spark.worker", text]

    done = subprocess.run(
        [*command, name, f"{name}-out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for part in ("reading", "writing"):
        rows = [count for count, _ in said[part]]
        peaks = [mb for _, mb in said[part]]
        print(f"{part}: {len(rows)} batches, {peaks[0]:.0f} to {peaks[-1]:.0f} MB")
        assert sum(rows) == 400
        # Batches are cut by their bytes: a full one, and what one more receive brings.
        assert max(rows) * SIZE_BYTES < 10 * 1024 * 1024
        quarter = next(at for at in range(len(rows)) if sum(rows[: at + 1]) >= 100)
        assert peaks[-1] < peaks[quarter] + 16
    assert said["sent"] == 400


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_gigabytes_do_not_make_workers_large(
    bus: Bus, spark: SparkSession, queues: str, tmp_path: Path
) -> None:
    """With what Spark does by itself, which is 64 MB at a time for a sink.

    The second query of a worker needs more than its first, and no later one does.
    """
    measure(spark, bus, queues, tmp_path, 1000)
    before = measure(spark, bus, queues, tmp_path, 4000)

    # As many as the queue takes at a time.
    after = max(measure(spark, bus, queues, tmp_path, 4000) for _ in range(2))

    print(f"a worker had {before:.0f} MB at most, and then {after:.0f}")
    assert after < before + 16
    assert after < 512
