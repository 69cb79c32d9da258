"""Programs of the official clients go on while the server fails and is restarted.

The programs know nothing of restarts, and have the retries that the clients come with
(those in JavaScript in a campaign, since their waits are long). Server and supervisor
are real processes, with the real limits.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.sdk.servers import shard_options
from tests.server.setup.supervised_site import (
    SupervisedSite,
    configured,
    send,
    supervised,
)
from twinbus import limits
from twinbus.store.shards import shard_folders
from twinbus.store.sqlite.file import FILE_NAME

ROOT = Path(__file__).resolve().parents[2]
PYTHON = [sys.executable, "-m", "tests.sdk.steady"]
JAVASCRIPT = ["node", str(ROOT / "tests" / "sdk" / "js" / "steady.mjs")]
REAL = {
    "HEARTBEAT_SECONDS": limits.HEARTBEAT_SECONDS,
    "HEARTBEAT_SILENCE_SECONDS_MAX": limits.HEARTBEAT_SILENCE_SECONDS_MAX,
}


class Program:
    """A running program, and what it has said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.sent: list[str] = []
        self.completed: list[str] = []
        self.lost: list[str] = []

    def go_on(self, rounds: int) -> None:
        """Wait until it has completed so many more."""
        wanted = len(self.completed) + rounds
        while len(self.completed) < wanted:
            assert self._hear(), "it ended"

    def end(self) -> int:
        """Let it take the rest and end; returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        while self._hear():
            pass
        return self._process.wait()

    def _hear(self) -> bool:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return False
        said: dict[str, Any] = json.loads(line)
        self.sent += [said["sent"]] if "sent" in said else []
        self.completed += [said["completed"]] if "completed" in said else []
        self.lost += [said["lost"]] if "lost" in said else []
        return True


@contextmanager
def running(command: list[str], site: SupervisedSite, *retry: str) -> Iterator[Program]:
    with subprocess.Popen(
        [*command, site.connection_string, "orders", *retry],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


def break_invariant(site: SupervisedSite) -> None:
    """Take a message out of another queue behind the server's back."""
    gone = 0
    for folder in shard_folders(site.data / "contoso"):
        store = sqlite3.connect(folder / FILE_NAME)
        with store:
            statement = "DELETE FROM message WHERE instr(bare, ?) > 0"
            gone += store.execute(statement, (b"elsewhere",)).rowcount
        store.close()
    assert gone == 1


FAILURES: dict[str, tuple[Callable[[SupervisedSite], None], str]] = {
    "crash": (SupervisedSite.crash, "ended by SIGKILL"),
    "stall": (SupervisedSite.stall, "is stalled"),
    "broken": (break_invariant, "is broken: other of contoso: the counters had 1"),
}


def goes_on(folder: Path, failure: str, command: list[str], *retry: str) -> None:
    """Let a server fail while a program sends and receives."""
    fail, reason = FAILURES[failure]
    options = [*configured(folder, "orders", "other"), *shard_options()]
    with (
        supervised(folder, options, limits=REAL) as site,
        running(command, site, *retry) as program,
    ):
        send(site, "other", ServiceBusMessage("elsewhere"))
        program.go_on(5)

        fail(site)
        program.go_on(5)
        site.wait_for_restart()
        program.go_on(5)

        assert program.end() == 0
        assert site.stop() == 0
    assert set(program.completed) | set(program.lost) == set(program.sent)
    # Only a message whose completion went through, and whose answer was lost, does not
    # come again. Others may be late: the keep-alive thread of the Python client takes a
    # message now and then, and the program sees it when the lock has ended.
    assert len(set(program.lost) - set(program.completed)) <= 1
    assert reason in site.log
    assert site.log.count("the server is back") == 1


@pytest.mark.parametrize(
    "failure",
    [
        "crash",
        # The program in JavaScript has that one.
        pytest.param("stall", marks=pytest.mark.campaign),
        pytest.param("broken", marks=pytest.mark.campaign),
    ],
)
def test_a_python_program_goes_on(tmp_path: Path, failure: str) -> None:
    goes_on(tmp_path, failure, PYTHON)


def test_a_javascript_program_goes_on(tmp_path: Path) -> None:
    """With shorter waits than its own, which add up to 90 seconds."""
    retry = {"timeoutInMs": 3000, "retryDelayInMs": 500}
    goes_on(tmp_path, "stall", JAVASCRIPT, json.dumps(retry))


@pytest.mark.campaign
@pytest.mark.parametrize("failure", FAILURES)
def test_a_javascript_program_goes_on_unchanged(tmp_path: Path, failure: str) -> None:
    goes_on(tmp_path, failure, JAVASCRIPT)
