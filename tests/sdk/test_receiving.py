"""Receives through the official clients: modes, credit, waiting, and giving back."""

from __future__ import annotations

import threading

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode

from tests.sdk import declared
from tests.sdk.buses import (
    ARRIVES_SECONDS,
    NOTHING_SECONDS,
    Bus,
    left,
    nothing_comes,
    outgoing,
    take,
    take_one,
    texts,
)


@declared.with_queue()
def test_a_locked_message_is_not_given_to_another(bus: Bus, queue: str) -> None:
    bus.send(queue, "a")
    first, second = bus.receiver(queue), bus.receiver(queue)

    held = take_one(first)

    assert nothing_comes(second)
    first.complete_message(held)
    assert left(first) == []


@declared.with_queue()
def test_a_lock_outlives_the_link_that_got_it(bus: Bus, queue: str) -> None:
    bus.send(queue, "a")

    with bus.receiver(queue) as receiver:
        take_one(receiver)

    assert nothing_comes(bus.receiver(queue))


@declared.with_queue()
def test_receive_and_delete_leaves_nothing(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", "b")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    receiver = bus.receiver(queue, receive_mode=mode)

    received = take(receiver, 2)

    assert texts(received) == ["a", "b"]
    assert received[0].lock_token is None
    assert left(receiver) == []


@declared.with_queue()
def test_a_receiver_gets_what_comes_while_it_waits(bus: Bus, queue: str) -> None:
    message = ServiceBusMessage("late")
    timer = threading.Timer(1, bus.sender(queue).send_messages, [message])
    timer.start()

    received = bus.receiver(queue).receive_messages(1, ARRIVES_SECONDS)

    timer.join()
    assert texts(received) == ["late"]


@declared.with_queue()
def test_an_empty_queue_gives_nothing_when_the_wait_ends(bus: Bus, queue: str) -> None:
    # Opened first, so that the time is spent waiting for messages.
    with bus.receiver(queue, max_wait_time=NOTHING_SECONDS) as receiver:
        assert receiver.receive_messages(5) == []
        assert list(receiver) == []


@declared.with_queue()
def test_iterating_takes_messages_one_by_one(bus: Bus, queue: str) -> None:
    bodies = [str(index) for index in range(8)]
    bus.send(queue, *bodies)
    receiver = bus.receiver(queue, max_wait_time=1)

    seen = []
    for message in receiver:
        seen.append(str(message))
        receiver.complete_message(message)

    assert seen == bodies
    assert left(receiver) == []


@declared.with_queue()
def test_prefetch_fetches_ahead(bus: Bus, queue: str) -> None:
    bodies = [str(index) for index in range(10)]
    bus.send(queue, *bodies)
    receiver = bus.receiver(queue, prefetch_count=20)

    first = take_one(receiver)
    # The other nine are locked in the buffer of the first receiver.
    assert nothing_comes(bus.receiver(queue))
    received = [first, *take(receiver, 9)]
    for message in received:
        receiver.complete_message(message)

    assert texts(received) == bodies
    assert left(receiver) == []


@declared.with_queue()
def test_what_was_prefetched_is_given_back_on_close(bus: Bus, queue: str) -> None:
    bus.send(queue, "a", "b", "c", "d")

    with bus.receiver(queue, prefetch_count=10) as receiver:
        receiver.complete_message(take_one(receiver))
    received = take(bus.receiver(queue), 3)

    assert texts(received) == ["b", "c", "d"]
    assert [message.delivery_count for message in received] == [0, 0, 0]


@declared.with_queue()
def test_unused_credit_locks_nothing_after_close(bus: Bus, queue: str) -> None:
    bus.send(queue, "a")

    with bus.receiver(queue) as receiver:
        receiver.complete_message(receiver.receive_messages(50, ARRIVES_SECONDS)[0])
    bus.send(queue, "b")
    message = take_one(bus.receiver(queue))

    assert (str(message), message.delivery_count) == ("b", 0)


@declared.with_queue()
def test_two_receivers_share_a_queue(bus: Bus, queue: str) -> None:
    bodies = [f"{index:02}" for index in range(20)]
    bus.send(queue, *bodies)

    received = take(bus.receiver(queue), 10) + take(bus.receiver(queue), 10)

    assert sorted(texts(received)) == bodies


@declared.with_queue()
def test_many_messages_flow_through_one_link(bus: Bus, queue: str) -> None:
    # More than a window of credit, so that it has to be granted again.
    bodies = [str(index) for index in range(1500)]

    for start in range(0, 1500, 500):
        bus.send(queue, *bodies[start : start + 500])

    assert bus.drained(queue, 1500, prefetch_count=300) == bodies


@declared.with_queue()
def test_a_slow_reader_gets_everything(bus: Bus, queue: str) -> None:
    # More than the server buffers for a connection; each message is several frames.
    bodies = [str(index) * 200_000 for index in range(10)] * 2
    for body in bodies:
        bus.send(queue, body)

    assert bus.drained(queue, 20, prefetch_count=20) == bodies


@declared.with_queue()
def test_many_sends_flow_through_one_link(bus: Bus, queue: str) -> None:
    sender = bus.sender(queue)
    bodies = [str(index) for index in range(300)]

    for message in outgoing(*bodies):
        sender.send_messages(message)

    assert bus.drained(queue, 300) == bodies
