"""The official Go client against the server.

The cases are written in Go, in the folder `go`, with the entities that each one wants.
`make sdks` builds the program and writes the list of its cases. Here one server is
started with all entities, one process runs the cases that were selected, several at
once, and each case is a test with its own result.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk import runs
from tests.sdk.runs import Run
from tests.sdk.servers import serving

pytestmark = pytest.mark.sdks
CASES = runs.listed("go")
COMMAND = [str(runs.BUILD / "go")]


@pytest.fixture(scope="module")
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """The selected cases, running."""
    names = runs.selected(request, test_case)
    configuration = runs.configuration(CASES, runs.NAMESPACES)
    with serving(tmp_path_factory.mktemp("go"), configuration) as server:
        trust = {"SSL_CERT_FILE": server.ca_file}
        with runs.running(COMMAND, names, server, env=trust) as running:
            yield running


@pytest.mark.parametrize("case", runs.parameters(CASES))
def test_case(case: str, run: Run) -> None:
    run.judge(case)


def test_a_cut_connection_is_opened_again(tmp_path: Path) -> None:
    runs.judge_with_a_cut(COMMAND, runs.find(CASES, runs.CUT), tmp_path)
