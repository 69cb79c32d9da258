"""The official JavaScript client against the server.

The cases are written in JavaScript, in the folder `js`, with the entities that each one
wants. Here one server is started with all of those, one node process runs the cases
that were selected, several at once, and each case is a test with its own result.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.sdk import runs
from tests.sdk.runs import Run
from tests.sdk.servers import serving
from twinbus import limits

FOLDER = Path(__file__).parent / "js"
# The namespaces, as the cases name them, and their settings.
NAMESPACES: dict[str, dict[str, Any]] = {
    "plain": {},
    "parted": {"shards": 4},
    "wide": {"shards": limits.SHARDS_MAX},
}


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


@pytest.fixture(scope="module")
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """The selected cases, running."""
    names = runs.selected(request, test_case)
    configuration = runs.configuration(listed(), NAMESPACES)
    with serving(tmp_path_factory.mktemp("javascript"), configuration) as server:
        trust = {"NODE_EXTRA_CA_CERTS": server.ca_file}
        command = ["node", str(FOLDER / "run.mjs")]
        with runs.running(command, names, server, env=trust) as running:
            yield running


def test_case(case: str, run: Run) -> None:
    run.judge(case)


def test_no_error_escapes_the_client(run: Run) -> None:
    assert run.escapes() == []
