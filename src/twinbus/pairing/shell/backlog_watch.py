"""Whether somebody drains the backlog.

Messages that were diverted come home only if some process runs the syphon. Once a pair
has diverted something, this looks from time to time: when the entities are well and the
backlog is as long as before, nobody drains it, and the application is told. It stops
when the backlog is empty. Looks seldom, because each look costs an operation per queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from twinbus import limits
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules.policy import State
from twinbus.pairing.shell.pair import Pair

_LOGGER = logging.getLogger("twinbus.pairing")


class BacklogWatch:
    """Looks after the backlog of one pair that runs no syphon of its own."""

    def __init__(self, pair: Pair, waiting: Callable[[], Awaitable[int]]) -> None:
        self._pair = pair
        # How many messages the backlog holds.
        self._waiting = waiting
        self._task: asyncio.Task[None] | None = None
        pair.on_diverted = self.begin

    def begin(self) -> None:
        """Something was diverted: look from now on."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())

    def stop(self) -> None:
        """Nobody wants to know any more."""
        self._pair.on_diverted = None
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        before: int | None = None
        while before != 0:
            await asyncio.sleep(limits.BACKLOG_LOOK_SECONDS)
            if not self._all_well():
                before = None
                continue
            try:
                count = await self._waiting()
            except Exception as error:  # noqa: BLE001
                # The next look may succeed; until then nothing is known.
                _LOGGER.info("The backlog could not be counted: %s", error)
                continue
            if before is not None and 0 < before <= count:
                self._tell(count)
            before = count

    def _all_well(self) -> bool:
        states = (each.state for each in self._pair.policy.entities())
        return all(state is State.HEALTHY for state in states)

    def _tell(self, count: int) -> None:
        pair = self._pair
        details = {"messages": count, "remedy": "run the syphon"}
        pair.telling.tell(
            PairingEvent(
                EventKind.BACKLOG_STAYS,
                pair.label,
                pair.clock.now_ms(),
                details=details,
            )
        )
