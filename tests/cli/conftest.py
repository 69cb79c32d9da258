"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import Result, Run, run_main


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command in this process."""

    def call(*args: object) -> Result:
        return run_main(monkeypatch, capsys, args)

    return call


@pytest.fixture
def at(run: Run, tmp_path: Path) -> Run:
    """Run one command on a data folder, in JSON; the namespace is `contoso`."""

    def call(*args: object) -> Result:
        return run(*args, "--data", tmp_path, "--namespace", "contoso", "--json")

    return call
