"""The official async client under measurement: one sender for each task.

Takes the commands of `bench.task_worker`. Its senders are not made for several tasks at
once, so each task has its own. Batches are filled by `create_message_batch`, as its
documentation shows, and every received message is completed by a call of its own, as
there is no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from bench.target import QUEUE, Target
from bench.task_worker import (
    BATCH,
    WAIT_SECONDS,
    Content,
    Make,
    send_made,
    share,
)


class SdkClient:
    """The client with its links."""

    def __init__(self, target: Target) -> None:
        assert target.connection_string is not None
        text = target.connection_string
        self._client = ServiceBusClient.from_connection_string(text)
        self._senders: list[Any] = []
        self._receiver = self._client.get_queue_receiver(QUEUE)

    async def open(self, tasks: int) -> None:
        """Make as many senders as there are tasks, and link them."""
        while len(self._senders) < tasks:
            sender = self._client.get_queue_sender(QUEUE)
            await sender.__aenter__()
            self._senders.append(sender)

    def message(self, content: Content) -> ServiceBusMessage:
        """A message of its own class."""
        return ServiceBusMessage(content.body, message_id=content.message_id)

    async def send(
        self, given: Sequence[Any], make: Make, size: int, tasks: int
    ) -> None:
        """Send so many messages a call, each call awaited, in so many tasks."""
        parts = zip(self._senders, share(given, tasks), strict=False)
        sends = [send_made(sender, part, size, make) for sender, part in parts]
        await asyncio.gather(*sends)

    async def receive(self, count: int) -> None:
        """Receive in chunks and complete every message."""
        rest = count
        while rest:
            taken = await self._receiver.receive_messages(
                max_message_count=min(rest, BATCH), max_wait_time=WAIT_SECONDS
            )
            assert taken, f"{rest} of {count} messages did not come"
            for message in taken:
                await self._receiver.complete_message(message)
            rest -= len(taken)

    async def close(self) -> None:
        for sender in self._senders:
            await sender.close()
        await self._receiver.close()
        await self._client.close()
