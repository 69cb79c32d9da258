"""Rehearsed faults of a real server, as the official JavaScript client sees them.

The application is `js/faults.mjs`: one node process with one client, which lives
through all faults. The tests switch them, tell it what to do and see what came of it.
Each way in which an outage looks to an application is here; `test_faults.py` has more.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import run as run  # noqa: PLC0414 - a fixture
from tests.cli.run import Run, Served
from tests.sdk.fault_site import FaultSite, admin_text, started

FOLDER = Path(__file__).parent / "js"
# How a connection ends that is reset, by the moment at which the client notices.
RESET = re.compile("ECONNRESET|EPIPE|Failed to connect")


@dataclass(frozen=True, slots=True)
class Application:
    """The node process; each call waits for its answer."""

    process: subprocess.Popen[str]

    def tell(self, line: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(line)}\n")
        self.process.stdin.flush()

    def does(self, action: str, queue: str = "") -> Any:
        """The value of an action that succeeds."""
        answer = self._ask(action, queue)
        assert "errors" not in answer, answer
        return answer.get("value")

    def fails(self, action: str, queue: str = "") -> tuple[set[str | None], str]:
        """The codes of an action that fails, of all attempts, and the last message."""
        answer = self._ask(action, queue)
        assert "errors" in answer, answer
        errors = answer["errors"]
        return {error.get("code") for error in errors}, errors[-1]["message"]

    def _ask(self, action: str, queue: str) -> Any:
        self.tell({"action": action, "queue": queue})
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "node ended early; see what it wrote to standard error"
        return json.loads(line)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with started(tmp_path_factory.mktemp("faults-js"), "--faults") as process:
        yield process


@pytest.fixture
def site(process: Served, run: Run) -> Iterator[FaultSite]:
    site = FaultSite(process, run)
    yield site
    site.restore()


@pytest.fixture(scope="module")
def node(process: Served) -> Iterator[Application]:
    trust = {"NODE_EXTRA_CA_CERTS": process.ready["ca_file"]}
    with subprocess.Popen(
        ["node", "faults.mjs"],
        cwd=FOLDER,
        env={**os.environ, **trust},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            application = Application(program)
            text = process.ready["namespaces"]["shop"]["connection_string"]
            server = {"connection_string": text, "admin_string": admin_text(process)}
            application.tell(server)
            yield application
        finally:
            program.kill()


# -- cannot send -------------------------------------------------------------------


def test_send_down_stops_sends_to_one_entity(
    site: FaultSite, node: Application
) -> None:
    node.does("send", "a")
    site.fault("add", "send-down", "a")

    codes, message = node.fails("send", "a")
    assert codes == {"GeneralError"}
    assert "rehearsed fault 'send-down a'" in message
    node.does("send", "b")
    assert node.does("receive", "a") == ["x"]
    assert node.does("manage") == ["a", "b"]

    site.clear()
    node.does("send", "a")


def test_a_throttled_entity_answers_busy(site: FaultSite, node: Application) -> None:
    site.fault("add", "throttle", "a")

    codes, message = node.fails("send", "a")
    assert codes == {"ServiceBusy"}
    assert "rehearsed fault 'throttle a'" in message
    node.does("send", "b")

    site.clear()
    node.does("send", "a")


def test_a_full_disk_refuses_sends_and_recovers(
    site: FaultSite, node: Application
) -> None:
    site.fault("add", "storage-full")

    codes, message = node.fails("send", "a")
    assert codes == {"GeneralError"}
    assert "The disk is full" in message
    assert site.says("The disk is full")

    site.clear()
    node.does("send", "a")
    assert node.does("receive", "a") == ["x"]


# -- cannot receive ----------------------------------------------------------------


def test_receive_down_stops_receives_from_one_entity(
    site: FaultSite, node: Application
) -> None:
    node.does("send", "b")
    site.fault("add", "receive-down", "a")

    codes, message = node.fails("receive", "a")
    assert codes == {"GeneralError"}
    assert "rehearsed fault 'receive-down a'" in message
    node.does("send", "a")
    assert node.does("receive", "b") == ["x"]
    assert node.does("manage") == ["a", "b"]

    site.clear()
    assert node.does("receive", "a") == ["x"]


# -- cannot manage -----------------------------------------------------------------


def test_management_down_stops_administration_alone(
    site: FaultSite, node: Application
) -> None:
    site.fault("add", "management-down")

    codes, message = node.fails("manage")
    assert codes == {"InternalServerError"}
    assert "rehearsed fault 'management-down namespace'" in message
    node.does("send", "a")
    assert node.does("receive", "a") == ["x"]

    site.clear()
    assert node.does("manage") == ["a", "b"]


# -- cannot contact ----------------------------------------------------------------


def test_refuse_resets_connections(site: FaultSite, node: Application) -> None:
    node.does("send", "a")
    site.fault("add", "refuse")

    for action in ("send", "send_anew"):
        # Its code is GeneralError, or missing where the client only sees the end.
        _, message = node.fails(action, "a")
        assert RESET.search(message)
    assert node.does("manage") == ["a", "b"]

    site.clear()
    node.does("send", "a")
    assert [node.does("receive", "a") for _ in range(2)] == [["x"], ["x"]]


def test_silence_answers_neither_old_connections_nor_new_ones(
    site: FaultSite, node: Application
) -> None:
    node.does("send", "a")
    site.fault("add", "silence")

    assert node.fails("send", "a")[0] == {"ServiceTimeout"}
    assert node.fails("send_anew", "a")[1] == "The operation was aborted."
    assert node.does("manage") == ["a", "b"]

    site.clear()
    node.does("send", "a")
    assert [node.does("receive", "a") for _ in range(2)] == [["x"], ["x"]]
