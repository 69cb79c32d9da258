"""Sends through the official clients: shapes, sizes, and what the server refuses."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from tests.sdk import declared
from tests.sdk.buses import Bus, number, outgoing, take, take_one

KIB = 1024
PING = "application/vnd.ms-servicebus-ping"


@declared.with_queue()
def test_single_messages_arrive(bus: Bus, queue: str) -> None:
    sender = bus.sender(queue)

    sender.send_messages(ServiceBusMessage("one"))
    sender.send_messages(ServiceBusMessage("two"))

    assert bus.drained(queue, 2) == ["one", "two"]


@declared.with_queue()
def test_a_list_arrives_in_order(bus: Bus, queue: str) -> None:
    bodies = [f"message {index}" for index in range(20)]

    bus.sender(queue).send_messages(outgoing(*bodies))

    assert bus.drained(queue, 20) == bodies


@declared.with_queue()
def test_a_batch_holds_as_much_as_a_message_may(bus: Bus, queue: str) -> None:
    sender = bus.sender(queue)
    batch = sender.create_message_batch()
    batch.add_message(ServiceBusMessage("x" * 100 * KIB))
    batch.add_message(ServiceBusMessage("y" * 100 * KIB))
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(ServiceBusMessage("z" * 100 * KIB))

    sender.send_messages(batch)

    assert batch.max_size_in_bytes == 256 * KIB
    assert [body[0] for body in bus.drained(queue, 2)] == ["x", "y"]


@declared.with_queue()
def test_a_batch_that_is_full_to_the_brim_is_taken(bus: Bus, queue: str) -> None:
    sender = bus.sender(queue)
    batch = sender.create_message_batch()
    with suppress(MessageSizeExceededError):
        while True:
            batch.add_message(ServiceBusMessage("x" * KIB))

    sender.send_messages(batch)

    assert len(bus.drained(queue, len(batch))) == len(batch) > 200


@declared.with_queue()
def test_messages_of_a_batch_keep_their_own_properties(bus: Bus, queue: str) -> None:
    bus.send(
        queue,
        ServiceBusMessage("a", message_id="1", subject="red", partition_key="p"),
        ServiceBusMessage("b", message_id="2", subject="blue", partition_key="p"),
    )

    received = take(bus.receiver(queue), 2)

    assert [(m.message_id, m.subject) for m in received] == [
        ("1", "red"),
        ("2", "blue"),
    ]
    assert [m.partition_key for m in received] == ["p", "p"]
    assert [number(m) for m in received] == [1, 2]


@declared.with_queue()
def test_a_received_message_can_be_sent_again_as_it_is(bus: Bus, queue: str) -> None:
    bus.send(queue, ServiceBusMessage("a", partition_key="p", subject="red"))
    receiver = bus.receiver(queue)
    message = take_one(receiver)
    receiver.complete_message(message)

    bus.sender(queue).send_messages(message)

    again = take_one(receiver)
    assert (str(again), again.partition_key, again.subject) == ("a", "p", "red")


@declared.with_queue()
def test_delivery_annotations_of_a_sender_reach_the_receiver(
    bus: Bus, queue: str
) -> None:
    mine = {"mine": 1}
    message = AmqpAnnotatedMessage(data_body=b"a", delivery_annotations=mine)
    bus.sender(queue).send_messages([message, message])
    bus.send(queue, "plain")
    deleting = bus.receiver(queue, receive_mode="receiveanddelete")

    locked = take_one(bus.receiver(queue)).raw_amqp_message.delivery_annotations
    deleted = [each.raw_amqp_message.delivery_annotations for each in take(deleting, 2)]

    assert locked is not None
    assert set(locked) == {b"x-opt-lock-token", b"mine"}
    assert locked[b"mine"] == 1
    assert deleted == [{b"mine": 1}, {}]


@declared.with_queue()
def test_an_empty_session_id_may_have_a_partition_key(bus: Bus, queue: str) -> None:
    message = AmqpAnnotatedMessage(
        data_body=b"a",
        properties={"group_id": ""},
        annotations={"x-opt-partition-key": "p"},
    )

    bus.sender(queue).send_messages(message)

    assert take_one(bus.receiver(queue)).partition_key == "p"


@declared.with_queue()
def test_a_large_message_comes_back_whole(bus: Bus, queue: str) -> None:
    body = "0123456789" * 20 * KIB

    bus.send(queue, body)

    assert bus.drained(queue, 1) == [body]


@declared.with_queue(max_message_size_in_kilobytes=2048)
def test_a_queue_may_take_larger_messages_than_others(bus: Bus, queue: str) -> None:
    body = "0123456789" * 150 * KIB

    bus.sender(queue).send_messages(ServiceBusMessage(body))

    assert bus.drained(queue, 1) == [body]


@declared.with_queue()
def test_a_message_over_the_limit_is_refused_alone(bus: Bus, queue: str) -> None:
    sender = bus.sender(queue)

    with pytest.raises(MessageSizeExceededError):
        sender.send_messages(ServiceBusMessage("x" * 300 * KIB))
    sender.send_messages(ServiceBusMessage("small"))

    assert bus.drained(queue, 1) == ["small"]


@declared.with_queue()
def test_every_plain_property_comes_back(bus: Bus, queue: str) -> None:
    properties: dict[str, Any] = {
        "message_id": "id",
        "correlation_id": "correlation",
        "subject": "subject",
        "to": "to",
        "reply_to": "reply",
        "reply_to_session_id": "reply session",
        "content_type": "text/plain",
        "session_id": "session",
    }
    life = timedelta(minutes=5)
    bus.send(queue, ServiceBusMessage("body", time_to_live=life, **properties))

    message = take_one(bus.receiver(queue))

    assert {name: getattr(message, name) for name in properties} == properties
    assert message.time_to_live == life


@declared.with_queue()
def test_the_server_adds_what_a_receiver_needs(bus: Bus, queue: str) -> None:
    # In this form the client adds nothing by itself.
    bus.sender(queue).send_messages(AmqpAnnotatedMessage(data_body=b"a"))

    message = take_one(bus.receiver(queue))

    # Settling in the JavaScript client needs an identifier, so there always is one.
    assert re.fullmatch("[0-9a-f]{32}", message.message_id or "")
    assert message.sequence_number == 1
    # Only a forwarded message has another number at its first entity.
    assert message.enqueued_sequence_number is None
    assert message.delivery_count == 0
    assert message.enqueued_time_utc is not None
    assert message.locked_until_utc is not None
    locked = message.locked_until_utc - message.enqueued_time_utc
    assert timedelta(seconds=59) < locked < timedelta(seconds=70)
    assert message.lock_token is not None
    annotations = message.raw_amqp_message.delivery_annotations or {}
    assert annotations[b"x-opt-lock-token"] == message.lock_token


@declared.with_queue()
def test_a_ping_is_accepted_and_never_delivered(bus: Bus, queue: str) -> None:
    ping = ServiceBusMessage("ping", content_type=PING)

    bus.send(queue, ping, "between", ping)
    bus.sender(queue).send_messages(ping)

    assert bus.left(queue) == ["between"]


@declared.with_queue(
    requires_duplicate_detection=True,
    duplicate_detection_history_time_window="PT5M",
)
def test_a_duplicate_is_accepted_and_dropped(bus: Bus, queue: str) -> None:
    bus.send(queue, ServiceBusMessage("first", message_id="a"))
    bus.send(queue, ServiceBusMessage("again", message_id="a"))
    bus.send(
        queue,
        ServiceBusMessage("other", message_id="b"),
        ServiceBusMessage("again", message_id="b"),
    )

    assert bus.left(queue) == ["first", "other"]


@declared.with_queue(max_size_in_megabytes=1)
def test_a_full_queue_refuses_until_there_is_room(bus: Bus, queue: str) -> None:
    sender = bus.sender(queue)
    large = ServiceBusMessage("x" * 200 * KIB)
    for _ in range(5):
        sender.send_messages(large)
    with pytest.raises(ServiceBusQuotaExceededError):
        sender.send_messages(large)

    bus.drained(queue, 1)

    sender.send_messages(large)


@declared.with_queue(message_rate_per_second=1)
def test_above_its_rate_a_queue_says_that_it_is_busy(bus: Bus, queue: str) -> None:
    # A full bucket lets a large batch through, which has to be paid back then.
    bus.send(queue, *["a"] * 30)

    with pytest.raises(ServiceBusServerBusyError):
        bus.send(queue, "b")

    assert bus.left(queue) == ["a"] * 30


@declared.with_queue(message_rate_per_second=5)
def test_a_client_that_retries_gets_through(bus: Bus, queue: str) -> None:
    client = bus.connect(
        bus.endpoint.connection_string, retry_total=3, retry_backoff_factor=0.5
    )
    sender = bus.keep(client.get_queue_sender(queue))

    sender.send_messages(outgoing(*["a"] * 8))
    sender.send_messages(outgoing("b"))

    assert bus.left(queue) == ["a"] * 8 + ["b"]


SLOW = declared.queue("slow")


def test_above_its_rate_a_namespace_says_that_it_is_busy(bus: Bus) -> None:
    client = bus.connect(bus.throttled.connection_string)
    sender = bus.keep(client.get_queue_sender(SLOW))

    sender.send_messages(outgoing(*["a"] * 30))

    with pytest.raises(ServiceBusServerBusyError):
        sender.send_messages(outgoing("b"))


# Both clients share the part that keeps to the window.
@pytest.mark.parametrize(
    "bus",
    [pytest.param("sync", marks=pytest.mark.campaign), "async"],
    indirect=True,
)
@declared.with_queue()
def test_a_sender_outlives_its_first_window(bus: Bus, queue: str) -> None:
    # The server announces a window of 5,000 transfers, and the client keeps to it.
    ping = ServiceBusMessage("ping", content_type=PING)
    sender = bus.sender(queue)

    for _ in range(5100):
        sender.send_messages(ping, timeout=30)


# What the client itself would refuse, so it is written in the protocol's own words.
BAD: dict[str, dict[str, Any]] = {
    "long message id": {"properties": {"message_id": "x" * 129}},
    "long session id": {"properties": {"group_id": "x" * 129}},
    "long partition key": {"annotations": {"x-opt-partition-key": "x" * 129}},
    "two keys": {
        "properties": {"group_id": "session"},
        "annotations": {"x-opt-partition-key": "another"},
    },
}
REFUSING = declared.queue("refusing")


@pytest.mark.parametrize("kind", BAD)
def test_a_batch_with_one_bad_message_stores_none(bus: Bus, kind: str) -> None:
    messages = [
        AmqpAnnotatedMessage(data_body=b"good"),
        AmqpAnnotatedMessage(data_body=b"bad", **BAD[kind]),
    ]

    with pytest.raises(ServiceBusError):
        bus.sender(REFUSING).send_messages(messages)

    assert bus.left(REFUSING) == []
