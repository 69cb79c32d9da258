"""The tests of the official clients pass with the namespaces in PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import shared_server

ROOT = Path(__file__).resolve().parents[2]
# One file for each kind of work; `make campaigns` runs all.
SELECTION = ("test_settling.py", "test_topics.py")
# These are about several shards, or about the disk of a server.
LEFT_OUT = (
    "test_faults.py",
    "test_faults_javascript.py",
    "test_partitioned.py",
    "test_supervised.py",
    "test_throttling.py",
)
OF_SHARDS = "not fragment and not partitioned and not one_key"


def run_tests(*files: str) -> None:
    url = shared_server().url()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-k", OF_SHARDS]
    command += [str(ROOT / "tests" / "sdk" / name) for name in files]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TWINBUS_TEST_DATABASE": url},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()[-8000:]


@pytest.mark.timeout(400)
def test_a_selection_of_the_tests_with_the_official_clients() -> None:
    run_tests(*SELECTION)


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_all_tests_with_the_official_clients() -> None:
    folder = ROOT / "tests" / "sdk"
    names = sorted(path.name for path in folder.glob("test_*.py"))
    run_tests(*(name for name in names if name not in LEFT_OUT))
