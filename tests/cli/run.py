"""Runs the command line as a user would: in this process, or a server as a child."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from twinbus.cli.main import main

# A child that is not ready by then never will be.
READY_SECONDS_MAX = 30

Run = Callable[..., "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def run_main(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: tuple[object, ...],
) -> Result:
    """Run one command in this process."""
    monkeypatch.setattr(sys, "argv", ["twinbus", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return Result(ended.value.code, printed.out, printed.err)


def run_at_terminal(typed: str, *args: object) -> Result:
    """Run one command as a child at a terminal where a person types a line."""
    person, terminal = pty.openpty()
    try:
        os.write(person, f"{typed}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "twinbus.cli.main", *map(str, args)],
            stdin=terminal,
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_SECONDS_MAX,
        )
    finally:
        os.close(terminal)
        os.close(person)
    return Result(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs as a child."""

    process: subprocess.Popen[str]
    ready: Any

    def stop(self, number: int = signal.SIGTERM) -> Result:
        """End it with a signal and see what else it printed."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=READY_SECONDS_MAX)
        return Result(self.process.returncode, out, err)


@contextmanager
def served(data: Path, *args: object) -> Iterator[Served]:
    """Run `twinbus serve`, without supervisor, until the block ends."""
    command = [sys.executable, "-m", "twinbus.cli.main", "serve", "--no-supervisor"]
    command += ["--data", str(data)]
    command += [] if "--ledger" in args else ["--no-ledger"]
    process = subprocess.Popen(
        [*command, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Served(process, _ready(process))
        finally:
            if process.poll() is None:
                process.kill()
            _drain(process.stdout)
            _drain(process.stderr)


def _ready(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, err = process.communicate(timeout=READY_SECONDS_MAX)
        raise AssertionError(f"not ready: {err}")
    return json.loads(line)


def _drain(stream: IO[str] | None) -> None:
    if stream is not None and not stream.closed:
        stream.read()
