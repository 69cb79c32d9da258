"""Older official clients, which are stricter about frames than the newest one.

Each has an environment of its own, made by `make setup`, and runs `smoke_old.py` there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk import declared
from tests.sdk.servers import Server

ROOT = Path(__file__).resolve().parent.parent.parent
SMOKE = Path(__file__).with_name("smoke_old.py")

OLD = {
    version: (
        declared.queue(f"old-{version}"),
        declared.queue(f"old-{version}-sessions", requires_session=True),
    )
    for version in ("7.14.3", "7.12.3")
}


@pytest.fixture(scope="module")
def smokes(server: Server) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Both versions, which spend most of their time polling, at work."""
    endpoint = server.namespaces["sync"]
    # The older one has no plain mode, but keeps the port of its endpoint under TLS.
    secured = endpoint.secured(f"localhost:{endpoint.amqps_port}")
    running = {
        "7.14.3": start("7.14.3", endpoint.connection_string, *OLD["7.14.3"]),
        "7.12.3": start("7.12.3", secured, *OLD["7.12.3"], server.ca_file),
    }
    yield running
    for process in running.values():
        process.kill()
        process.communicate()


def start(version: str, *arguments: str) -> subprocess.Popen[str]:
    python = ROOT / ".venvs" / f"sdk-{version}" / "bin" / "python"
    return subprocess.Popen(
        [python, SMOKE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("version", OLD)
def test_an_older_client_works(
    smokes: dict[str, subprocess.Popen[str]], version: str
) -> None:
    output, errors = smokes[version].communicate(timeout=60)

    assert output == "ok\n", errors
