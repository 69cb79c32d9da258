"""The bench still runs. What it measures here is too small to mean anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.figures import GOALS, Figure, Goal, Results
from bench.target import Missing

ROOT = Path(__file__).resolve().parents[2]
RATES = (
    "twinbus_send_per_second",
    "twinbus_receive_per_second",
    "limit_send_per_second",
    "limit_receive_per_second",
    "deep_receive_per_second",
    "sdk_send_batches_per_second",
    "sdk_send_single_per_second",
    "sdk_receive_per_second",
)


def test_every_workload_of_ours_runs(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--quick", "--no-peers"]
    command += ["--json", str(file), "--folder", str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr.decode()
    results = json.loads(file.read_text())
    assert not [name for name, value in results.items() if isinstance(value, dict)]
    assert all(results[name] > 0 for name in RATES)
    assert all(name in results for name in GOALS)
    # A peer that was not there is named, and so are the figures without it.
    assert results["server_send_vs_rabbitmq"] is None
    assert "missing_rabbitmq" in results
    assert results["machine_cores"] > 0
    assert b"server_send_vs_limit" in done.stdout


def test_a_ratio_compares_neighbours_in_each_round() -> None:
    results = Results()

    results.ratio("r", [10.0, 30.0, 20.0], [10.0, 10.0, 10.0])

    flat = results.flat()
    assert (flat["r"], flat["r_min"], flat["r_max"], flat["r_rounds"]) == (2, 1, 3, 3)


def test_what_is_missing_is_said() -> None:
    results = Results()

    results.miss(Missing("peer", "not installed"), "a", "b")

    assert results.flat() == {"a": None, "b": None, "missing_peer": "not installed"}


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (Goal(1.2), 1.2, True),
        (Goal(1.2), 1.1, False),
        (Goal(64, at_most=True), 64, True),
        (Goal(64, at_most=True), 65, False),
    ],
)
def test_goals(goal: Goal, value: float, met: bool) -> None:
    assert goal.met_by(Figure([value]).median) is met
