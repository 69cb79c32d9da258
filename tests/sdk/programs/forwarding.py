"""Sends what it has received on to another place, and the same message twice."""

from __future__ import annotations

import os

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]


def main() -> None:
    with ServiceBusClient.from_connection_string(CONNECTION) as client:
        # The pair is made here.
        again = ServiceBusMessage(
            "again",
            message_id="same",
            application_properties={"amount": 12, "kind": "x"},
            subject="subject",
        )
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(again)
            sender.send_messages([again, again])
            print(again.message_id, again.application_properties, again)
        with (
            client.get_queue_receiver("orders", max_wait_time=5) as receiver,
            client.get_topic_sender("events") as topic,
        ):
            first, second, third = take(receiver, 3)
            topic.send_messages(first)
            topic.send_messages([second])
            batch = topic.create_message_batch()
            batch.add_message(third)
            topic.send_messages(batch)
            for message in (first, second, third):
                receiver.complete_message(message)
        with client.get_subscription_receiver(
            "events", "large", max_wait_time=5
        ) as receiver:
            for message in take(receiver, 3):
                print(message.message_id, message.application_properties, message)
                print(message.subject, message.delivery_count, message.to)
                receiver.complete_message(message)
        with client.get_subscription_receiver(
            "events", "all", receive_mode="receiveanddelete", max_wait_time=5
        ) as receiver:
            print([str(message) for message in take(receiver, 3)])


def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        found += receiver.receive_messages(count - len(found), max_wait_time=5)
    return found
