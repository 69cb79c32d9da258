"""How long messages live, and entities that are switched off."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError

from tests.sdk import declared
from tests.sdk.buses import Bus, take, take_one

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


@declared.with_queue(dead_lettering_on_message_expiration=True)
def test_an_expired_message_is_dead_lettered(bus: Bus, queue: str) -> None:
    bus.send(queue, ServiceBusMessage("short", time_to_live=SECOND), "long")

    message = take_one(bus.receiver(queue, sub_queue="deadletter"))

    assert str(message) == "short"
    assert message.dead_letter_reason == "TTLExpiredException"
    assert bus.left(queue) == ["long"]


@declared.with_queue(
    default_message_time_to_live="PT1S", dead_lettering_on_message_expiration=True
)
def test_the_shorter_of_two_lives_counts(bus: Bus, queue: str) -> None:
    bus.send(queue, "default", ServiceBusMessage("long", time_to_live=HOUR))

    receiver = bus.receiver(queue, sub_queue="deadletter")
    messages = take(receiver, 2)

    assert [str(message) for message in messages] == ["default", "long"]


EXPIRED_HERE = declared.queue("expired-without-trace")
EXPIRED_THERE = declared.queue(
    "expired-with-trace", dead_lettering_on_message_expiration=True
)


def test_an_expired_message_vanishes(bus: Bus) -> None:
    short = ServiceBusMessage("short", time_to_live=SECOND)
    bus.send(EXPIRED_HERE, short, "long")
    # A second queue tells when the time is over.
    bus.send(EXPIRED_THERE, short)
    take_one(bus.receiver(EXPIRED_THERE, sub_queue="deadletter"))

    assert bus.drained(EXPIRED_HERE, 1) == ["long"]
    assert bus.left(EXPIRED_HERE) == []
    assert bus.left(EXPIRED_HERE, sub_queue="deadletter") == []


@declared.with_queue(default_message_time_to_live="PT1H")
def test_a_receiver_sees_the_life_that_counts(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", ServiceBusMessage("b", time_to_live=timedelta(minutes=1)))

    receiver = bus.receiver(queue)
    default, own = take(receiver, 2)

    assert default.time_to_live == HOUR
    assert own.time_to_live == timedelta(minutes=1)
    assert own.expires_at_utc is not None
    assert own.enqueued_time_utc is not None
    assert own.expires_at_utc - own.enqueued_time_utc == timedelta(minutes=1)


DISABLED = declared.queue("disabled", status="Disabled")
SEND_DISABLED = declared.queue("send-disabled", status="SendDisabled")
RECEIVE_DISABLED = declared.queue("receive-disabled", status="ReceiveDisabled")


@pytest.mark.parametrize("name", [DISABLED, SEND_DISABLED])
def test_a_disabled_queue_takes_no_messages(bus: Bus, name: str) -> None:
    with pytest.raises(MessagingEntityDisabledError):
        bus.send(name, "a")


@pytest.mark.parametrize("name", [DISABLED, RECEIVE_DISABLED])
def test_a_disabled_queue_gives_no_messages(bus: Bus, name: str) -> None:
    with pytest.raises(MessagingEntityDisabledError):
        take_one(bus.receiver(name))


def test_the_other_direction_still_works(bus: Bus) -> None:
    bus.send(RECEIVE_DISABLED, "a")

    receiver = bus.receiver(SEND_DISABLED)
    assert receiver.peek_messages() == []
