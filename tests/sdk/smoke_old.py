"""A short walk through one queue with whatever azure-servicebus runs this file.

Run by the Python of an older client's environment, not by pytest's:

    smoke_old.py CONNECTION_STRING QUEUE SESSION_QUEUE [CA_FILE]

Imports nothing of the project. Older clients read some frames by position, so this
stops with an error where the server leaves out a field.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)

WAIT_SECONDS = 10


def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """Receive a message."""
    (message,) = receiver.receive_messages(1, WAIT_SECONDS)
    return message


def send_and_complete(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("single"))
        sender.send_messages(
            [ServiceBusMessage("list"), ServiceBusMessage("x" * 200_000)]
        )
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("batch"))
        sender.send_messages(batch)
    with client.get_queue_receiver(queue) as receiver:
        for body in ("single", "list", "x" * 200_000, "batch"):
            message = one(receiver)
            assert str(message) == body, str(message)[:40]
            receiver.complete_message(message)
        assert receiver.peek_messages(10, sequence_number=1) == []


def settle(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("a"))
    with client.get_queue_receiver(queue) as receiver:
        receiver.abandon_message(one(receiver))
        message = one(receiver)
        assert message.delivery_count == 1, message.delivery_count
        receiver.renew_message_lock(message)
        receiver.defer_message(message)
        number = message.sequence_number
        assert number is not None
        (deferred,) = receiver.receive_deferred_messages([number])
        receiver.dead_letter_message(deferred, reason="r", error_description="d")
    with client.get_queue_receiver(queue, sub_queue="deadletter") as receiver:
        message = one(receiver)
        assert message.dead_letter_reason == "r", message.dead_letter_reason
        receiver.complete_message(message)


def schedule_and_peek(client: ServiceBusClient, queue: str) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    with client.get_queue_sender(queue) as sender:
        numbers = sender.schedule_messages(
            [ServiceBusMessage("later"), ServiceBusMessage("never")], due
        )
        sender.cancel_scheduled_messages(numbers[1])
        with client.get_queue_receiver(queue) as receiver:
            (peeked,) = receiver.peek_messages(10, sequence_number=1)
            assert str(peeked) == "later", str(peeked)
        sender.cancel_scheduled_messages(numbers[0])


def hold_a_session(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("a", session_id="s"))
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        receiver.session.set_state(b"state")
        assert receiver.session.get_state() == b"state"
        receiver.session.renew_lock()
        receiver.complete_message(one(receiver))


def main() -> None:
    text, queue, session_queue, *ca_files = sys.argv[1:]
    options: dict[str, Any] = {"connection_verify": ca_files[0]} if ca_files else {}
    with ServiceBusClient.from_connection_string(
        text, retry_total=0, **options
    ) as client:
        send_and_complete(client, queue)
        settle(client, queue)
        schedule_and_peek(client, queue)
        hold_a_session(client, session_queue)
    print("ok")


if __name__ == "__main__":
    main()
