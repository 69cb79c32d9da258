"""Sessions through the official clients."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.sdk import declared
from tests.sdk.buses import (
    ARRIVES_SECONDS,
    Bus,
    left,
    nothing_comes,
    number,
    take,
    take_one,
    texts,
)

LOCK_SECONDS = 5


def message(body: str, session: str) -> ServiceBusMessage:
    return ServiceBusMessage(body, session_id=session)


def next_session(
    bus: Bus, queue: str, wait_seconds: float = ARRIVES_SECONDS
) -> ServiceBusReceiver:
    """A receiver of the next available session, which it takes when it is used."""
    options: dict[str, Any] = {"session_id": NEXT_AVAILABLE_SESSION}
    return bus.receiver(queue, max_wait_time=wait_seconds, **options)


@declared.with_queue(requires_session=True)
def test_a_session_is_first_in_first_out(bus: Bus, queue: str) -> None:
    bus.send(queue, *(message(str(index), "red") for index in range(3)))
    bus.send(queue, message("other", "blue"))
    receiver = bus.receiver(queue, session_id="red")

    received = take(receiver, 3)

    assert texts(received) == ["0", "1", "2"]
    for one in received:
        receiver.complete_message(one)
    assert nothing_comes(receiver)
    assert bus.drained(queue, 1, session_id="blue") == ["other"]


@declared.with_queue(requires_session=True)
def test_an_abandoned_message_keeps_its_turn(bus: Bus, queue: str) -> None:
    bus.send(queue, message("1", "s"), message("2", "s"))
    receiver = bus.receiver(queue, session_id="s")

    receiver.abandon_message(take_one(receiver))
    received = take(receiver, 2)

    assert [(str(one), one.delivery_count) for one in received] == [("1", 1), ("2", 0)]


@declared.with_queue(requires_session=True)
def test_a_session_may_have_an_empty_name(bus: Bus, queue: str) -> None:
    bus.send(queue, message("named", "s"), message("nameless", ""))

    assert bus.drained(queue, 1, session_id="") == ["nameless"]


@declared.with_queue(requires_session=True)
def test_a_session_has_one_holder(bus: Bus, queue: str) -> None:
    with bus.receiver(queue, session_id="s") as holder:
        assert holder.session.session_id == "s"
        with pytest.raises(SessionCannotBeLockedError):
            bus.receiver(queue, session_id="s").peek_messages()

    # Closing the link ends the lock at once.
    assert bus.receiver(queue, session_id="s").peek_messages() == []


@declared.with_queue(requires_session=True)
def test_the_next_session_is_one_that_is_not_locked(bus: Bus, queue: str) -> None:
    bus.send(queue, message("a", "red"), message("b", "blue"))
    first, second = next_session(bus, queue), next_session(bus, queue)

    bodies = [str(take_one(first)), str(take_one(second))]

    sessions = [first.session.session_id, second.session.session_id]
    pairs = dict(zip(sessions, bodies, strict=True))
    assert pairs == {"red": "a", "blue": "b"}


@declared.with_queue(requires_session=True)
def test_no_session_is_available_when_the_wait_ends(bus: Bus, queue: str) -> None:
    begun = datetime.now(UTC)

    with pytest.raises(OperationTimeoutError), next_session(bus, queue, 1):
        pass

    waited = datetime.now(UTC) - begun
    assert timedelta(seconds=0.8) < waited < timedelta(seconds=ARRIVES_SECONDS)


@declared.with_queue(requires_session=True)
def test_a_waiter_gets_the_session_that_comes(bus: Bus, queue: str) -> None:
    new = message("a", "new")
    timer = threading.Timer(1, bus.sender(queue).send_messages, [new])
    timer.start()

    received = take_one(next_session(bus, queue))

    timer.join()
    assert (received.session_id, str(received)) == ("new", "a")


@declared.with_queue(requires_session=True)
def test_state_is_set_read_and_cleared(bus: Bus, queue: str) -> None:
    with bus.receiver(queue, session_id="s") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"\x00step 1")

    session = bus.receiver(queue, session_id="s").session
    assert session.get_state() == b"\x00step 1"
    session.set_state(None)
    assert session.get_state() is None


@declared.with_queue(requires_session=True, lock_duration="PT1M")
def test_a_session_lock_can_be_renewed(bus: Bus, queue: str) -> None:
    with bus.receiver(queue, session_id="s") as receiver:
        before = receiver.session.locked_until_utc
        until = receiver.session.renew_lock()

    assert before is not None
    assert timedelta(0) < until - before < timedelta(seconds=30)
    assert before - datetime.now(UTC) > timedelta(seconds=30)


@declared.with_queue(requires_session=True, lock_duration="PT5S")
def test_a_session_goes_on_when_its_lock_ends(bus: Bus, queue: str) -> None:
    bus.send(queue, message("a", "s"))
    slow, quick = bus.receiver(queue, session_id="s"), next_session(bus, queue)
    held = take_one(slow)

    again = take_one(quick)

    assert quick.session.session_id == "s"
    assert (str(again), again.delivery_count) == ("a", 1)
    with pytest.raises(SessionLockLostError):
        slow.complete_message(held)
    quick.complete_message(again)


@declared.with_queue(requires_session=True, lock_duration="PT5S", max_delivery_count=1)
def test_a_session_lock_that_ends_counts_as_a_delivery(bus: Bus, queue: str) -> None:
    bus.send(queue, message("a", "s"))
    take_one(bus.receiver(queue, session_id="s"))

    buried = take_one(bus.receiver(queue, sub_queue="deadletter"))

    assert buried.dead_letter_reason == "MaxDeliveryCountExceeded"


@declared.with_queue(requires_session=True, lock_duration="PT5S")
def test_a_renewer_keeps_a_session(bus: Bus, queue: str) -> None:
    bus.send(queue, message("a", "s"))
    with bus.renewer() as renewer:
        receiver = bus.receiver(queue, session_id="s", auto_lock_renewer=renewer)
        held = take_one(receiver)

        # Longer than the lock lasts without the renewer.
        assert not receiver.receive_messages(1, LOCK_SECONDS + 1)

        receiver.complete_message(held)
        assert left(receiver) == []


@declared.with_queue(requires_session=True)
def test_an_unsettled_message_returns_when_the_link_closes(
    bus: Bus, queue: str
) -> None:
    bus.send(queue, message("a", "s"))

    with bus.receiver(queue, session_id="s") as receiver:
        take_one(receiver)

    assert bus.drained(queue, 1, session_id="s") == ["a"]


@declared.with_queue(requires_session=True)
def test_deferred_messages_belong_to_their_session(bus: Bus, queue: str) -> None:
    bus.send(queue, message("a", "s"), message("b", "s"))
    with bus.receiver(queue, session_id="s") as receiver:
        first, second = take(receiver, 2)
        receiver.defer_message(first)
        receiver.complete_message(second)

    receiver = bus.receiver(queue, session_id="s")
    (deferred,) = receiver.receive_deferred_messages(number(first))

    assert str(deferred) == "a"
    receiver.complete_message(deferred)
    assert left(receiver) == []


@declared.with_queue(requires_session=True)
def test_peek_shows_only_the_session(bus: Bus, queue: str) -> None:
    bus.send(queue, message("a", "red"), message("b", "blue"), message("c", "red"))

    assert bus.left(queue, session_id="red") == ["a", "c"]


@declared.with_queue(requires_session=True)
def test_sessions_are_listed(bus: Bus, queue: str) -> None:
    list_sessions = bus.client.list_queue_sessions
    assert list(list_sessions(queue)) == []
    bus.send(queue, message("a", "red"), message("b", "blue"), message("c", "red"))
    begun = datetime.now(UTC) - timedelta(seconds=1)
    bus.receiver(queue, session_id="state only").session.set_state(b"x")

    assert sorted(list_sessions(queue)) == ["blue", "red", "state only"]
    assert list(list_sessions(queue, state_updated_after=begun)) == ["state only"]


@declared.with_queue(requires_session=True)
def test_sessions_are_listed_page_by_page(bus: Bus, queue: str) -> None:
    names = [f"session {index:03}" for index in range(130)]
    bus.send(queue, *(message("a", name) for name in names))

    assert sorted(bus.client.list_queue_sessions(queue)) == names


@declared.with_queue(requires_session=True)
def test_dead_letters_of_a_session_queue_have_no_sessions(bus: Bus, queue: str) -> None:
    bus.send(queue, message("a", "s"))
    receiver = bus.receiver(queue, session_id="s")
    receiver.dead_letter_message(take_one(receiver), reason="test")

    buried = take_one(bus.receiver(queue, sub_queue="deadletter"))

    assert (str(buried), buried.session_id) == ("a", "s")


@declared.with_topic(declared.subscription("ordered", requires_session=True))
def test_subscriptions_have_sessions(bus: Bus, topic: str) -> None:
    bus.publish(topic, message("a", "red"), message("b", "blue"), message("c", "red"))

    listed = sorted(bus.client.list_subscription_sessions(topic, "ordered"))
    received = take(bus.subscriber(topic, "ordered", session_id="red"), 2)

    assert listed == ["blue", "red"]
    assert texts(received) == ["a", "c"]


@declared.with_queue(requires_session=True)
def test_a_session_queue_refuses_what_has_no_session(bus: Bus, queue: str) -> None:
    with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
        bus.send(queue, "a")
    with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
        bus.receiver(queue).receive_messages(1, ARRIVES_SECONDS)


@declared.with_queue()
def test_a_plain_queue_has_no_sessions(bus: Bus, queue: str) -> None:
    bus.send(queue, message("a", "just a property"))

    receiver = bus.receiver(queue, session_id="just a property")
    with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
        receiver.receive_messages(1, ARRIVES_SECONDS)

    assert bus.drained(queue, 1) == ["a"]
