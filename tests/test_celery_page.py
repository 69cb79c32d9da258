"""The guide to Celery says what is true: its files and commands work as printed.

Only the ports are changed, as in `walking.py`. A second file has a task that waits, so
that a worker can be killed while it has a task in hand.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from time import monotonic

import pytest

from tests.printed import ROOT, blocks
from tests.walking import Walk

pytestmark = pytest.mark.timeout(300)

PAGE = "docs/celery.md"
TEXT = (ROOT / PAGE).read_text()
# A task that waits until a file can be read to its end; a pipe, in this test.
HOLDING = """
from tasks import app


@app.task
def hold(place):
    print("holding", place, flush=True)
    with open(place) as gate:
        return gate.read()
"""


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    """A reader who has carried out the page as far as the worker."""
    serve, exports, worker, _look = of("")
    assert worker == WORKER + "\n"
    with Walk(tmp_path) as reader:
        reader.shell(serve)
        reader.shell(exports)
        tasks, _send = of("python")
        (tmp_path / "tasks.py").write_text(tasks)
        (tmp_path / "holding.py").write_text(HOLDING)
        yield reader


WORKER = "celery --app tasks worker --loglevel info"


def of(language: str) -> list[str]:
    return [text for found, text in blocks(PAGE, __file__) if found == language]


@contextmanager
def working(walk: Walk, command: str) -> Iterator[subprocess.Popen[str]]:
    """A worker, and its log as its output; killed with its children at the end."""
    with walk.start(command) as worker:
        try:
            yield worker
        finally:
            os.killpg(worker.pid, signal.SIGKILL)


def await_lines(worker: subprocess.Popen[str], pattern: str, count: int) -> list[str]:
    """Read the log until so many lines have the pattern; returns what it found."""
    found: list[str] = []
    assert worker.stdout is not None
    for line in worker.stdout:
        found += re.findall(pattern, line)
        if len(found) == count:
            return found
    raise AssertionError(f"the worker has ended; found {found}")


def test_ten_tasks_and_a_countdown_succeed(walk: Walk) -> None:
    with working(walk, WORKER) as worker:
        sent = monotonic()
        walk.program(of("python")[1])
        results = await_lines(worker, r"Task tasks\.add\[.*succeeded in .*: (\d+)", 11)
        seconds = monotonic() - sent
    walk.shell(of("")[-1])

    assert sorted(map(int, results)) == sorted([*range(0, 20, 2), 42])
    assert seconds >= 3
    assert re.search(r"lock_duration +PT10S", walk.printed[-1])


def test_the_task_of_a_killed_worker_is_done_by_another(
    walk: Walk, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    worker = WORKER.replace("tasks", "holding") + " --concurrency 1"

    with working(walk, worker) as first:
        walk.program(f"from holding import hold\n\nhold.delay({str(gate)!r})\n")
        await_lines(first, r"Task holding\.hold\[.*received", 1)
        await_lines(first, "holding$", 1)
    with working(walk, worker) as second:
        await_lines(second, r"Task holding\.hold\[.*received", 1)
        gate.write_text("open")
        results = await_lines(second, r"Task holding\.hold\[.*succeeded in .*: (.*)", 1)

    assert results == ["'open'"]


def test_the_guide_names_the_tested_versions() -> None:
    text = f"Tested with Celery {version('celery')} and kombu {version('kombu')}."
    assert text in TEXT
