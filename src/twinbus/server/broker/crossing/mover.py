"""Carries parcels between the shards of a namespace.

One task for each pair of shards that has something to carry: it reads in a turn of the
source, has it applied in a turn of the target, and goes on until nothing is left. Pairs
do not wait for each other, so a shard that has stopped holds up only what is for it.
What was posted for it is carried when it accepts again. Owns no state that must
survive: numbers in both stores say what was applied (`outbox.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from twinbus.errors import StoreFault, TwinbusError
from twinbus.server.broker.crossing.outbox import ApplyPosted, TakePosted, check_numbers
from twinbus.server.broker.crossing.parcels import spooled_for
from twinbus.store.base import Posted

if TYPE_CHECKING:
    from twinbus.server.broker.host import Host

log = logging.getLogger("twinbus.mover")


class Mover:
    """The tasks that carry parcels between hosts."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        # Pairs that were asked for while their task ran.
        self._asked: set[tuple[int, int]] = set()
        # Pairs whose target has refused; they wait until a host accepts again.
        self._stuck: set[tuple[int, int]] = set()
        # Pairs whose numbers are compared first: the target was opened late.
        self._unchecked: set[tuple[int, int]] = set()
        self._closing = False

    def look(self, source: Host) -> None:
        """A turn of that host is on disk: carry what it has for others."""
        for target, counts in source.namespace.store.outbox().items():
            if counts.rows:
                self._start(source.namespace.shard, target)

    def accepts_again(self, late: Host | None = None) -> None:
        """A host that had stopped goes on, and may have been opened only now."""
        self._stuck.clear()
        if late is not None:
            target = late.namespace.shard
            for host in self._hosts:
                if host is not late and host.fault is None:
                    pair = (host.namespace.shard, target)
                    self._unchecked.add(pair)
                    self._start(*pair)
        for host in self._hosts:
            if host.fault is None:
                self.look(host)

    async def settle(self, source: Host | None = None) -> None:
        """Wait until nothing is on its way, but for what stopped shards hold up.

        With a source, what other hosts have posted is not waited for.
        """
        if source is None:
            self.accepts_again()
        shard = None if source is None else source.namespace.shard
        while tasks := [
            task for pair, task in self._tasks.items() if shard in (None, pair[0])
        ]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop. What is not applied is carried after the next start."""
        self._closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, source: int, target: int) -> None:
        pair = (source, target)
        if pair in self._tasks:
            self._asked.add(pair)
        if pair in self._tasks or pair in self._stuck or self._closing:
            return
        if target >= len(self._hosts) or target == source:
            log.error("shard %d has parcels for shard %d, which is not there", *pair)
            self._stuck.add(pair)
            return
        if self._hosts[target].namespace.store.is_nearly_full():
            # Looked at again after the next turn of a shard that has parcels for it.
            return
        task = asyncio.get_running_loop().create_task(self._carry(source, target))
        self._tasks[pair] = task

    def _look_at_spool(
        self, target: int, posted: Sequence[Posted] = (), applied: int = 0
    ) -> None:
        spool = self._hosts[target].spool
        if spool is None:
            return
        for row in posted:
            key = spooled_for(row.kind)
            if key is not None and row.number <= applied:
                spool.add(key, -len(row.body))
        spool.look()

    async def _carry(self, source: int, target: int) -> None:
        pair = (source, target)
        applied = 0
        self._asked.discard(pair)
        try:
            if pair in self._unchecked:
                self._unchecked.discard(pair)
                known = self._hosts[target].namespace.store.applied(source)
                check = partial(check_numbers, target=target, applied=known)
                await self._hosts[source].run(lambda namespace, _: check(namespace))
            while True:
                posted = await self._hosts[source].run(TakePosted(target, applied))
                if not posted:
                    break
                apply = ApplyPosted(source, posted)
                size_bytes = sum(len(row.body) for row in posted)
                applied = await self._hosts[target].run(apply, size_bytes)
                self._look_at_spool(target, posted, applied)
                if self._hosts[target].namespace.store.is_nearly_full():
                    # What is left of its disk is for receivers that empty it.
                    break
        except StoreFault:
            # Its host says when it goes on.
            self._stuck.add(pair)
        except TwinbusError:
            log.exception("from shard %d to shard %d nothing is carried", *pair)
            self._stuck.add(pair)
        finally:
            del self._tasks[pair]
        self._look_at_spool(target)
        # Something may have come after the last look.
        if pair in self._asked:
            self.look(self._hosts[source])
