"""The bench still runs. What it measures here is too small to mean anything."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.__main__ import WORKLOADS
from bench.figures import GOALS, Figure, Goal, Results
from bench.target import Missing
from tests.printed import ROOT, blocks

# By workload: figures that are above zero on any machine.
FIGURES = {
    "server": (
        "twinbus_send_per_second",
        "twinbus_receive_per_second",
        "limit_send_per_second",
        "limit_receive_per_second",
        "deep_receive_per_second",
        "sdk_send_batches_per_second",
        "sdk_send_single_per_second",
        "sdk_receive_per_second",
    ),
    "shards": (
        "shards_send_4_vs_1",
        "shards_receive_4_vs_1",
        "shards_memory_mib",
        "partitioned_send_ratio",
        "partitioned_receive_ratio",
    ),
    "cluster": (
        "cluster_send_vs_copy",
        "cluster_pinned_receive_ratio",
        "cluster_one_node_receive_per_second",
        "cluster_gap_killed_node_ms",
        "cluster_gap_promotion_ms",
    ),
    "ledger": (
        "ledger_send_cpu_us",
        "ledger_receive_cpu_us",
        "no_ledger_send_cpu_us",
        "no_ledger_receive_cpu_us",
    ),
    "console": (
        "console_tick_cpu_ms",
        "console_processor_percent",
        "console_message_cpu_us",
        "no_console_message_cpu_us",
    ),
    "proton": (
        "proton_twinbus_send_per_second",
        "proton_twinbus_receive_per_second",
        "proton_twinbus_send_server_cpu_us",
        "proton_twinbus_receive_server_cpu_us",
        "proton_twinbus_send_client_cpu_us",
        "proton_twinbus_receive_client_cpu_us",
    ),
    "client": (
        "client_send_batches_vs_sdk",
        "client_send_single_vs_sdk",
        "client_send_serial_batches_vs_sdk",
        "client_receive_vs_sdk",
        "twinbus_client_send_single_cpu_us",
        "sdk_client_send_single_cpu_us",
    ),
    "pairing": (
        "factory_alone_cpu_us",
        "factory_paired_cpu_us",
        "factory_paired_batches_cpu_us",
        "factory_paired_new_ids_cpu_us",
        "paired_send_batches_vs_sdk",
        "paired_send_dict_batches_vs_sdk",
        "paired_send_light_batches_vs_sdk",
        "paired_send_light_single_vs_sdk",
        "paired_send_single_vs_sdk",
    ),
    "syphon": (
        "syphon_two_tasks_vs_one",
        "syphon_two_tasks_vs_one_far",
        "syphon_one_task_vs_pump",
        "syphon_per_second",
        "pump_per_second",
        "pump_cpu_us_primary",
    ),
    "reports": (
        "report_vs_duckdb",
        "report_spark_120000_rows_per_second",
        "report_spark_120000_peak_mib",
        "report_growth_vs_linear",
    ),
    "latency": (
        "latency_twinbus_1_p50_ms",
        "latency_twinbus_64_p99_ms",
        "crowd_twinbus_p99_ms",
        "crowd_twinbus_server_cpu_us",
    ),
    "encodings": ("encoding_java_server_cpu_us", "encoding_worst_vs_best"),
    "topics": ("topic_10_copy_vs_send", "topic_100_copy_cpu_us"),
    "attacks": (
        "attack_none_longest_ms",
        "attack_attaches_longest_ms",
        "attack_unfinished_peak_mib",
        "attack_health_p99_ms",
    ),
    "throttling": (
        "load_full_loud_per_second",
        "load_overload_quiet_p99_ms",
        "load_throttled_loud_p99_vs_full",
    ),
}

# Workloads whose figures have no goals.
STATED = {"shards"}

# By workload: a figure that needs a peer.
PEERED = {
    "server": "server_send_vs_rabbitmq",
    "cluster": "cluster_send_vs_quorum",
    "proton": "proton_send_vs_rabbitmq",
    "latency": "latency_8_p99_vs_rabbitmq",
    "syphon": "syphon_vs_shovel",
}


def quick(workload: str, folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Run a workload; returns its figures and what it printed."""
    file = folder / "results.json"
    command = [sys.executable, "-m", "bench", "--quick", "--no-peers", *options]
    command += ["--only", workload, "--json", str(file), "--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(file.read_text()), done.stdout.decode()


def test_every_workload_is_tried() -> None:
    assert FIGURES.keys() == WORKLOADS.keys()


# Most start several servers or Spark sessions: too long for every run of the tests.
SHORT = ("client", "proton", "ledger")
LONG = dict.fromkeys(WORKLOADS.keys() - {*SHORT}, pytest.mark.campaign)


@pytest.mark.parametrize(
    "workload",
    [pytest.param(each, marks=LONG.get(each, ())) for each in FIGURES],
)
def test_every_workload_of_ours_runs(workload: str, tmp_path: Path) -> None:
    results, printed = quick(workload, tmp_path)

    assert not [name for name, value in results.items() if isinstance(value, dict)]
    assert all(results[name] > 0 for name in FIGURES[workload])
    assert results["machine_cores"] > 0
    goals = [name for name in GOALS if name in results]
    assert bool(goals) is (workload not in STATED)
    assert all(name in printed for name in goals)
    beside = PEERED.get(workload)
    if beside is not None:
        # A peer that was not there is named, and so are the figures without it.
        assert results[beside] is None
        assert "missing_rabbitmq" in results


@pytest.mark.campaign
def test_depth_of_the_deep_queue_can_be_given(tmp_path: Path) -> None:
    results, _ = quick("server", tmp_path, "--deep", "10000")

    assert results["deep_messages"] == 10_000


@pytest.mark.parametrize("depth", ["9999", "10000001", "many"])
def test_depth_that_cannot_be_measured_is_refused(depth: str) -> None:
    command = [sys.executable, "-m", "bench", "--deep", depth]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)

    assert done.returncode == 2
    assert "argument --deep" in done.stderr.decode()


@pytest.mark.campaign
def test_the_note_on_postgres_can_be_measured_again() -> None:
    ((_, text),) = blocks("docs/notes/postgres-spike.md", __file__)
    program, *words = shlex.split(text)
    assert program == ".venv/bin/python"
    command = [sys.executable, *words, "--rounds", "1", "--seconds", "0.05"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr.decode()
    assert "| row lock, runs, early release | 3 |" in done.stdout.decode()


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


def test_names_and_figures_are_whole_on_a_narrow_page() -> None:
    results = Results()
    for name in GOALS:
        results.add(name, [123_456.7, 23_456.7])
    page = Console(width=80, file=io.StringIO())
    results.show(page)
    assert isinstance(page.file, io.StringIO)
    printed = page.file.getvalue()
    assert all(name in printed for name in GOALS)
    assert "…" not in printed
