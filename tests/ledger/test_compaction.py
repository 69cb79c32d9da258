"""A closed day becomes one file, and a crash at any step neither doubles nor loses."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.ledger.reading import files, rows, totals
from tests.ledger.site import (
    DAY_MS,
    MINUTE_MS,
    NOON_MS,
    DyingDisk,
    Killed,
    apart,
    crash,
    sends,
    told,
    writer,
)
from twinbus import limits

MINUTES = 4
# Writes, renames and removals of one compaction, before and after each.
STEPS = 2 + 2 + (MINUTES + 1) + 2


def day_of_minutes(folder: Path, name: str = "node") -> None:
    """Write some minutes of a day, and stop."""
    ledger = writer(folder, name=name)
    for minute in range(MINUTES):
        ledger.write(NOON_MS + minute * MINUTE_MS, sends(minute + 1))
    ledger.write(NOON_MS, told(NOON_MS))
    ledger.close()


def test_a_closed_day_becomes_one_file(tmp_path: Path) -> None:
    day_of_minutes(tmp_path)
    before = rows(tmp_path)

    ledger = writer(tmp_path)
    ledger.open(NOON_MS + DAY_MS)

    (path,) = files(tmp_path)
    assert path.name.startswith("node-240000-")
    assert rows(tmp_path) == before
    assert {p.name for p in path.parent.iterdir()} == {path.name}
    ledger.close()


def test_the_running_day_is_left_alone(tmp_path: Path) -> None:
    day_of_minutes(tmp_path)

    ledger = writer(tmp_path)
    ledger.open(NOON_MS + 60 * MINUTE_MS)

    assert len(files(tmp_path)) == MINUTES
    ledger.close()


def test_files_of_other_writers_are_left_alone(tmp_path: Path) -> None:
    day_of_minutes(tmp_path)
    day_of_minutes(tmp_path, "node-2")

    ledger = writer(tmp_path)
    ledger.open(NOON_MS + DAY_MS)

    names = [path.name for path in files(tmp_path)]
    assert len(names) == 1 + MINUTES
    assert totals(tmp_path, "writer") == {("node",): 10, ("node-2",): 10}
    ledger.close()


def test_a_late_file_is_compacted_with_the_others(tmp_path: Path) -> None:
    day_of_minutes(tmp_path)
    ledger = writer(tmp_path)
    ledger.open(NOON_MS + DAY_MS)
    ledger.write(NOON_MS, sends(5))

    ledger.write(NOON_MS + 2 * DAY_MS, sends(0))

    assert len(list(tmp_path.glob("day=2026-11-15/*"))) == 1
    assert totals(tmp_path, "operation") == {("send",): 15}
    ledger.close()


def test_memory_is_bounded_by_groups_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEDGER_COMPACT_ROWS", 2)
    day_of_minutes(tmp_path)
    before = rows(tmp_path)

    ledger = writer(tmp_path)
    ledger.open(NOON_MS + DAY_MS)

    assert rows(tmp_path) == before
    ledger.close()


def test_a_damaged_file_stays_and_the_rest_is_compacted(tmp_path: Path) -> None:
    day_of_minutes(tmp_path)
    damaged = files(tmp_path)[0]
    damaged.write_bytes(b"PAR1 not really")

    ledger = writer(tmp_path)
    ledger.open(NOON_MS + DAY_MS)

    assert damaged.read_bytes() == b"PAR1 not really"
    damaged.unlink()
    assert len(files(tmp_path)) == 1
    assert totals(tmp_path, "operation") == {("send",): 9}
    ledger.close()


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_crash_at_any_step_neither_doubles_nor_loses_rows(
    tmp_path: Path, steps: int
) -> None:
    day_of_minutes(tmp_path)
    before = rows(tmp_path)
    victim = writer(tmp_path, DyingDisk(steps))

    with pytest.raises(Killed):
        victim.open(NOON_MS + DAY_MS)
    crash(victim)

    seen = rows(tmp_path)
    assert all(seen.count(row) == 1 for row in seen)
    again = writer(tmp_path)
    again.open(NOON_MS + DAY_MS)
    (path,) = files(tmp_path)[:1]
    assert [row for row in rows(tmp_path) if row["operation"] == "send"] == before
    assert {p.name for p in path.parent.iterdir()} == {path.name}
    again.close()


def test_the_steps_above_are_all_steps_of_a_compaction(tmp_path: Path) -> None:
    day_of_minutes(tmp_path)

    ledger = writer(tmp_path, DyingDisk(STEPS))
    ledger.open(NOON_MS + DAY_MS)

    assert len(files(tmp_path)) == 1
    ledger.close()


# -- in a child process ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_by", "module"), [("writer", "pandas"), ("apart", "pyarrow")]
)
def test_compacting_imports_as_little_as_it_can(
    tmp_path: Path, made_by: str, module: str
) -> None:
    """Each would double the memory of the process."""
    day_of_minutes(tmp_path)
    script = f"""
import sys
from pathlib import Path
from tests.ledger.site import DAY_MS, NOON_MS, {made_by}
ledger = {made_by}(Path({str(tmp_path)!r}))
ledger.open(NOON_MS + DAY_MS)
ledger.close()
print({module!r} in sys.modules)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
    assert len(files(tmp_path)) == 1
    assert totals(tmp_path, "operation") == {("send",): 10}


@pytest.mark.parametrize("program", ["/bin/false", "/missing/python"])
def test_a_child_that_fails_is_told_and_tried_again(
    tmp_path: Path,
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    day_of_minutes(tmp_path)
    ledger = apart(tmp_path)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(sys, "executable", program)
        ledger.open(NOON_MS + DAY_MS)

    assert len(files(tmp_path)) == MINUTES
    (record,) = caplog.records
    assert "more files than it needs until tomorrow" in record.getMessage()
    ledger.write(NOON_MS + 2 * DAY_MS, sends(0))
    ledger.close()
    assert len(list(tmp_path.glob("day=2026-11-15/*"))) == 1


def test_what_a_child_warns_of_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    day_of_minutes(tmp_path)
    damaged = files(tmp_path)[0]
    damaged.write_bytes(b"PAR1 not really")
    ledger = apart(tmp_path)

    with caplog.at_level(logging.WARNING):
        ledger.open(NOON_MS + DAY_MS)
    ledger.close()

    assert [str(damaged) in record.getMessage() for record in caplog.records] == [True]


def test_the_files_belong_to_a_child_whose_parent_was_killed(tmp_path: Path) -> None:
    day_of_minutes(tmp_path)
    # A file that holds the child up until it is written to.
    pipe = tmp_path / "day=2026-11-15" / "node-000000-00000000.parquet"
    os.mkfifo(pipe)
    victim = apart(tmp_path)
    opening = threading.Thread(target=victim.open, args=[NOON_MS + DAY_MS])
    opening.start()

    with pipe.open("wb"):
        crash(victim)
        second = writer(tmp_path)
        second.open(NOON_MS + DAY_MS)
    opening.join()

    assert second.name == "node-2"
    second.close()
    pipe.unlink()
    assert len(files(tmp_path)) == 1
    assert totals(tmp_path, "operation") == {("send",): 10}
