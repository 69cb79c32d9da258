"""Sends everything that a sender takes, and prints what arrives."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

CONNECTION = os.environ["SERVICEBUS_CONNECTION_STR"]
LONG_AGO = datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC)


def single() -> ServiceBusMessage:
    return ServiceBusMessage(
        "an order",
        application_properties={
            "text": "größer",
            "number": 7,
            "negative": -1,
            "ratio": 0.5,
            "yes": True,
            "bytes": b"bytes",
            "when": LONG_AGO,  # type: ignore[dict-item]
            "id": uuid.UUID(int=7),
        },
        content_type="text/plain",
        correlation_id="correlation",
        message_id="first",
        partition_key="partition",
        reply_to="replies",
        reply_to_session_id="answers",
        subject="order",
        time_to_live=timedelta(hours=1),
        to="recipient",
    )


def main() -> None:
    with ServiceBusClient.from_connection_string(CONNECTION) as client:
        # The pair is made here.
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(single())
            sender.send_messages(ServiceBusMessage(b"bytes \x00", message_id="2"))
            sender.send_messages(
                [ServiceBusMessage(f"list {i}", message_id=f"l{i}") for i in range(3)]
            )
            sender.send_messages(
                ServiceBusMessage(f"made {i}", message_id=f"g{i}") for i in range(2)
            )
            sender.send_messages({"body": "a dict", "message_id": "d"})
            sender.send_messages([])
            sender.send_messages(
                [
                    annotated("a1", data_body=[b"one", b"two"]),
                    annotated("a2", value_body={"key": [1, "two", None]}),
                    annotated("a3", sequence_body=[[1, 2], ["x"]]),
                ]
            )
            sender.send_messages(ServiceBusMessage(None, message_id="empty"))
        with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
            for count, message in enumerate(receiver, 1):
                show(message)
                receiver.complete_message(message)
                if count == 12:
                    break


def annotated(message_id: str, **body: Any) -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(
        properties=AmqpMessageProperties(message_id=message_id, subject="annotated"),
        application_properties={"kind": "annotated"},
        **body,
    )


def show(message: ServiceBusMessage) -> None:
    raw = message.raw_amqp_message
    body = raw.body if raw.body_type.name == "VALUE" else list(raw.body)
    print(message.message_id, raw.body_type.name, body)
    print("  application:", sorted((message.application_properties or {}).items()))
    for name in (
        "content_type",
        "correlation_id",
        "partition_key",
        "reply_to",
        "reply_to_session_id",
        "session_id",
        "subject",
        "time_to_live",
        "to",
        "scheduled_enqueue_time_utc",
    ):
        print(f"  {name}: {getattr(message, name)}")
    print("  header:", raw.header and (raw.header.durable, raw.header.priority))
