"""Our client under measurement: one connection and one sender, whatever the tasks.

Takes the commands of `bench.task_worker`. What it is given is a body and an id; that
they become an encoded message is part of what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bench.target import QUEUE, Target
from bench.task_worker import BATCH, WAIT_SECONDS, Content, Make, share
from twinbus.client.connection import Connection
from twinbus.wire.message.sections import MESSAGE_ID, encode_message


class OurClient:
    """The client with its links."""

    def __init__(self, target: Target) -> None:
        assert target.connection_string is not None
        self._connection = Connection.from_connection_string(target.connection_string)
        self._sender = self._connection.sender(QUEUE)
        self._receiver = self._connection.receiver(QUEUE)

    async def open(self, tasks: int) -> None:
        """Connect and link; any number of tasks share what there is."""
        del tasks
        await self._sender.open()

    def message(self, content: Content) -> bytes:
        """An encoded message."""
        return encode_message(content.body, {MESSAGE_ID: content.message_id})

    async def send(
        self, given: Sequence[Any], make: Make, size: int, tasks: int
    ) -> None:
        """Send so many messages a call, each call awaited, in so many tasks."""
        parts = share(given, tasks)
        await asyncio.gather(*(self._send(part, make, size) for part in parts))

    async def _send(self, given: Sequence[Any], make: Make, size: int) -> None:
        if size == 1:
            for each in given:
                await self._sender.send(make(each))
            return
        for at in range(0, len(given), size):
            await self._sender.send([make(each) for each in given[at : at + size]])

    async def receive(self, count: int) -> None:
        """Receive in chunks and complete all of them."""
        rest = count
        while rest:
            taken = await self._receiver.receive(min(rest, BATCH), WAIT_SECONDS)
            assert taken, f"{rest} of {count} messages did not come"
            await self._receiver.complete(taken)
            rest -= len(taken)

    async def close(self) -> None:
        await self._connection.close()
