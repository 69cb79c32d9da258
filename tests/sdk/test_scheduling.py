"""Messages for later, through the official clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from tests.sdk import declared
from tests.sdk.buses import ARRIVES_SECONDS, Bus, left, number, outgoing, take, texts

SOON = timedelta(seconds=2)
LATER = timedelta(hours=1)


@declared.with_queue()
def test_a_scheduled_message_comes_at_its_time(bus: Bus, queue: str) -> None:
    sender, receiver = bus.sender(queue), bus.receiver(queue)
    sender.send_messages(ServiceBusMessage("now"))
    due = datetime.now(UTC) + SOON
    (first,) = sender.schedule_messages(ServiceBusMessage("soon"), due)
    # The other way to say it: a property of a message that is simply sent.
    sender.send_messages(ServiceBusMessage("too", scheduled_enqueue_time_utc=due))

    # One, and not three: on a slow machine the time of the others may have come.
    now = receiver.receive_messages(1, ARRIVES_SECONDS)
    scheduled = take(receiver, 2)

    assert texts(now) == ["now"]
    assert sorted(texts(scheduled)) == ["soon", "too"]
    for message in scheduled:
        # It is enqueued when its time has come, with a number of that moment.
        assert number(message) > first
        assert message.state is ServiceBusMessageState.SCHEDULED
        assert message.enqueued_time_utc is not None
        # Times of the protocol have milliseconds, ours have microseconds.
        assert message.enqueued_time_utc >= due - timedelta(milliseconds=1)


@declared.with_queue()
def test_scheduled_messages_can_be_cancelled(bus: Bus, queue: str) -> None:
    sender, receiver = bus.sender(queue), bus.receiver(queue)
    due = datetime.now(UTC) + LATER
    numbers = sender.schedule_messages(outgoing("a", "b", "c"), due)
    assert numbers == [1, 2, 3]

    sender.cancel_scheduled_messages([numbers[0], numbers[2]])
    assert left(receiver) == ["b"]

    sender.cancel_scheduled_messages(numbers[1])
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(numbers[1])
    assert left(receiver) == []


@declared.with_queue()
def test_a_moment_in_the_past_is_now(bus: Bus, queue: str) -> None:
    past = datetime.now(UTC) - LATER

    bus.sender(queue).schedule_messages(ServiceBusMessage("a"), past)

    assert bus.drained(queue, 1) == ["a"]


@declared.with_queue(requires_session=True)
def test_scheduled_messages_keep_their_session(bus: Bus, queue: str) -> None:
    due = datetime.now(UTC) + timedelta(seconds=1)
    sender = bus.sender(queue)
    sender.schedule_messages(ServiceBusMessage("a", session_id="s"), due)
    with pytest.raises(ServiceBusError):
        sender.schedule_messages(ServiceBusMessage("b"), due)

    assert bus.drained(queue, 1, session_id="s") == ["a"]


@declared.with_topic(declared.subscription("all"))
def test_a_topic_publishes_scheduled_messages(bus: Bus, topic: str) -> None:
    now = datetime.now(UTC)
    sender = bus.publisher(topic)
    far = sender.schedule_messages(ServiceBusMessage("never"), now + LATER)
    sender.schedule_messages(ServiceBusMessage("soon"), now + timedelta(seconds=1))
    sender.cancel_scheduled_messages(far)

    assert bus.collected(topic, "all", 1) == ["soon"]
