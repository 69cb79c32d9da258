"""Schedules from an event loop."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]


async def main() -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    async with ServiceBusClient.from_connection_string(CONNECTION) as client:
        # The pair is made here.
        async with client.get_topic_sender("events") as sender:
            numbers = await sender.schedule_messages(
                [ServiceBusMessage("one"), ServiceBusMessage("two")],
                later,
                timeout=10,
            )
            print(len(numbers), [type(number).__name__ for number in numbers])
            await sender.cancel_scheduled_messages(numbers)
            await sender.schedule_messages(
                ServiceBusMessage("three"), datetime.now(UTC)
            )
        async with client.get_subscription_receiver(
            "events", "all", max_wait_time=5
        ) as receiver:
            message = await anext(receiver)
            print(message)
            await receiver.complete_message(message)
