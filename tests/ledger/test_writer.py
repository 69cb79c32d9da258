"""Files of a ledger: minutes, gaps, failures, retention."""

from __future__ import annotations

import logging
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.ledger.reading import events, files, gaps, rows, totals
from tests.ledger.site import (
    DAY_MS,
    MINUTE_MS,
    NOON_MS,
    FullDisk,
    crash,
    sends,
    told,
    writer,
)
from twinbus.ledger.counts import NO_NAME, Counted
from twinbus.ledger.schema import OPERATION_COLUMNS, arrow_schema


def test_a_minute_becomes_one_file_of_its_day(tmp_path: Path) -> None:
    ledger = writer(tmp_path)
    ledger.open(NOON_MS)

    ledger.write(NOON_MS, sends(3))

    (path,) = files(tmp_path)
    assert path.parent.name == "day=2026-11-15"
    assert path.name.startswith("node-120000-")
    assert pq.read_schema(path).equals(arrow_schema(OPERATION_COLUMNS))
    assert pq.read_schema(path).metadata[b"twinbus_ledger"] == b"1"
    assert rows(tmp_path) == [
        {
            "minute": datetime(2026, 11, 15, 12, tzinfo=UTC),
            "namespace": "contoso",
            "writer": "node",
            "source": "server",
            "entity": "orders",
            "operation": "send",
            "outcome": "accepted",
            "key": "Root",
            "connection": "amqp",
            "size_class": 1,
            "operations": 3,
            "messages": 3,
            "bytes_in": 30,
            "bytes_out": 0,
            "gap_minutes": 0,
        }
    ]
    assert (ledger.rows_written, ledger.rows_dropped) == (1, 0)
    ledger.close()


def test_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    ledger = writer(tmp_path / "deep" / "ledger")
    for minute in range(2):
        ledger.write(NOON_MS + minute * MINUTE_MS, sends(1))
    ledger.write(NOON_MS, told(NOON_MS))
    ledger.write(NOON_MS + DAY_MS, sends(1))

    for path in tmp_path.rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    ledger.close()


def test_events_have_a_table_of_their_own(tmp_path: Path) -> None:
    ledger = writer(tmp_path)

    ledger.write(NOON_MS, told(NOON_MS + 1))
    ledger.close()

    assert rows(tmp_path) == []
    assert events(tmp_path) == [
        {
            "at": datetime(2026, 11, 15, 12, 0, 0, 1000, tzinfo=UTC),
            "writer": "node",
            "primary": "one",
            "secondary": "two",
            "entity": "orders",
            "event": "diverted",
            "messages": 7,
            "bytes": 70,
            "detail": "busy",
        }
    ]


def test_a_minute_without_operations_has_no_file(tmp_path: Path) -> None:
    ledger = writer(tmp_path)
    ledger.open(NOON_MS)

    ledger.write(NOON_MS, Counted())
    crash(ledger)
    again = writer(tmp_path)
    again.open(NOON_MS + MINUTE_MS)

    # The idle minute was written, so only the one that the crash met is missing.
    (gap,) = gaps(tmp_path)
    assert gap["minute"] == datetime(2026, 11, 15, 12, 1, tzinfo=UTC)
    again.close()


