"""Processes of a drill are spoken to, end in order, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from twinbus.drill.children import Child, Line, kill_leftovers, leftovers
from twinbus.drill.tied import RUN, tied


class Ear:
    """What a child has said."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.gone: list[str] = []
        self.news = asyncio.Event()

    def hear(self, _: Child, line: Line) -> None:
        self.lines.append(line)
        self.news.set()

    def lose(self, child: Child) -> None:
        self.gone.append(child.name)
        self.news.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.lines) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
def run() -> Iterator[str]:
    name = token_hex(8)
    yield name
    kill_leftovers(name)


async def start(folder: Path, ear: Ear, run: str) -> Child:
    child = Child("echo", folder, ear.hear, ear.lose)
    await child.start(run, "tests.drill.echo")
    return child


async def test_a_child_hears_and_speaks(tmp_path: Path, run: str) -> None:
    ear = Ear()
    child = await start(tmp_path, ear, run)

    child.tell(number=1)
    child.tell(do="this")
    await ear.until(2)
    assert leftovers(run)
    await child.end()

    assert ear.lines == [{"job": {"number": 1}}, {"heard": {"do": "this"}}]
    assert not child.died
    assert ear.gone == ["echo"]
    assert child.log.with_suffix(".out").read_text() == "no JSON at all\n"
    assert leftovers(run) == []


async def test_a_child_that_ends_by_itself_has_died_and_said_why(
    tmp_path: Path, run: str
) -> None:
    ear = Ear()
    child = await start(tmp_path, ear, run)
    child.tell()

    child.tell(do="die")
    async with asyncio.timeout(30):
        await child.ended.wait()

    assert child.died
    assert child.last_words() == "what it wrote last"
    await child.end()


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("Traceback:\n  File\nValueError: no\n SQLSTATE: 38000)\n", "ValueError: no"),
        ("26/11/15 13:24:57 WARN Task: lost\nthe end", "the end"),
        ("", "It wrote nothing."),
    ],
)
def test_the_last_error_is_what_went_wrong(
    tmp_path: Path, log: str, words: str
) -> None:
    child = Child("silent", tmp_path, lambda _child, _line: None)
    child.log.write_text(log)

    assert child.last_words() == words


async def test_a_child_that_hangs_is_killed(
    tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinbus.limits.DRILL_END_SECONDS", 0.1)
    ear = Ear()
    child = await start(tmp_path, ear, run)
    child.tell()
    await ear.until(1)
    [number] = leftovers(run)
    os.kill(number, signal.SIGSTOP)

    await child.end()

    assert leftovers(run) == []


def test_what_is_left_over_is_found_by_its_run_and_killed(run: str) -> None:
    sleeper = [*tied(run), sys.executable, "-c", "input()"]
    with subprocess.Popen(sleeper, stdin=subprocess.PIPE) as process:
        _until_tied(process)

        assert kill_leftovers("another") == []
        assert kill_leftovers(run) == [process.pid]
        assert process.wait() == -signal.SIGKILL


def test_a_program_ends_with_its_parent(run: str) -> None:
    parent = (
        "import subprocess, sys; "
        "subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE); input()"
    )
    says = "import os; print(os.environ['" + RUN + "'], flush=True); input()"
    command = [sys.executable, "-c", parent, *tied(run), sys.executable, "-c", says]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline().strip().decode() == run
        [number] = leftovers(run)
        handle = os.pidfd_open(number)

        process.kill()

        # Readable when the process has ended, however that came.
        assert select.select([handle], [], [], 30)[0]
        os.close(handle)


def _until_tied(process: subprocess.Popen[bytes]) -> None:
    """It is tied once it is the program that it was to become."""
    place = Path(f"/proc/{process.pid}/cmdline")
    while b"input()" not in place.read_bytes().split(b"\0")[2:3]:
        assert process.poll() is None
