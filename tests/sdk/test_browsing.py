"""Peeks through the official clients: every state, and looking changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from tests.sdk import declared
from tests.sdk.buses import Bus, take, take_one, texts

STATE = ServiceBusMessageState


@declared.with_queue()
def test_peek_shows_messages_of_every_state(bus: Bus, queue: str) -> None:
    bus.send(queue, "locked", "deferred", "active")
    later = datetime.now(UTC) + timedelta(hours=1)
    bus.sender(queue).schedule_messages(ServiceBusMessage("scheduled"), later)
    receiver = bus.receiver(queue)
    _, deferred = take(receiver, 2)
    receiver.defer_message(deferred)

    peeked = receiver.peek_messages(10, sequence_number=1)

    assert [(str(message), message.state) for message in peeked] == [
        ("locked", STATE.ACTIVE),
        ("deferred", STATE.DEFERRED),
        ("active", STATE.ACTIVE),
        ("scheduled", STATE.SCHEDULED),
    ]
    assert [message.sequence_number for message in peeked] == [1, 2, 3, 4]
    assert [message.lock_token for message in peeked] == [None] * 4
    assert peeked[3].scheduled_enqueue_time_utc is not None


@declared.with_queue()
def test_peek_goes_on_where_it_stopped(bus: Bus, queue: str) -> None:
    receiver = bus.receiver(queue)
    assert receiver.peek_messages(2) == []
    bus.send(queue, "0", "1", "2", "3", "4")

    pages = [texts(receiver.peek_messages(2)) for _ in range(4)]
    again = texts(receiver.peek_messages(2, sequence_number=2))

    assert pages == [["0", "1"], ["2", "3"], ["4"], []]
    assert again == ["1", "2"]


@declared.with_queue()
def test_a_peek_changes_nothing(bus: Bus, queue: str) -> None:
    bus.send(queue, "a")
    receiver = bus.receiver(queue)
    (peeked,) = receiver.peek_messages()
    with pytest.raises(ValueError, match="peeked"):
        receiver.complete_message(peeked)
    message = take_one(receiver)
    assert (str(message), message.delivery_count) == ("a", 0)

    receiver.abandon_message(message)
    (peeked,) = receiver.peek_messages(sequence_number=1)

    assert peeked.delivery_count == 1
