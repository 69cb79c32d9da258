"""The backlog that the syphon's bench drains, and how long its way home took.

Owns filling ten backlog queues as a paired sender does, and reading the time from the
first moved message to the last. Those two are times of the primary itself: when it took
the first and the last message. So nothing is asked while something is measured, and
what a syphon needs to start is not counted.
"""

from __future__ import annotations

import asyncio
import os
import time
from itertools import islice

from bench.messages import messages
from bench.target import QUEUE, Target
from twinbus.client.connection import Connection
from twinbus.pairing.rules.envelope import divert
from twinbus.pairing.rules.naming import backlog_path

# What stands for the primary in the paths of its backlog queues.
PRIMARY = "contoso"
QUEUES = tuple(backlog_path(PRIMARY, index) for index in range(10))
# Repeated as often as it takes.
_DIFFERENT = 2_000
_BATCH = 200
_DELETE_MAX = 4_000
# What is enqueued in the same millisecond is deleted as well.
_MARGIN_MS = 1_000


class Backlog:
    """Messages for one queue of the primary, on the secondary."""

    def __init__(self, primary: Target, secondary: Target, count: int) -> None:
        self.count = count - count % len(QUEUES)
        self._primary = primary
        self._secondary = secondary

    def fill(self) -> None:
        """Divert the messages, as many into each queue."""
        asyncio.run(self._fill())
        # What was written goes to the disk now, and not while something is measured.
        os.sync()

    def way_home_seconds(self) -> float:
        """From the first moved message to the last; then the primary is emptied.

        Fails unless each of them came, and once.
        """
        return asyncio.run(self._way_home_seconds())

    async def _fill(self) -> None:
        async with _connection(self._secondary) as connection:
            for path in QUEUES:
                await self._fill_one(connection, path, self.count // len(QUEUES))

    async def _fill_one(self, connection: Connection, path: str, count: int) -> None:
        now_ms = _now_ms()
        async with connection.sender(path) as sender:
            await sender.open()
            diverted = [
                divert(message, QUEUE, now_ms)
                for message in messages(min(count, _DIFFERENT))
            ]
            left = count
            while left:
                for at in range(0, min(left, len(diverted)), _BATCH):
                    batch = list(islice(diverted, at, min(at + _BATCH, left)))
                    await sender.send(batch)
                left -= min(left, len(diverted))

    async def _way_home_seconds(self) -> float:
        async with _connection(self._primary) as connection:
            management = connection.management(QUEUE)
            (first,) = await management.peek(1)
            end = first.sequence_number + self.count
            last, *more = await management.peek(2, end - 1)
            assert last.sequence_number == end - 1, "not all messages came home"
            assert not more, "some messages came home twice"
            deleted = 0
            while part := await management.delete(_DELETE_MAX, _now_ms() + _MARGIN_MS):
                deleted += part
            assert deleted == self.count, f"{deleted} of {self.count} came home"
        assert first.enqueued_ms is not None
        assert last.enqueued_ms is not None
        return (last.enqueued_ms - first.enqueued_ms) / 1000


def _connection(target: Target) -> Connection:
    assert target.connection_string is not None
    return Connection.from_connection_string(target.connection_string)


def _now_ms() -> int:
    return int(time.time() * 1000)
