"""Fills batches to the brim, as the official samples do."""

from __future__ import annotations

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]
KIB = 1024


def main() -> None:
    with ServiceBusClient.from_connection_string(CONNECTION) as client:
        # The pair is made here.
        with client.get_queue_sender("orders") as sender:
            sent = 0
            batch = sender.create_message_batch()
            print("limit", batch.max_size_in_bytes)
            for index in range(12):
                message = ServiceBusMessage("x" * 60 * KIB, message_id=str(index))
                try:
                    batch.add_message(message)
                except MessageSizeExceededError as error:
                    print("full with", len(batch), isinstance(error, ValueError))
                    sender.send_messages(batch)
                    sent += len(batch)
                    batch = sender.create_message_batch()
                    batch.add_message(message)
            sender.send_messages(batch)
            print("sent", sent + len(batch))
            small = sender.create_message_batch(max_size_in_bytes=1000)
            small.add_message({"body": "small"})
            print("small", len(small), small.max_size_in_bytes)
            try:
                small.add_message(ServiceBusMessage("y" * 1000))
            except ValueError as error:
                print("refused", type(error).__name__, len(small))
            sender.send_messages(small)
            sender.send_messages(sender.create_message_batch())
            try:
                sender.create_message_batch(max_size_in_bytes=10 * KIB * KIB)
            except ValueError as error:
                print(type(error).__name__, error)
            too_large(sender)
            long_list(sender)
        count(client, 19)


def too_large(sender: ServiceBusSender) -> None:
    try:
        sender.send_messages(ServiceBusMessage("z" * 300 * KIB))
    except MessageSizeExceededError as error:
        print("too large", type(error).__name__)


def long_list(sender: ServiceBusSender) -> None:
    messages = [ServiceBusMessage("l" * 60 * KIB) for _ in range(6)]
    try:
        sender.send_messages(messages)
    except MessageSizeExceededError:
        for message in messages:
            sender.send_messages(message)
        print("a long list: one by one")
    else:
        print("a long list: at once")


def count(client: ServiceBusClient, expected: int) -> None:
    sizes: list[int] = []
    with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        for message in receiver:
            sizes.append(len(str(message)))
            receiver.complete_message(message)
            if len(sizes) == expected:
                break
    print("received", sizes)
