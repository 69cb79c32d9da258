"""The backlog queues of a secondary, looked at over AMQP alone.

Owns three questions. Which are there: as `pairing/pump/finding.py` finds them. How much
is left in one: by the numbers of its first and last message, which a few peeks find at
any depth. And is there nothing at all: a peek shows what is ready and what is locked,
so an empty answer means drained. Needs the right to listen and no other. Also waits for
the first message without taking it.

Knows nothing about Spark, nor what becomes of messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.client.receiver import Receiver
from twinbus.errors import RemoteError
from twinbus.pairing.pump.finding import find_indexes
from twinbus.pairing.rules.naming import backlog_path
from twinbus.pairing.rules.retry import is_ended_poll


def is_active(message: Message) -> bool:
    """Whether a message is ready or locked; not deferred, nor scheduled."""
    return message.state == "active"


class Backlog:
    """The backlog queues of one primary on one secondary."""

    def __init__(self, connection: Connection, primary: str) -> None:
        self._connection = connection
        self._primary = primary

    def path(self, index: int) -> str:
        """The path of one of them."""
        return backlog_path(self._primary, index)

    # -- which -------------------------------------------------------------------------

    async def find(self) -> list[int]:
        """The indexes that exist. Opens links and asks for nothing."""
        return await find_indexes(self._connection, self._primary)

    # -- how much ----------------------------------------------------------------------

    async def depths(self, indexes: Iterable[int]) -> dict[int, int]:
        """How many messages each holds at most, ready and locked ones."""
        listed = list(indexes)
        found = await asyncio.gather(*(self._depth(index) for index in listed))
        return dict(zip(listed, found, strict=True))

    async def empty(self, indexes: Iterable[int]) -> set[int]:
        """Those that hold nothing, ready or locked."""
        listed = list(indexes)
        first = await asyncio.gather(*(self._first(index) for index in listed))
        return {
            index for index, found in zip(listed, first, strict=True) if found is None
        }

    async def _first(self, index: int) -> int | None:
        """The number of the first message that is ready or locked."""
        management = self._connection.management(self.path(index))
        start, count = 1, 1
        while page := await management.peek(count, start):
            for message in page:
                if is_active(message):
                    return message.sequence_number
            start, count = page[-1].sequence_number + 1, limits.PEEK_MESSAGES_MAX
        return None

    async def _depth(self, index: int) -> int:
        first = await self._first(index)
        if first is None:
            return 0
        management = self._connection.management(self.path(index))
        last, beyond, stride = first, None, 1
        # Numbers have no gaps but those of messages that are gone.
        while beyond is None or last + 1 < beyond:
            number = last + stride if beyond is None else (last + beyond) // 2
            number = max(number, last + 1)
            page = await management.peek(1, number)
            if page:
                last = page[-1].sequence_number
                stride *= 2
            else:
                beyond = number
        return last - first + 1

    # -- when --------------------------------------------------------------------------

    async def wait(self, indexes: Collection[int], seconds: float) -> set[int]:
        """Wait until something can be received, and leave it there.

        One receive for each queue, over early where a service ends idle links. What
        arrives is released, uncounted. Returns where it was; nothing if nothing came.
        """
        receivers = {
            index: self._connection.receiver(self.path(index)) for index in indexes
        }
        waits = {
            asyncio.ensure_future(_poll(receiver, seconds)): index
            for index, receiver in receivers.items()
        }
        try:
            arrived: set[int] = set()
            # Those that end empty in the same moment are no reason to stop waiting.
            while not arrived and waits:
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    index = waits.pop(each)
                    messages = each.result()
                    if messages:
                        arrived.add(index)
                        await receivers[index].release(messages)
            return arrived
        finally:
            await _end(waits, receivers.values())


async def _poll(receiver: Receiver, seconds: float) -> list[Message]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        return await receiver.receive(1, seconds)
    except RemoteError as error:
        if is_ended_poll(error, round((loop.time() - began) * 1000)):
            return []
        raise


async def _end(
    waits: Iterable[asyncio.Future[list[Message]]], receivers: Iterable[Receiver]
) -> None:
    """Take back the credit, and give back what came with it."""
    waits = list(waits)
    for each in waits:
        each.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    closing = (receiver.close(limits.CLIENT_DRAIN_SECONDS) for receiver in receivers)
    await asyncio.gather(*closing, return_exceptions=True)
