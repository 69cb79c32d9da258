"""The official JavaScript client against the server.

The cases are written in JavaScript, in the folder `js`, with the entities that each one
wants. Here one server is started with all of those, one node process runs the cases
that were selected, several at once, and each case is a test with its own result.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest

from tests.sdk.servers import Server, serving
from twinbus import limits

FOLDER = Path(__file__).parent / "js"
# The namespaces, as the cases name them, and their settings.
NAMESPACES: dict[str, dict[str, Any]] = {
    "plain": {},
    "parted": {"shards": 4},
    "wide": {"shards": limits.SHARDS_MAX},
}
# Another namespace, which takes one message a second.
SLOW = "javascript-slow"
SLOW_QUEUE = "slow"


@cache
def listed() -> tuple[dict[str, Any], ...]:
    """The cases, as node names them."""
    command = ["node", "run.mjs", "--list"]
    output = subprocess.run(command, cwd=FOLDER, check=True, stdout=subprocess.PIPE)
    return tuple(json.loads(output.stdout))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", [entry["name"] for entry in listed()])


@dataclass(slots=True)
class Run:
    """A node process at work, and the results that it has printed so far."""

    output: IO[str]
    log: Path
    failures: dict[str, str | None]
    escaped: list[str] | None = None

    def failure(self, case: str) -> str | None:
        """What went wrong in a case, or nothing; waits for the case to end."""
        while case not in self.failures and self._read_line():
            pass
        return self.failures.get(case, f"node ended early:\n{self.log.read_text()}")

    def escapes(self) -> list[str]:
        """The errors that no case could have caught; waits for the run to end."""
        while self._read_line():
            pass
        assert self.escaped is not None, f"node ended early:\n{self.log.read_text()}"
        return self.escaped

    def _read_line(self) -> bool:
        line = self.output.readline()
        if not line:
            return False
        result = json.loads(line)
        if "escaped" in result:
            self.escaped = result["escaped"]
        else:
            self.failures[result["name"]] = result["failure"]
        return True


@pytest.fixture(scope="module")
def javascript_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the entities of every case."""
    namespaces = [
        {"name": name, **settings, "queues": [], "topics": []}
        for name, settings in NAMESPACES.items()
    ]
    for namespace in namespaces:
        for entry in listed():
            if entry["namespace"] == namespace["name"]:
                namespace["queues"] += entry["queues"]
                namespace["topics"] += entry["topics"]
    slow = {
        "name": SLOW,
        "message_rate_per_second": 1,
        "queues": [{"name": SLOW_QUEUE}],
    }
    folder = tmp_path_factory.mktemp("javascript")
    with serving(folder, {"namespaces": [*namespaces, slow]}) as server:
        yield server


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, javascript_server: Server) -> Iterator[Run]:
    """The selected cases, running."""
    names = [
        item.callspec.params["case"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_case
    ]
    namespaces = javascript_server.namespaces
    slow = {**asdict(namespaces[SLOW]), "queue": SLOW_QUEUE}
    servers = {name: {**asdict(namespaces[name]), "slow": slow} for name in NAMESPACES}
    wanted = {"names": names, "servers": servers}
    log = javascript_server.log.with_name("node.log")
    with (
        log.open("w") as errors,
        subprocess.Popen(
            ["node", "run.mjs"],
            cwd=FOLDER,
            env={**os.environ, "NODE_EXTRA_CA_CERTS": javascript_server.ca_file},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(wanted))
        process.stdin.close()
        try:
            yield Run(process.stdout, log, {})
        finally:
            # It has ended by itself, unless a test failed that was to be the last.
            process.kill()


def test_case(case: str, run: Run) -> None:
    failure = run.failure(case)

    if failure is not None:
        # The traceback that helps is the one of the case.
        pytest.fail(failure, pytrace=False)


def test_no_error_escapes_the_client(run: Run) -> None:
    assert run.escapes() == []
