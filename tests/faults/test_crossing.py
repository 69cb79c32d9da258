"""After a power loss or a kill, what crosses between stores arrives once and in order.

The stores share a disk, but no transaction: of two commits the disk may have kept
either. Weaker settings and movers without one of the rules are convicted.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.crossing_workload import inspect_with
from tests.faults.powerloss import Acknowledged, Report, replay
from tests.faults.syscalls import record

COMMITS = 60


def _command(folder: Path, synchronous: str, mover: str) -> list[str]:
    program = [sys.executable, "-m", "tests.faults.crossing_workload"]
    places = [str(folder / "root"), str(folder / "notes")]
    return [*program, *places, synchronous, str(COMMITS), mover]


def _lose_power(folder: Path, synchronous: str, mover: str, images: int) -> Report:
    (folder / "root").mkdir()
    command = _command(folder, synchronous, mover)
    calls = record(command, folder / "root", folder / "notes")
    report = replay(calls, inspect_with(mover), images)
    print(synchronous, mover, report.text())
    return report


def test_rows_cross_once_and_in_order_after_a_power_loss(tmp_path: Path) -> None:
    report = _lose_power(tmp_path, "FULL", "right", images=300)

    assert report.acknowledged > COMMITS
    assert not report.bad, report.text()


@pytest.mark.parametrize(
    ("synchronous", "mover", "charge"),
    [
        pytest.param("NORMAL", "right", "lost|missing", marks=pytest.mark.campaign),
        ("FULL", "doubling", "applied twice"),
        pytest.param("FULL", "losing", "missing", marks=pytest.mark.campaign),
        pytest.param("FULL", "turning", "out of order", marks=pytest.mark.campaign),
    ],
)
def test_weaker_settings_and_broken_movers_are_convicted(
    tmp_path: Path, synchronous: str, mover: str, charge: str
) -> None:
    report = _lose_power(tmp_path, synchronous, mover, images=90)

    assert any(re.search(charge, image.text) for image in report.bad), report.text()


# -- kills -----------------------------------------------------------------------------


def _killed(folder: Path, call: str, when: int) -> str:
    """Kill the program before that call, and say what is wrong afterwards."""
    (folder / "root").mkdir(parents=True)
    inject = f"inject={call}:signal=SIGKILL:when={when}"
    strace = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
    command = [*strace, "--", *_command(folder, "FULL", "right")]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    said = Acknowledged()
    said.note((folder / "notes").read_text())
    return said.compare(inspect_with("right")(folder / "root"))


# Of the calls of one commit, which follow each other, one is tried in every run.
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
@pytest.mark.parametrize(
    "when",
    [
        40,
        103,
        *(
            pytest.param(number, marks=pytest.mark.campaign)
            for number in (101, 102, 104, 105, 106)
        ),
    ],
)
def test_rows_cross_once_and_in_order_after_a_kill(
    tmp_path: Path, call: str, when: int
) -> None:
    assert _killed(tmp_path, call, when) == ""


def _calls(folder: Path) -> Counter[str]:
    """How many of these calls the whole run makes."""
    (folder / "root").mkdir(parents=True)
    options = ["-f", "-o", str(folder / "trace"), "-e", "trace=pwrite64,fdatasync"]
    command = ["strace", *options, "--", *_command(folder, "FULL", "right")]
    subprocess.run(command, check=True, timeout=60)
    trace = (folder / "trace").read_text(errors="replace")
    return Counter(re.findall(r"^\d+ +(\w+)\(", trace, re.MULTILINE))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_rows_cross_once_and_in_order_after_a_kill_at_any_sync(tmp_path: Path) -> None:
    syncs = _calls(tmp_path / "all")["fdatasync"]

    found = {
        when: _killed(tmp_path / str(when), "fdatasync", when)
        for when in range(1, syncs + 1)
    }

    assert len(found) > 3 * COMMITS

    assert {when: text for when, text in found.items() if text} == {}
