"""The processes of a drill: started, spoken to, and ended without leaving one behind.

Owns their life. A child hears commands and speaks, a JSON object per line each way; its
errors go to a log of its own. A child that ends before it was told to is a failure that
says what it wrote last. One that does not end when it is told to is killed, by its
number; then the director looks for leftover processes of this run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twinbus import limits
from twinbus.drill.tied import RUN, tied
from twinbus.errors import TwinbusError

Line = dict[str, Any]

# How a trace ends. Java's lines begin with a time or with spaces.
_ERROR = re.compile(r"[A-Za-z_][\w.]*: \S")


def module_of(part: str, cast: str) -> str:
    """The module that plays a part: the one of the cast, or else the drill's own."""
    own = f"{cast}.{part}"
    return own if cast and find_spec(own) else f"twinbus.drill.roles.{part}"


class DrillFailed(TwinbusError):
    """The drill could not be carried through, so it proves nothing."""


class Child:
    """One process."""

    def __init__(
        self,
        name: str,
        folder: Path,
        hear: Callable[[Child, Line], None],
        gone: Callable[[Child], None] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._hear = hear
        self._gone = gone
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        # It is expected to end.
        self.released = False
        self.ended = asyncio.Event()

    async def start(self, run: str, module: str, *arguments: str) -> None:
        """Start it. Must be called in the thread that outlives it."""
        command = [*tied(run), sys.executable, "-m", module, *arguments]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=limits.DRILL_LINE_BYTES_MAX,
                # Ctrl-C in the terminal is not for it.
                start_new_session=True,
            )
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        while line := await process.stdout.readline():
            try:
                heard = json.loads(line)
            except ValueError:
                # A library has printed something. It is not what went wrong.
                with self.log.with_suffix(".out").open("ab") as noise:
                    noise.write(line)
                continue
            self._hear(self, heard)
        await process.wait()
        self.ended.set()
        if self._gone is not None:
            self._gone(self)

    def tell(self, **line: Any) -> None:
        """Give a command; one to a child that is gone is lost."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")

    def release(self) -> None:
        """Let it end: there will be no more commands."""
        self.released = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    @property
    def died(self) -> bool:
        """Whether it has ended without being told to."""
        return self.ended.is_set() and not self.released

    def last_words(self) -> str:
        """What went wrong, by the end of its log: the last error, or the last line."""
        if not self.log.exists():
            return "It wrote nothing."
        lines = (
            self.log.read_text(errors="replace")[-limits.DRILL_LOG_CHARS_MAX :]
            .strip()
            .splitlines()
        )
        errors = [line for line in lines if _ERROR.match(line)]
        return (errors or lines or ["It wrote nothing."])[-1]

    async def end(self) -> None:
        """Have it end, and kill it if it does not."""
        if self._process is None:
            return
        self.release()
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.DRILL_END_SECONDS):
                await self.ended.wait()
        if not self.ended.is_set():
            self.kill()
        if self._listening is not None:
            await self._listening

    def kill(self) -> None:
        """End it and its group at once."""
        self.released = True
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


async def end_all(children: Iterable[Child]) -> None:
    """End all of them at the same time."""
    await asyncio.gather(*(child.end() for child in children))


# -- leftovers -----------------------------------------------------------------------


def leftovers(run: str) -> list[int]:
    """The processes of a run that are still there, by what their environment says."""
    mark = f"{RUN}={run}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            # Gone meanwhile, or not ours.
            continue
        if mark in environment.split(b"\0"):
            found.append(int(entry.name))
    return found


def kill_leftovers(run: str) -> list[int]:
    """Kill what is still there, each by its number; returns what there was."""
    found = leftovers(run)
    for number in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)
    return found
