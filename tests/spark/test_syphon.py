"""The syphon end to end: two servers as processes, and a real Spark.

The small version of what `make campaigns` does with 200,000 messages and many kills.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.printed import blocks
from tests.spark.syphon_pair import (
    PRIMARY,
    Pair,
    Server,
    Shape,
    collect,
    differences,
    filled,
    judged,
    left_behind,
    receipts,
    serving,
)
from twinbus.pairing.rules.envelope import divert
from twinbus.pairing.rules.naming import backlog_path
from twinbus.spark.syphon_job.job import SyphonRun, check, prepare, start
from twinbus.spark.syphon_job.journal import receipts_folder
from twinbus.spark.syphon_job.metrics import SyphonMetrics
from twinbus.spark.syphon_job.storage import storage_at
from twinbus.wire.message.sections import MESSAGE_ID, encode_message

# Far more than it takes; the machine may have other things to do.
_SECONDS_MAX = 120.0

pytestmark = pytest.mark.timeout(3 * _SECONDS_MAX)


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair[Server]]:
    shape: Shape = getattr(request, "param", Shape())
    with serving(tmp_path, shape) as made:
        yield made


def drain(
    spark: SparkSession,
    pair: Pair[Server],
    *,
    until_empty: bool = True,
    **options: object,
) -> SyphonRun:
    """Start a syphon."""
    job, given = prepare({**pair.options, **options}, "local[2,4]")
    asyncio.run(check(job))
    return start(spark, job, given, until_empty=until_empty)


def ended(query: StreamingQuery) -> list[dict[str, Any]]:
    """Wait for the end; returns what the query said about its micro-batches."""
    assert query.awaitTermination(int(_SECONDS_MAX)), query.status
    return [json.loads(each.json) for each in query.recentProgress]


def wait_for(what: Callable[[], bool], query: StreamingQuery) -> None:
    """Wait until something is so; looks fifty times a second."""
    deadline = time.monotonic() + _SECONDS_MAX
    never = threading.Event()
    while not what():
        assert time.monotonic() < deadline, query.status
        never.wait(0.02)


def total(progress: list[dict[str, Any]], name: str) -> int:
    found = [each["observedMetrics"].get("syphon", {}) for each in progress]
    return sum(each.get(name) or 0 for each in found)


def counted(registry: CollectorRegistry, pair: Pair[Server]) -> float:
    """How many messages the metrics say were moved."""
    labels = [
        {"queue": backlog_path(PRIMARY, index), "outcome": "moved"}
        for index in range(pair.shape.backlog_queues)
    ]
    name = "twinbus_syphon_messages_total"
    return sum(registry.get_sample_value(name, each) or 0 for each in labels)


def test_everything_comes_home_as_it_was_sent(
    spark: SparkSession, pair: Pair[Server]
) -> None:
    expected = filled(pair, 1000, seed=1)
    registry = CollectorRegistry()
    metrics = SyphonMetrics(registry)
    spark.streams.addListener(metrics)

    query = drain(spark, pair).query
    progress = ended(query)

    # Listeners are told a moment later.
    wait_for(lambda: counted(registry, pair) == 1000, query)
    spark.streams.removeListener(metrics)
    home = judged(pair, expected)
    assert home.duplicates() == 0
    assert receipts(pair) == (1000, 1000)
    assert total(progress, "moved") == 1000
    tasks = progress[0]["observedMetrics"]["syphon"]["tasks"]
    assert {task["ended"] for task in tasks} <= {"empty", "budget"}
    assert set(tasks[0]["destinations"]) <= set(pair.shape.destinations)
    depth = progress[0]["sources"][0]["latestOffset"]["depth"]
    assert sum(depth.values()) == 1000


@pytest.mark.parametrize("pair", [Shape(detecting=("orders",))], indirect=True)
def test_a_killed_worker_costs_a_chunk_of_duplicates_at_most(
    spark: SparkSession, pair: Pair[Server]
) -> None:
    expected = filled(pair, 4000, seed=2)
    run = drain(spark, pair, chunkSize=20, taskBudgetSeconds=4)

    def working() -> list[int]:
        """Workers that have just written their first receipts."""
        storage = storage_at(run.settings.journal)
        return [
            each.pid
            for each in run.reports.read()
            if each.ended is None
            and storage.entries(receipts_folder(run.settings.pair_folder, each.index))
        ]

    victims: list[int] = []

    def found() -> bool:
        victims[:] = working()
        return bool(victims)

    wait_for(found, run.query)
    os.kill(victims[0], signal.SIGKILL)
    ended(run.query)

    again = [each.counts.redelivered for each in run.reports.read_totals().queues]
    assert sum(again), "it was killed with nothing in hand"
    home = judged(pair, expected, ordered=False)
    assert home.duplicates() <= 20
    assert home.duplicates("orders") == 0
    written, distinct = receipts(pair)
    assert distinct == 4000
    assert written <= 4000 + 20


@pytest.mark.parametrize("pair", [Shape(backlog_queues=1)], indirect=True)
def test_several_tasks_share_a_queue_when_order_may_go(
    spark: SparkSession, pair: Pair[Server]
) -> None:
    expected = filled(pair, 1500, seed=3)

    run = drain(spark, pair, keepOrder=False, parallelism=2, maxMessagesPerBatch=600)
    progress = ended(run.query)

    assert judged(pair, expected, ordered=False).duplicates() == 0
    [first, *_] = progress
    tasks = first["observedMetrics"]["syphon"]["tasks"]
    assert {task["slice"] for task in tasks} == {0, 1}
    # About as many: a task ends after the chunk in hand.
    assert 0 < first["observedMetrics"]["syphon"]["received"] <= 1200
    assert len(progress) >= 2


def test_messages_that_can_never_be_sent_are_dead_lettered_alone(
    spark: SparkSession, pair: Pair[Server]
) -> None:
    poison = encode_message(b"lost", {MESSAGE_ID: "poison"})
    bad = [poison, divert(poison, "nowhere", 0)]
    asyncio.run(_put(pair, 1, bad))
    expected = filled(pair, 300, seed=4)
    asyncio.run(_put(pair, 1, bad))

    progress = ended(drain(spark, pair).query)

    assert differences(expected, asyncio.run(collect(pair))) == []
    assert total(progress, "dead_lettered") == 4
    reasons = {
        reason: count
        for each in progress
        for task in each["observedMetrics"]["syphon"]["tasks"]
        for reason, count in task["dead_letter_reasons"].items()
    }
    assert reasons == {"PathMissing": 2, "DestinationNotFound": 2}
    assert asyncio.run(left_behind(pair)) == 4


async def _put(pair: Pair[Server], index: int, payloads: list[bytes]) -> None:
    async with pair.secondary.connection() as connection:
        await connection.sender(backlog_path(PRIMARY, index)).send(payloads)


def test_an_idle_syphon_wakes_for_a_message_and_stops_at_once(
    spark: SparkSession, pair: Pair[Server]
) -> None:
    checkpoint = str(pair.folder / "checkpoint")
    run = drain(spark, pair, until_empty=False, checkpointLocation=checkpoint)
    wait_for(lambda: bool(run.reports.read_totals().queues), run.query)
    expected = filled(pair, 50, seed=5)

    wait_for(lambda: _moved(run) == 50, run.query)
    begun = time.monotonic()
    run.query.stop()

    assert time.monotonic() - begun < 5
    assert run.query.exception() is None
    assert judged(pair, expected).duplicates() == 0

    # The next one goes on from the same checkpoint.
    expected = filled(pair, 50, seed=6)
    again = drain(spark, pair, checkpointLocation=checkpoint)
    progress = ended(again.query)
    assert progress[0]["sources"][0]["startOffset"]["epoch"] >= 1
    assert judged(pair, expected).duplicates() == 0


def _moved(run: SyphonRun) -> int:
    return sum(each.counts.moved for each in run.reports.read_totals().queues)


def test_a_primary_that_comes_back_gets_everything(
    spark: SparkSession, pair: Pair[Server]
) -> None:
    expected = filled(pair, 400, seed=6)
    run = drain(spark, pair, taskBudgetSeconds=2)
    pair.primary.stop(signal.SIGKILL)

    def resting() -> bool:
        return any(each.counts.parked for each in run.reports.read())

    wait_for(resting, run.query)
    pair.primary.start()
    ended(run.query)

    judged(pair, expected)


def test_the_example_of_the_guide_drains_a_backlog(
    spark: SparkSession, pair: Pair[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = filled(pair, 30, seed=7)
    monkeypatch.setenv("PRIMARY", pair.primary.connection_string)
    monkeypatch.setenv("SECONDARY", pair.secondary.connection_string)
    drains, measures = (text for _, text in blocks("docs/spark-syphon.md", __file__))
    # On loopback the primary has no name of its own, and the journal is the test's.
    own = f"primaryName={PRIMARY!r}, journalLocation={str(pair.folder / 'j')!r}"
    drains = drains.replace("until_empty=True,", f"until_empty=True, {own},")

    names: dict[str, object] = {}
    exec(compile(drains, "drains", "exec"), names)  # noqa: S102
    exec(compile(measures, "measures", "exec"), names)  # noqa: S102

    assert judged(pair, expected).duplicates() == 0
