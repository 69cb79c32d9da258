"""`twinbus syphon --engine application`: drain inside this process, without Spark.

Owns the pumps of one run, one for each backlog queue, and when it is over: all queues
are empty, or a person stops it. Messages that a destination does not take now stay
locked in their queue, so such a queue is not empty. There are no receipts: if this
process is killed, what it had sent and not yet completed is sent again.
How messages are moved is `pairing/pump/`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.cli.pair.syphon_view import PumpWatch, Snapshot
from twinbus.errors import TwinbusError
from twinbus.pairing.pump.destinations import Senders
from twinbus.pairing.pump.pump import Pump, PumpSettings
from twinbus.spark.syphon_job.backlog import Backlog

if TYPE_CHECKING:
    from twinbus.spark.syphon_job.driver import SyphonJob


async def depth_of(job: SyphonJob, indexes: list[int]) -> int:
    """How many messages wait in these backlog queues, at most."""
    async with job.secondary.connection() as connection:
        connection.timeout_seconds = limits.CLI_NAMESPACE_SECONDS
        depths = await Backlog(connection, job.settings.primary).depths(indexes)
    return sum(depths.values())


class ApplicationSyphon:
    """Drains the backlog queues of a pair, in one event loop."""

    def __init__(
        self, job: SyphonJob, indexes: list[int], *, until_empty: bool
    ) -> None:
        self._job = job
        self._indexes = indexes
        self._until_empty = until_empty

    async def run(
        self, show: Callable[[Snapshot], None], stopped: Callable[[], bool]
    ) -> tuple[Snapshot, bool]:
        """Drain; returns the last look, and whether it ended by itself.

        `show` gets each look. `stopped` says whether a person wants it to end.
        """
        job, settings = self._job, self._job.settings
        async with (
            job.secondary.connection() as source,
            job.primary.connection() as primary,
        ):
            target = Senders(primary)
            backlog = Backlog(source, settings.primary)
            pumping = PumpSettings(chunk=settings.chunk, ttl_rule=settings.ttl_rule)
            pumps = {
                index: Pump(source, target, backlog.path(index), pumping)
                for index in self._indexes
            }
            watch = PumpWatch(pumps, await backlog.depths(self._indexes))
            tasks = [asyncio.create_task(pump.run()) for pump in pumps.values()]
            try:
                ended = await self._until_end(backlog, watch, tasks, show, stopped)
            finally:
                await asyncio.gather(*(pump.stop() for pump in pumps.values()))
                await asyncio.gather(*tasks, return_exceptions=True)
                await target.close()
            watch.depths = await _depths(backlog, self._indexes)
            return watch.look(time.time()), ended

    async def _until_end(
        self,
        backlog: Backlog,
        watch: PumpWatch,
        tasks: list[asyncio.Task[None]],
        show: Callable[[Snapshot], None],
        stopped: Callable[[], bool],
    ) -> bool:
        while not stopped():
            done, _ = await asyncio.wait(
                tasks,
                timeout=limits.CLI_LOOK_SECONDS,
                return_when=asyncio.FIRST_EXCEPTION,
            )
            for task in done:
                task.result()
            show(watch.look(time.time()))
            if self._until_empty and await self._is_empty(backlog):
                return True
        return False

    async def _is_empty(self, backlog: Backlog) -> bool:
        try:
            empty = await backlog.empty(self._indexes)
        except TwinbusError:
            # The secondary is away for a moment; the pumps connect again.
            return False
        return empty == set(self._indexes)


async def _depths(backlog: Backlog, indexes: list[int]) -> dict[int, int] | None:
    try:
        return await backlog.depths(indexes)
    except TwinbusError:
        return None
