"""Receives in every way: queue, subscription, dead letters, sessions, deferral."""

from __future__ import annotations

import os

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageAlreadySettled, OperationTimeoutError

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]


def main() -> None:
    with ServiceBusClient.from_connection_string(CONNECTION, retry_total=0) as client:
        # The pair is made here.
        queue(client)
        subscription(client)
        sessions(client)


def queue(client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(text) for text in "abcd"])
    with (
        AutoLockRenewer() as renewer,
        client.get_queue_receiver(
            "orders", max_wait_time=5, auto_lock_renewer=renewer, prefetch_count=4
        ) as receiver,
    ):
        first = next(receiver)
        receiver.abandon_message(first)
        again = next(receiver)
        deferred = []
        for message in (again, *receiver.receive_messages(3, max_wait_time=5)):
            text = str(message)
            if text == "b":
                receiver.dead_letter_message(
                    message, reason="why", error_description="x"
                )
            elif text == "c":
                assert message.sequence_number is not None
                deferred.append(message.sequence_number)
                receiver.defer_message(message)
            else:
                receiver.complete_message(message)
            print(text, message.delivery_count)
        try:
            receiver.complete_message(again)
        except MessageAlreadySettled as error:
            print(type(error).__name__)
        for message in receiver.receive_deferred_messages(deferred):
            print("deferred", message)
            receiver.complete_message(message)
        print("left", receiver.receive_messages(max_wait_time=0.5))
    with client.get_queue_receiver(
        "orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5
    ) as dead:
        message = next(dead)
        print("dead", message, message.dead_letter_reason)
        dead.complete_message(message)


def subscription(client: ServiceBusClient) -> None:
    with client.get_topic_sender("events") as sender:
        sender.send_messages(
            ServiceBusMessage("large", application_properties={"amount": 11})
        )
        sender.send_messages(
            ServiceBusMessage("small", application_properties={"amount": 9})
        )
    for name in ("large", "all"):
        with client.get_subscription_receiver(
            "events",
            name,
            receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
            max_wait_time=1,
        ) as receiver:
            print(name, [str(message) for message in receiver])


def sessions(client: ServiceBusClient) -> None:
    with client.get_queue_sender("sessions") as sender:
        for session in ("red", "blue"):
            sender.send_messages(
                [
                    ServiceBusMessage(f"{session} {i}", session_id=session)
                    for i in (1, 2)
                ]
            )
    with client.get_queue_receiver(
        "sessions", session_id="blue", max_wait_time=1
    ) as receiver:
        receiver.session.set_state("half way")
        for message in receiver:
            print(message, message.session_id)
            receiver.complete_message(message)
        print(receiver.session.get_state())
    with client.get_queue_receiver(
        "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
    ) as receiver:
        print(receiver.session.session_id)
        for message in receiver:
            receiver.complete_message(message)
    try:
        with client.get_queue_receiver(
            "sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
        ) as receiver:
            receiver.receive_messages()
    except OperationTimeoutError as error:
        print(type(error).__name__)
