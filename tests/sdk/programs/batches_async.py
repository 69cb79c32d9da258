"""Fills batches from an event loop."""

from __future__ import annotations

import os

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageSizeExceededError

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]
KIB = 1024


async def main() -> None:
    async with ServiceBusClient.from_connection_string(CONNECTION) as client:
        # The pair is made here.
        async with client.get_topic_sender("events") as sender:
            batch = await sender.create_message_batch()
            print("limit", batch.max_size_in_bytes)
            try:
                while True:
                    batch.add_message(
                        ServiceBusMessage(
                            "x" * 20 * KIB, application_properties={"n": len(batch)}
                        )
                    )
            except MessageSizeExceededError:
                print("full with", len(batch))
            await sender.send_messages(batch)
        numbers: list[object] = []
        async with client.get_subscription_receiver(
            "events", "all", receive_mode="receiveanddelete", max_wait_time=5
        ) as receiver:
            while len(numbers) < len(batch):
                for message in await receiver.receive_messages(max_message_count=50):
                    assert message.application_properties is not None
                    numbers.append(message.application_properties[b"n"])
        print("received", numbers)
