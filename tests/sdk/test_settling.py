"""Settlement through the official clients: on the link and through `$management`.

Messages that were received by their number are settled through `$management`; all
others on the link they came on.
"""

from __future__ import annotations

import copy

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    ServiceBusError,
)

from tests.sdk import declared
from tests.sdk.buses import Bus, left, nothing_comes, number, take, take_one, texts

DEAD = ServiceBusSubQueue.DEAD_LETTER


def deferred(receiver: ServiceBusReceiver, count: int) -> list[int]:
    """Receive messages and defer them; returns their numbers."""
    messages = take(receiver, count)
    for message in messages:
        receiver.defer_message(message)
    return [number(message) for message in messages]


@declared.with_queue()
def test_a_completed_message_is_gone(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", "b")
    receiver = bus.receiver(queue)
    first, second = take(receiver, 2)

    receiver.complete_message(second)
    with pytest.raises(MessageAlreadySettled):
        receiver.complete_message(second)
    receiver.abandon_message(first)

    assert left(receiver) == ["a"]


@declared.with_queue()
def test_an_abandoned_message_returns_to_its_place(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", "b")
    receiver = bus.receiver(queue)

    receiver.abandon_message(take_one(receiver))
    received = take(receiver, 2)

    assert texts(received) == ["a", "b"]
    assert [message.delivery_count for message in received] == [1, 0]


@declared.with_queue(max_delivery_count=2)
def test_a_message_abandoned_too_often_is_dead_lettered(bus: Bus, queue: str) -> None:
    bus.send(queue, ServiceBusMessage("a", message_id="id"))
    receiver = bus.receiver(queue)
    for count in range(2):
        message = take_one(receiver)
        assert message.delivery_count == count
        receiver.abandon_message(message)
    assert left(receiver) == []

    buried = take_one(bus.receiver(queue, sub_queue=DEAD))

    assert buried.message_id == "id"
    assert buried.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert buried.dead_letter_error_description


@declared.with_queue()
def test_a_dead_lettered_message_says_why(bus: Bus, queue: str) -> None:
    bus.send(queue, ServiceBusMessage("a", application_properties={"kept": 1}), "b")
    receiver = bus.receiver(queue)
    first, second = take(receiver, 2)

    receiver.dead_letter_message(
        first, reason="broken", error_description="cannot be read"
    )
    receiver.dead_letter_message(second)

    assert left(receiver) == []
    receiver = bus.receiver(queue, sub_queue=DEAD)
    explained, unexplained = take(receiver, 2)
    assert str(explained) == "a"
    assert explained.dead_letter_reason == "broken"
    assert explained.dead_letter_error_description == "cannot be read"
    assert (explained.application_properties or {})[b"kept"] == 1
    assert str(unexplained) == "b"


@declared.with_queue()
def test_dead_letters_settle_like_other_messages(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", "b")
    receiver = bus.receiver(queue)
    for message in take(receiver, 2):
        receiver.dead_letter_message(message, reason="test")

    receiver = bus.receiver(queue, sub_queue=DEAD)
    first, second = take(receiver, 2)
    receiver.abandon_message(first)
    receiver.defer_message(second)
    again = take_one(receiver)
    assert (str(again), again.delivery_count) == ("a", 0)
    (by_number,) = receiver.receive_deferred_messages(number(second))
    assert by_number.delivery_count == 0
    receiver.complete_message(again)
    receiver.complete_message(by_number)
    assert left(receiver) == []


@declared.with_queue()
def test_dead_letters_cannot_be_dead_lettered_again(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", "b")
    receiver = bus.receiver(queue)
    for message in take(receiver, 2):
        receiver.dead_letter_message(message, reason="first")
    # A client closes its receiver after a refusal.
    first, second, third = (bus.receiver(queue, sub_queue=DEAD) for _ in range(3))

    on_link = take_one(first)
    with pytest.raises(ServiceBusError, match="cannot be dead-lettered again"):
        first.dead_letter_message(on_link, reason="second")
    other = take_one(second)
    second.defer_message(other)
    (by_request,) = second.receive_deferred_messages(number(other))
    with pytest.raises(ServiceBusError, match="cannot be dead-lettered again"):
        second.dead_letter_message(by_request, reason="second")

    seen = third.peek_messages(2)
    assert [each.dead_letter_reason for each in seen] == ["first", "first"]
    assert [each.delivery_count for each in seen] == [0, 0]


@declared.with_queue()
def test_a_deferred_message_comes_only_by_its_number(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", "b")
    receiver = bus.receiver(queue)
    numbers = deferred(receiver, 1)
    receiver.complete_message(take_one(receiver))
    assert nothing_comes(receiver)

    (message,) = receiver.receive_deferred_messages(numbers)

    assert str(message) == "a"
    assert message.state is ServiceBusMessageState.DEFERRED
    assert message.lock_token is not None
    receiver.complete_message(message)
    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages(numbers)
    assert left(receiver) == []


@declared.with_queue()
def test_deferring_counts_as_a_delivery(bus: Bus, queue: str) -> None:
    bus.send(queue, "a")
    receiver = bus.receiver(queue)
    numbers = deferred(receiver, 1)

    (message,) = receiver.receive_deferred_messages(numbers)
    assert message.delivery_count == 1
    receiver.defer_message(message)
    (message,) = receiver.receive_deferred_messages(numbers)
    assert message.delivery_count == 2
    receiver.abandon_message(message)
    (message,) = receiver.receive_deferred_messages(numbers)
    assert message.delivery_count == 3
    receiver.dead_letter_message(message)

    buried = take_one(bus.receiver(queue, sub_queue=DEAD))
    assert buried.delivery_count == 3


@declared.with_queue(max_delivery_count=1)
def test_a_message_deferred_too_often_is_dead_lettered(bus: Bus, queue: str) -> None:
    bus.send(queue, "a")
    receiver = bus.receiver(queue)
    numbers = deferred(receiver, 1)

    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages(numbers)

    buried = take_one(bus.receiver(queue, sub_queue=DEAD))
    assert buried.dead_letter_reason == "MaxDeliveryCountExceeded"


@declared.with_queue()
def test_deferred_messages_may_be_received_and_deleted(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", "b")
    numbers = deferred(bus.receiver(queue), 2)
    receiver = bus.receiver(queue, receive_mode="receiveanddelete")

    received = receiver.receive_deferred_messages(numbers)

    assert texts(received) == ["a", "b"]
    assert left(receiver) == []


@declared.with_queue()
def test_deferred_messages_settle_through_management(bus: Bus, queue: str) -> None:
    bus.send(queue, "abandon", "defer", "dead-letter", "complete")
    receiver = bus.receiver(queue)
    numbers = deferred(receiver, 4)
    abandon, defer, dead, complete = receiver.receive_deferred_messages(numbers)

    receiver.abandon_message(abandon)
    receiver.defer_message(defer)
    receiver.dead_letter_message(dead, reason="why", error_description="how")
    receiver.complete_message(complete)

    # Abandoned, a deferred message stays deferred.
    both = receiver.receive_deferred_messages(numbers[:2])
    assert texts(both) == ["abandon", "defer"]
    assert both[0].delivery_count == 2
    buried = take_one(bus.receiver(queue, sub_queue=DEAD))
    assert buried.dead_letter_reason == "why"
    assert buried.dead_letter_error_description == "how"


@declared.with_queue()
def test_a_lock_works_once(bus: Bus, queue: str) -> None:
    bus.send(queue, "by number", "on the link")
    receiver = bus.receiver(queue)
    (message,) = receiver.receive_deferred_messages(deferred(receiver, 1))
    other = take_one(receiver)
    # The client knows what it settled; a copy of the message does not.
    message_again, other_again = copy.copy(message), copy.copy(other)
    receiver.abandon_message(message)
    receiver.complete_message(other)

    with pytest.raises(MessageLockLostError):
        receiver.complete_message(message_again)
    with pytest.raises(MessageLockLostError):
        receiver.renew_message_lock(other_again)

    assert left(receiver) == ["by number"]
