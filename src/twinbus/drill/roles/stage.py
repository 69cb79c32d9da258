"""A child's end of the drill: commands come in and lines go out, as JSON.

Owns the two pipes. The first line in is the child's job. When the input ends, the child
ends: the director is gone or wants it gone. Ctrl-C is the parent's business alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from twinbus.drill.plan import APPLICATION_LEDGER, Plan

Line = dict[str, Any]


class Stage:
    """Where a child is spoken to."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    @classmethod
    async def open(cls) -> Stage:
        """Take over standard input."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=16 * 1024 * 1024)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        return cls(reader)

    async def hear(self) -> Line | None:
        """The next command; None when there will be no more."""
        line = await self._reader.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    async def over(self) -> None:
        """Wait until there are no more commands, whatever they say."""
        while await self.hear() is not None:
            pass


def plan_of(job: Line) -> Plan:
    """The plan of a job."""
    return Plan(**job["plan"])


def ledger_of(job: Line) -> str:
    """Where the application counts what would be billed."""
    return str(Path(job["folder"]) / APPLICATION_LEDGER)


def say(**line: Any) -> None:
    """Tell the parent something, at once."""
    os.write(sys.stdout.fileno(), json.dumps(line).encode() + b"\n")


def act(play: Callable[[Stage, Line], Awaitable[None]]) -> None:
    """Be a child: hear the job, and play until it is over or the parent is."""
    # A terminal sends it to all processes; the parent ends its children in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def run() -> None:
        stage = await Stage.open()
        job = await stage.hear()
        if job is not None:
            with contextlib.suppress(BrokenPipeError):
                await play(stage, job)

    uvloop.run(run())
