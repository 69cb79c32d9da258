"""The official JavaScript administration client, over HTTPS with verification on.

The cases are written in JavaScript, in `js/admin.mjs`. Here a server is started, one
node process that trusts its authority runs all cases, and each is a test of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest

from tests.sdk.servers import serving

FOLDER = Path(__file__).parent / "js"
NAMESPACE = "javascript"
RUN_SECONDS_MAX = 90


@cache
def listed() -> tuple[str, ...]:
    """The cases, as node names them."""
    command = ["node", "admin.mjs", "--list"]
    output = subprocess.run(command, cwd=FOLDER, check=True, stdout=subprocess.PIPE)
    return tuple(json.loads(output.stdout))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", listed())


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What went wrong in each case that has ended."""
    folder = tmp_path_factory.mktemp("admin-javascript")
    with serving(folder, {"namespaces": [{"name": NAMESPACE}]}) as server:
        done = subprocess.run(
            ["node", "admin.mjs"],
            cwd=FOLDER,
            env={**os.environ, "NODE_EXTRA_CA_CERTS": server.ca_file},
            input=json.dumps(asdict(server.namespaces[NAMESPACE])),
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return {result["name"]: result["failure"] for result in results}


def test_case(case: str, failures: dict[str, str | None]) -> None:
    failure = failures.get(case, "the case did not end")

    if failure is not None:
        # The traceback that helps is the one of the case.
        pytest.fail(failure, pytrace=False)


def test_the_certificate_is_verified(tmp_path: Path) -> None:
    with serving(tmp_path, {"namespaces": [{"name": NAMESPACE}]}) as server:
        port = server.namespaces[NAMESPACE].https_port
        script = f"fetch('https://localhost:{port}/health').then(() => 1, (e) => {{"
        script += " console.log(e.cause.code); })"
        trust = {k: v for k, v in os.environ.items() if k != "NODE_EXTRA_CA_CERTS"}
        done = subprocess.run(
            ["node", "-e", script],
            env=trust,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=True,
        )

    assert "CERT" in done.stdout or "SIGNATURE" in done.stdout