def test_an_orderly_stop_leaves_no_gap(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.open(NOON_MS)
    first.write(NOON_MS, sends(1))
    first.close()

    second = writer(tmp_path)
    second.open(NOON_MS + 10 * MINUTE_MS)
    second.close()

    assert gaps(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["day=2026-11-15"]


def test_a_crash_becomes_a_gap_of_the_minutes_without_rows(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.open(NOON_MS)
    first.write(NOON_MS, sends(1))
    crash(first)

    second = writer(tmp_path)
    second.open(NOON_MS + 5 * MINUTE_MS)

    (gap,) = gaps(tmp_path)
    assert gap["minute"] == datetime(2026, 11, 15, 12, 1, tzinfo=UTC)
    assert gap["gap_minutes"] == 4
    assert (gap["namespace"], gap["writer"]) == ("contoso", "node")
    assert gap["operations"] == 0
    second.close()


def test_a_crash_before_the_marker_was_moved_misses_no_written_minute(
    tmp_path: Path,
) -> None:
    first = writer(tmp_path)
    first.open(NOON_MS)
    first.write(NOON_MS, sends(1))
    first._note(NOON_MS)
    crash(first)

    second = writer(tmp_path)
    second.open(NOON_MS + 2 * MINUTE_MS)

    (gap,) = gaps(tmp_path)
    assert gap["minute"] == datetime(2026, 11, 15, 12, 1, tzinfo=UTC)
    assert gap["gap_minutes"] == 1
    second.close()


def test_a_gap_belongs_to_the_day_in_which_it_began(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.open(NOON_MS)
    crash(first)

    second = writer(tmp_path)
    second.open(NOON_MS + DAY_MS)

    (path,) = files(tmp_path)
    assert path.parent.name == "day=2026-11-15"
    assert gaps(tmp_path)[0]["gap_minutes"] == 1440
    second.close()


def test_two_processes_of_one_name_write_as_two(tmp_path: Path) -> None:
    first, second = writer(tmp_path), writer(tmp_path)
    first.open(NOON_MS)
    second.open(NOON_MS)

    first.write(NOON_MS, sends(1))
    second.write(NOON_MS, sends(2))

    assert totals(tmp_path, "writer") == {("node",): 1, ("node-2",): 2}
    first.close()
    second.close()
    third = writer(tmp_path)
    third.open(NOON_MS)
    assert third.name == "node"
    third.close()


def test_a_full_disk_costs_rows_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk()
    ledger = writer(tmp_path, disk)
    ledger.open(NOON_MS)

    with caplog.at_level(logging.WARNING, "twinbus.ledger"):
        for minute in range(3):
            ledger.write(NOON_MS + minute * MINUTE_MS, sends(1))
        disk.full = False
        ledger.write(NOON_MS + 3 * MINUTE_MS, sends(5))

    assert ledger.rows_dropped == 3
    assert totals(tmp_path, "operation") == {("send",): 5}
    (gap,) = gaps(tmp_path)
    assert gap["minute"] == datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert gap["gap_minutes"] == 3
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "No space left" in caplog.records[0].getMessage()
    ledger.close()


def test_a_stop_while_the_disk_is_full_leaves_the_gap_to_the_next_start(
    tmp_path: Path,
) -> None:
    ledger = writer(tmp_path, FullDisk())
    ledger.open(NOON_MS)
    ledger.write(NOON_MS, sends(1))
    ledger.close()

    again = writer(tmp_path)
    again.open(NOON_MS + MINUTE_MS)

    assert [gap["gap_minutes"] for gap in gaps(tmp_path)] == [1]
    again.close()


def test_a_folder_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    obstacle = tmp_path / "ledger"
    obstacle.write_text("a file")
    ledger = writer(obstacle)
    ledger.open(NOON_MS)
    ledger.write(NOON_MS, sends(1))

    obstacle.unlink()
    ledger.write(NOON_MS + MINUTE_MS, sends(2))

    assert ledger.rows_dropped == 1
    assert totals(obstacle, "operation") == {("send",): 2}
    assert [gap["gap_minutes"] for gap in gaps(obstacle)] == [1]
    ledger.close()


def test_days_beyond_the_retention_are_removed(tmp_path: Path) -> None:
    ledger = writer(tmp_path, days=2)
    for day in range(5):
        at_ms = NOON_MS + day * DAY_MS
        ledger.write(at_ms, sends(1))
        ledger.write(at_ms, told(at_ms))

    days = ["day=2026-11-17", "day=2026-11-18", "day=2026-11-19"]
    assert sorted(p.name for p in tmp_path.glob("day=*")) == days
    assert sorted(p.name for p in (tmp_path / "events").glob("day=*")) == days
    ledger.close()


def test_a_clock_that_is_far_ahead_for_a_while_removes_no_day(tmp_path: Path) -> None:
    ledger = writer(tmp_path, days=3)
    for day in (0, 1, 2, 3650, 3):
        ledger.write(NOON_MS + day * DAY_MS, sends(1))
    ledger.close()

    days = sorted(path.name for path in tmp_path.glob("day=2026-*"))
    assert days == [f"day=2026-11-{day}" for day in range(15, 19)]


def test_a_folder_that_is_no_day_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "day=2026-02-31").mkdir()
    ledger = writer(tmp_path, days=2)
    for minute in range(2):
        ledger.write(NOON_MS + minute * MINUTE_MS, sends(1))

    ledger.write(NOON_MS + DAY_MS, sends(1))
    ledger.close()

    assert (tmp_path / "day=2026-02-31").is_dir()
    # The day before was compacted.
    assert len(files(tmp_path)) == 2


def test_names_may_be_of_any_characters(tmp_path: Path) -> None:
    ledger = writer(tmp_path)
    for entity in ("aufträge", "订单", "\ud800"):
        ledger.write(NOON_MS, sends(1, entity))
    ledger.close()

    assert set(totals(tmp_path, "entity")) == {("aufträge",), ("订单",), (NO_NAME,)}


def test_writing_imports_no_arrow(tmp_path: Path) -> None:
    """It would double the memory of a server."""
    script = f"""
import sys
from pathlib import Path
from tests.ledger.site import MINUTE_MS, NOON_MS, sends, told, writer
ledger = writer(Path({str(tmp_path)!r}))
ledger.write(NOON_MS, sends(1))
ledger.write(NOON_MS + MINUTE_MS, told(NOON_MS))
ledger.close()
print("pyarrow" in sys.modules)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
    assert len(files(tmp_path)) == 1
