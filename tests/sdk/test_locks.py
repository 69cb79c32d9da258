"""Locks of messages over time. These tests wait for real locks, so there are few."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus.exceptions import MessageLockLostError

from tests.sdk import declared
from tests.sdk.buses import Bus, left, take, take_one

LOCK_SECONDS = 5


@declared.with_queue(lock_duration="PT5M")
def test_renewing_a_lock_moves_its_end(bus: Bus, queue: str) -> None:
    bus.send(queue, "a")
    receiver = bus.receiver(queue)
    message = take_one(receiver)
    before = message.locked_until_utc

    until = receiver.renew_message_lock(message)

    assert before is not None
    assert before < until == message.locked_until_utc
    assert until - datetime.now(UTC) > timedelta(minutes=4)
    receiver.complete_message(message)


LENIENT = declared.queue("lenient", lock_duration="PT5S")
STRICT = declared.queue("strict", lock_duration="PT5S", max_delivery_count=1)


def test_a_message_comes_back_when_its_lock_ends(bus: Bus) -> None:
    bus.send(LENIENT, "a")
    bus.send(STRICT, "b")
    slow, quick = bus.receiver(LENIENT), bus.receiver(LENIENT)
    late = take_one(slow)
    take_one(bus.receiver(STRICT))

    again = take_one(quick)
    buried = take_one(bus.receiver(STRICT, sub_queue="deadletter"))

    # A lock that ends counts as a delivery.
    assert (str(again), again.delivery_count) == ("a", 1)
    assert buried.dead_letter_reason == "MaxDeliveryCountExceeded"
    # The client looks at its own clock first; here the server must refuse.
    late._expiry = datetime.now(UTC) + timedelta(minutes=1)
    with pytest.raises(MessageLockLostError, match="message-lock-lost"):
        slow.complete_message(late)
    with pytest.raises(MessageLockLostError, match="message-lock-lost"):
        slow.renew_message_lock(late)
    # The refusals concern that message alone.
    quick.complete_message(again)
    bus.send(LENIENT, "c")
    slow.complete_message(take_one(slow))
    assert left(quick) == []


@declared.with_queue(lock_duration="PT5S")
def test_a_renewer_keeps_locks_alive(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", "b")
    with bus.renewer() as renewer:
        receiver = bus.receiver(queue, auto_lock_renewer=renewer)
        messages = take(receiver, 2)

        # Longer than the locks last without the renewer.
        assert not bus.receiver(queue).receive_messages(1, LOCK_SECONDS + 1)

        assert [message.auto_renew_error for message in messages] == [None, None]
        for message in messages:
            receiver.complete_message(message)
    assert left(receiver) == []
