"""A program of named cases in another language, at work against one server.

Owns what such a program is told and what it prints. `--list` prints its cases with the
entities that each one wants. Otherwise it reads from standard input which cases to run
and where the namespaces are, runs several at once, and prints a line of JSON for each
as soon as it is done. Knows nothing about languages or clients.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import pytest

from tests.sdk.servers import Server, serving
from twinbus.testing.proxy import Fault, FaultyProxy

Case = Mapping[str, Any]
# Where `make sdks` puts programs, and beside each a list of its cases.
BUILD = Path(__file__).resolve().parent.parent.parent / "build" / "sdks"
# The namespaces, as the cases of built programs name them, and their settings.
NAMESPACES: dict[str, dict[str, Any]] = {
    "plain": {},
    "parted": {"shards": 4},
    "admin": {},
    "pages": {},
}
# The case that is run behind a proxy as well.
CUT = "sends_and_receives_go_on_after_a_cut"
# A namespace that takes one message a second, and its queue.
SLOW = "slow"
SLOW_QUEUE = "slow"


_MISSING = "not built: run `make sdks`"


@dataclass(slots=True)
class Run:
    """A process at work, and the results that it has printed so far."""

    output: IO[str]
    log: Path
    failures: dict[str, str | None]
    escaped: list[str] | None = None

    def failure(self, case: str) -> str | None:
        """What went wrong in a case, or nothing; waits for the case to end."""
        while case not in self.failures and self._read_line():
            pass
        return self.failures.get(case, f"it ended early:\n{self.log.read_text()}")

    def judge(self, case: str) -> None:
        """Fail the test of a case that has failed."""
        failure = self.failure(case)
        if failure is not None:
            # The traceback that helps is the one of the case.
            pytest.fail(failure, pytrace=False)

    def escapes(self) -> list[str]:
        """The errors that no case could have caught; waits for the run to end."""
        while self._read_line():
            pass
        assert self.escaped is not None, f"it ended early:\n{self.log.read_text()}"
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


def listed(program: str) -> list[Case]:
    """The cases of a built program; none if it was not built."""
    file = BUILD / f"{program}.json"
    return list(json.loads(file.read_text())) if file.exists() else []


def find(cases: Iterable[Case], name: str) -> Case:
    """The case with a name; the test is skipped where the program was not built."""
    for case in cases:
        if case["name"] == name:
            return case
    pytest.skip(_MISSING)


def parameters(cases: Iterable[Case]) -> list[object]:
    """The names of cases as the parameters of a test."""
    missing = pytest.mark.skip(reason=_MISSING)
    names: list[object] = [case["name"] for case in cases]
    return names or [pytest.param("not-built", marks=missing)]


def configuration(
    cases: Iterable[Case], namespaces: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Namespaces with these settings and the entities of all cases; and a slow one."""
    made = {
        name: {"name": name, **settings, "queues": [], "topics": []}
        for name, settings in namespaces.items()
    }
    for case in cases:
        made[case["namespace"]]["queues"] += case["queues"]
        made[case["namespace"]]["topics"] += case["topics"]
    slow = {
        "name": SLOW,
        "message_rate_per_second": 1,
        "queues": [{"name": SLOW_QUEUE}],
    }
    return {"namespaces": [*made.values(), slow]}


def selected(request: pytest.FixtureRequest, test: object) -> list[str]:
    """The cases of this test that were selected."""
    return [
        str(item.callspec.params["case"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test
    ]


def through(server: Server, port: int) -> Server:
    """The same server, with the messages of the plain namespace on another port."""
    direct = server.namespaces["plain"]
    text = re.sub(r":\d+", f":{port}", direct.connection_string, count=1)
    plain = replace(direct, connection_string=text)
    return replace(server, namespaces={**server.namespaces, "plain": plain})


def judge_with_a_cut(command: Sequence[str], case: Case, folder: Path) -> None:
    """Run a case whose first connection is reset in the midst of its sends."""
    cut = Fault(
        "reset", towards="server", after_frame="transfer", count=12, connections=1
    )
    with (
        serving(folder, configuration([case], {"plain": {}})) as server,
        FaultyProxy("127.0.0.1", server.namespaces["plain"].amqp_port) as proxy,
    ):
        proxy.inject(cut)
        trust = {"TWINBUS_CA_FILE": server.ca_file}
        with running(
            command, [case["name"]], through(server, proxy.port), trust
        ) as run:
            run.judge(case["name"])
        assert proxy.strikes == 1


@contextmanager
def running(
    command: Sequence[str],
    names: Sequence[str],
    server: Server,
    env: Mapping[str, str],
) -> Iterator[Run]:
    """Run these cases with this command until the block ends."""
    slow = {**asdict(server.namespaces[SLOW]), "queue": SLOW_QUEUE}
    servers = {
        name: {**asdict(endpoint), "slow": slow}
        for name, endpoint in server.namespaces.items()
    }
    log = server.log.with_name("program.log")
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"names": names, "servers": servers}))
        process.stdin.close()
        try:
            yield Run(process.stdout, log, {})
        finally:
            # It has ended by itself, unless a test failed that was to be the last.
            process.kill()
