"""Sends from an event loop: single messages, lists, many tasks with one sender."""

from __future__ import annotations

import asyncio
import os

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]


async def main() -> None:
    async with ServiceBusClient.from_connection_string(CONNECTION) as client:
        # The pair is made here.
        async with client.get_queue_sender("orders") as sender:
            print(sender.entity_name, sender.fully_qualified_namespace.split(":")[0])
            await sender.send_messages(ServiceBusMessage("one", message_id="1"))
            await sender.send_messages(
                [ServiceBusMessage(f"list {i}", message_id=f"l{i}") for i in range(3)]
            )
            await sender.send_messages({"body": "a dict", "message_id": "d"})
            # A sender of the official client is not safe for several tasks at once.
            turn = asyncio.Lock()

            async def work(number: int) -> None:
                message = ServiceBusMessage(f"task {number}", message_id=f"t{number}")
                async with turn:
                    await sender.send_messages(message)

            await asyncio.gather(*(work(number) for number in range(20)))
        await receive(client, 25)


async def receive(client: ServiceBusClient, count: int) -> None:
    found: list[str] = []
    async with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        async for message in receiver:
            found.append(f"{message.message_id} {message}")
            await receiver.complete_message(message)
            if len(found) == count:
                break
    print("\n".join(found))
