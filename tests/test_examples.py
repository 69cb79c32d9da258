"""The examples run, and an outage in the middle costs no order."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from twinbus.testing.server_process import ServerProcess

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "primary", {"queues": ["orders"]}) as server:
        yield server


@pytest.fixture
def secondary(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "secondary") as server:
        yield server


@pytest.fixture(autouse=True)
def environment(
    primary: ServerProcess, secondary: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the namespaces are, as the examples read it."""
    monkeypatch.setenv("PRIMARY", primary.connection_string)
    monkeypatch.setenv("SECONDARY", secondary.connection_string)
    monkeypatch.setenv("SECONDARY_ADMIN", secondary.admin_connection_string)
    monkeypatch.setenv("CA_FILE", secondary.ca_file)


def example(name: str) -> ModuleType:
    """Load an example anew."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def receiving() -> Iterator[Iterator[str]]:
    """The orders that the worker prints, as they come."""
    command = [sys.executable, str(EXAMPLES / "worker.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        try:
            yield (line.removeprefix("order ").strip() for line in worker.stdout)
        finally:
            worker.kill()


def outage(
    post: Callable[[str], int], status: Callable[[], Any], primary: ServerProcess
) -> list[str]:
    """Order before, during and after an outage; returns the states in between."""
    states = []
    for number, change in enumerate((None, primary.kill, primary.start)):
        if change is not None:
            change()
        assert [post(f"{number}{part}") for part in "ab"] == [202, 202]
        (entity,) = status()["entities"]
        states.append(str(entity["state"]))
    return states


def brought_home() -> list[str]:
    with receiving() as orders:
        return sorted(next(orders) for _ in range(6))


ALL = ["0a", "0b", "1a", "1b", "2a", "2b"]


def test_the_fastapi_example_takes_orders_during_an_outage(
    primary: ServerProcess,
) -> None:
    with TestClient(example("fastapi_orders").app) as client:
        states = outage(
            lambda text: client.post("/orders", content=text).status_code,
            lambda: client.get("/status").json(),
            primary,
        )

    assert states[:2] == ["healthy", "failed over"]
    assert brought_home() == ALL


def test_the_flask_example_takes_orders_during_an_outage(
    primary: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example("flask_orders")
    at_exit: list[Callable[[], None]] = []
    # Only the name in the example: the finalizers of the process use `atexit` as well.
    monkeypatch.setattr(module, "atexit", SimpleNamespace(register=at_exit.append))
    client = module.create_app().test_client()

    states = outage(
        lambda text: client.post("/orders", data=text).status_code,
        lambda: client.get("/status").get_json(),
        primary,
    )
    for close in reversed(at_exit):
        close()

    assert states[:2] == ["healthy", "failed over"]
    assert brought_home() == ALL
