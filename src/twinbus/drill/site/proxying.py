"""The proxy of a drill: a process before a namespace that cuts it off on command.

Owns the conversation with it, one command and one answer at a time. What a proxy can do
is `twinbus proxy`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from twinbus import limits
from twinbus.drill.children import Child, DrillFailed, Line

_COMMAND_LINE = "twinbus.cli.main"
# The word of the proxy for each kind of cut.
_CUTS = {"refuse": "cut", "silence": "silence"}


class DrillProxy:
    """A proxy before one port."""

    def __init__(self, name: str, folder: Path) -> None:
        self._child = Child(name, folder, self._heard)
        self._answers: asyncio.Queue[Line] = asyncio.Queue()

    async def start(self, run: str, host: str, port: int) -> int:
        """Start it before this port; returns its own."""
        words = ("proxy", "0", f"{host}:{port}", "--json")
        await self._child.start(run, _COMMAND_LINE, *words)
        answer = await self._answer()
        own: int = answer["port"]
        return own

    async def cut(self, how: str) -> None:
        """Cut the namespace off."""
        await self._ask(_CUTS[how])

    async def heal(self) -> None:
        """Let everything through again."""
        await self._ask("heal")

    async def end(self) -> None:
        await self._child.end()

    async def _ask(self, word: str) -> None:
        self._child.tell(do=word)
        answer = await self._answer()
        if not answer.get("ok"):
            raise DrillFailed(f"The proxy says: {answer.get('error')}")

    def _heard(self, _: Child, line: Line) -> None:
        self._answers.put_nowait(line)

    async def _answer(self) -> Line:
        try:
            return await asyncio.wait_for(
                self._answers.get(), limits.DRILL_PROXY_SECONDS
            )
        except TimeoutError:
            raise DrillFailed("The proxy does not answer.") from None
