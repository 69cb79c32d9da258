"""Every fault: three with ten seeds on Spark, as `make drill` runs them.

The others, which the primary makes itself, have three seeds, and the syphon of the
application: what they add is on the way to the backlog, not on the way home.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from twinbus.drill.plan import FAULTS

SEEDS = range(1, 11)
ON_SPARK = ("kill", "stop", "cut")
SMALL = ["--messages", "900", "--senders", "2", "--syphon", "application"]
SECONDS_MAX = 300
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.campaign
@pytest.mark.timeout(SECONDS_MAX + 30)
@pytest.mark.parametrize("fault", ON_SPARK)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_drill_on_spark_loses_nothing(fault: str, seed: int, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    command = [sys.executable, "-m", "twinbus.cli.main", "drill", "--json"]
    command += ["--fault", fault, "--seed", str(seed), "--report", str(report)]

    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )

    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    print(f"{fault} {seed}: {result['seconds']} s, {result['sentence']}")
    assert result["ok"]
    assert result["moved"] > 0
    assert report.exists()


@pytest.mark.campaign
@pytest.mark.timeout(SECONDS_MAX + 30)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_a_small_drill_loses_nothing(fault: str, seed: int, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    command = [sys.executable, "-m", "twinbus.cli.main", "drill", "--json", *SMALL]
    command += ["--fault", fault, "--seed", str(seed), "--report", str(report)]

    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )

    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    print(f"{fault} {seed}: {result['seconds']} s, {result['sentence']}")
    assert result["ok"]
    assert result["figures"]["lost"] == 0
    assert report.exists()


@pytest.mark.campaign
@pytest.mark.timeout(SECONDS_MAX + 30)
def test_a_syphon_on_spark_that_completes_first_fails_the_drill() -> None:
    command = [sys.executable, "-m", "twinbus.cli.main", "drill", "--json"]
    command += ["--seed", "1", "--seconds", "15"]
    command += ["--cast", "tests.drill.broken.complete_early"]

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        cwd=ROOT,
    )

    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert "lost: accepted, and never seen again." in result["reasons"][0]
