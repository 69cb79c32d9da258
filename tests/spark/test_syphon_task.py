"""One task: when it ends, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ledger.reading import rows, totals
from tests.spark.syphon_pair import Pair, Place, Shape, filled, inside, judged
from twinbus.core.sas import DEV_KEY_NAME, parse_connection_string
from twinbus.errors import ArgumentError, RemoteError
from twinbus.pairing.rules.naming import MIDDLE
from twinbus.spark.syphon_job.access import KeyedNamespace, close_worker
from twinbus.spark.syphon_job.driver import SyphonJob, SyphonSettings, SyphonTask
from twinbus.spark.syphon_job.job import prepare
from twinbus.spark.syphon_job.reports import AWAY, BUDGET, EMPTY, LIMIT, Reports
from twinbus.spark.syphon_job.source import row_of
from twinbus.spark.syphon_job.storage import storage_at
from twinbus.spark.syphon_job.task import run_task


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair[Place]]:
    with inside(tmp_path, Shape(backlog_queues=1)) as made:
        yield made
        close_worker()


@pytest.fixture
def job(pair: Pair[Place]) -> SyphonJob:
    made, _ = prepare({**pair.options, "taskBudgetSeconds": 1}, "local")
    settings = made.settings
    Reports(storage_at(settings.journal), settings.pair_folder, settings.run).begin()
    return made


def task_of(job: SyphonJob, most: int | None = None) -> SyphonTask:
    settings = job.settings
    return SyphonTask(
        settings=settings,
        epoch=1,
        index=0,
        slice=0,
        queue=f"{settings.primary}/{MIDDLE}/0",
        depth=1,
        primary=job.primary.ticket(),
        secondary=job.secondary.ticket(f"{settings.primary}/{MIDDLE}"),
        messages_max=most,
    )


def with_chunk(job: SyphonJob, chunk: int) -> SyphonJob:
    settings: SyphonSettings = replace(job.settings, chunk=chunk)
    return SyphonJob(settings, job.primary, job.secondary)


def test_it_ends_when_its_queue_is_empty(pair: Pair[Place], job: SyphonJob) -> None:
    expected = filled(pair, 100, seed=1)

    report = run_task(task_of(job))

    assert report.ended == EMPTY
    assert report.counts.moved == 100
    assert report.trouble is None
    judged(pair, expected)


def test_it_ends_when_it_has_brought_enough(pair: Pair[Place], job: SyphonJob) -> None:
    expected = filled(pair, 100, seed=2)

    report = run_task(task_of(with_chunk(job, 20), most=30))

    assert report.ended == LIMIT
    assert 30 <= report.counts.received <= 40
    assert run_task(task_of(job)).ended == EMPTY
    assert judged(pair, expected).duplicates() == 0


def test_it_ends_when_its_time_is_up_with_nothing_left_locked(
    pair: Pair[Place], job: SyphonJob
) -> None:
    expected = filled(pair, 3000, seed=3)

    report = run_task(task_of(with_chunk(job, 2)))

    assert report.ended == BUDGET
    assert 0 < report.counts.moved < 3000
    while (rest := run_task(task_of(job))).ended != EMPTY:
        assert rest.counts.redelivered == 0
    assert judged(pair, expected).duplicates() == 0


def test_a_secondary_that_is_away_fails_no_task(job: SyphonJob) -> None:
    nowhere = parse_connection_string(
        "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=x;SharedAccessKey=y;"
        "UseDevelopmentEmulator=true"
    )

    report = run_task(replace(task_of(job), secondary=KeyedNamespace(nowhere).ticket()))

    assert report.ended == AWAY
    assert report.trouble is not None
    assert "cannot be reached" in report.trouble


def test_a_queue_that_is_gone_fails_the_task(job: SyphonJob) -> None:
    with pytest.raises(RemoteError):
        run_task(replace(task_of(job), queue=f"{job.settings.primary}/{MIDDLE}/9"))


def test_a_journal_that_is_not_the_drivers_is_refused(
    job: SyphonJob, tmp_path: Path
) -> None:
    other = replace(job.settings, journal=str(tmp_path / "other"))
    elsewhere = SyphonJob(other, job.primary, job.secondary)

    with pytest.raises(ArgumentError, match="all executors share"):
        run_task(task_of(elsewhere))


def test_a_report_becomes_a_row_of_the_schema(
    pair: Pair[Place], job: SyphonJob
) -> None:
    filled(pair, 10, seed=4)

    row = row_of(run_task(task_of(job)))

    assert row[0].endswith(f"/{MIDDLE}/0")
    assert row[4] == EMPTY
    assert sum(moved for moved, _, _ in row[-1].values()) == 10


def test_keys_are_not_in_what_a_task_leaves(pair: Pair[Place], job: SyphonJob) -> None:
    filled(pair, 10, seed=5)
    task = task_of(job)
    run_task(task)

    journal = Path(str(pair.options["journalLocation"]))
    left = b"".join(file.read_bytes() for file in journal.rglob("*") if file.is_file())

    assert task.primary.token.reveal().encode() not in left
    assert b"SharedAccess" not in left


def test_tasks_count_what_they_receive_and_send(
    pair: Pair[Place], job: SyphonJob, tmp_path: Path
) -> None:
    folder = tmp_path / "ledger"
    counting = replace(task_of(job), settings=replace(job.settings, ledger=str(folder)))
    for seed in (6, 7):
        filled(pair, 100, seed=seed)
        assert run_task(counting).counts.moved == 100

    counted = totals(folder, "source", "operation", "outcome")
    assert counted["syphon", "receive", "accepted"] == 200
    assert counted["syphon", "send", "accepted"] == 200
    assert counted["syphon", "settle", "accepted"] == 200
    # Each has found the queue empty at its end.
    assert counted["syphon", "poll", "accepted"] == 2
    received = totals(folder, "operation", "entity")
    assert received["receive", counting.queue.lower()] == 200
    assert {row["key"] for row in rows(folder)} == {DEV_KEY_NAME}
    left = b"".join(file.read_bytes() for file in folder.rglob("*.parquet"))
    assert counting.primary.token.reveal().encode() not in left


def test_a_ledger_is_a_folder(pair: Pair[Place]) -> None:
    with pytest.raises(ArgumentError, match="'ledger': 's3://bucket' is no folder"):
        prepare({**pair.options, "ledger": "s3://bucket"}, "local")
