"""Fixtures of the command line's tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run import Result, Run, run_main


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Run one command in this process, whose log stays as it was."""

    def call(*args: object) -> Result:
        return run_main(monkeypatch, capsys, args)

    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield call
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def at(run: Run, tmp_path: Path) -> Run:
    """Run one command on a data folder, in JSON; the namespace is `contoso`."""

    def call(*args: object) -> Result:
        return run(*args, "--data", tmp_path, "--namespace", "contoso", "--json")

    return call
