"""The numbers that `twinbus syphon` shows, made of the tasks' reports."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from twinbus.cli.pair.syphon_view import ReportWatch, duration_text, line_of, table_of
from twinbus.pairing.status import DestinationCounts, PumpCounts
from twinbus.spark.syphon_job.reports import QueueTotals, Report, Reports, Totals
from twinbus.spark.syphon_job.storage import FolderStorage

NOW = 1_700_000_000.0


@pytest.fixture
def reports(tmp_path: Path) -> Reports:
    made = Reports(FolderStorage(tmp_path), "pair", "run")
    made.begin()
    return made


def report(epoch: int, index: int, moved: int, attempt: str = "a") -> Report:
    counts = PumpCounts(moved=moved, received=moved + 1, redelivered=1)
    counts.dead_lettered["MessageTooLarge"] = 1
    counts.destinations["orders"] = DestinationCounts(moved, moved * 10, "busy")
    return Report(
        epoch=epoch,
        index=index,
        slice=0,
        attempt=attempt,
        queue=f"home/x-servicebus-transfer/{index}",
        host="here",
        pid=1,
        started_ms=0,
        updated_ms=int(NOW * 1000),
        counts=counts,
    )


def totals(epoch: int, *depths: int, moved: int = 0) -> Totals:
    queues = [
        QueueTotals(index, f"q/{index}", depth, PumpCounts(moved=moved))
        for index, depth in enumerate(depths)
    ]
    return Totals(epoch, working=True, queues=queues)


def test_running_tasks_are_added_to_what_has_ended(reports: Reports) -> None:
    reports.write_totals(totals(3, 100, 50, moved=7))
    reports.write(report(4, 0, moved=20))

    shot = ReportWatch(reports).look(NOW)

    assert (shot.epoch, shot.working) == (4, True)
    assert [line.moved for line in shot.queues] == [27, 7]
    assert [line.depth for line in shot.queues] == [79, 50]
    assert (shot.moved, shot.depth, shot.dead_lettered) == (34, 129, 1)
    assert [(each.path, each.state) for each in shot.destinations] == [
        ("orders", "busy")
    ]


def test_an_epoch_that_was_added_up_is_counted_once(reports: Reports) -> None:
    reports.write(report(4, 0, moved=20))
    reports.write_totals(totals(4, 80, moved=20))

    assert ReportWatch(reports).look(NOW).moved == 20


def test_a_killed_attempt_counts_beside_the_next_one(reports: Reports) -> None:
    reports.write_totals(totals(0, 100))
    reports.write(report(1, 0, moved=5, attempt="killed"))
    reports.write(report(1, 0, moved=9, attempt="second"))

    assert ReportWatch(reports).look(NOW).moved == 14


def test_rate_and_time_left_come_from_two_looks(reports: Reports) -> None:
    reports.write_totals(totals(0, 1000))
    watch = ReportWatch(reports)
    assert watch.look(NOW).eta_seconds is None
    reports.write(report(1, 0, moved=99))

    shot = watch.look(NOW + 2)

    assert shot.rate == 99 / 2
    assert shot.eta_seconds == round(900 / (99 / 2), 1)


def test_nothing_there_yet_is_no_error(tmp_path: Path) -> None:
    shot = ReportWatch(Reports(FolderStorage(tmp_path), "pair", "run")).look(NOW)

    assert (shot.epoch, shot.queues, shot.rate) == (0, [], 0.0)


def test_removed_reports_are_gone_and_later_ones_stay(reports: Reports) -> None:
    for epoch in (9, 10, 11):
        reports.write(report(epoch, 0, moved=1))

    reports.remove(10)

    assert [each.epoch for each in reports.read()] == [11]


def test_old_runs_are_forgotten(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    for run in ("20250101T000000-aa", "20260101T000000-bb"):
        Reports(storage, "pair", run).begin()

    Reports(storage, "pair", "now").forget_before("20250601T000000")

    assert storage.folders("pair/reports") == ["20260101T000000-bb"]


def test_asking_to_stop_is_heard(reports: Reports) -> None:
    assert not reports.stop_asked()

    reports.ask_stop()

    assert reports.stop_asked()
    assert reports.read() == []


def test_a_line_and_a_table_show_it(reports: Reports) -> None:
    reports.write_totals(totals(3, 100, 50, moved=7))
    reports.write(report(4, 0, moved=20))
    shot = ReportWatch(reports).look(NOW)
    shot.queues[1].trouble = "the secondary is away"

    out = io.StringIO()
    table = table_of(shot, "twinbus syphon", "Spark UI http://x")
    Console(file=out, width=120).print(table)

    assert "left 129" in line_of(shot)
    text = out.getvalue()
    for part in ("orders", "busy", "129", "http://x", "the secondary is away"):
        assert part in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.2, "0:00"), (65, "1:05"), (3725, "1:02:05")],
)
def test_times_are_short(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text
