"""Forwarding between entities, seen by the official clients."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from tests.sdk import declared
from tests.sdk.buses import Bus, take_one
from tests.sdk.declared import rule, subscription

TRANSFER = ServiceBusSubQueue.TRANSFER_DEAD_LETTER

INBOX = declared.queue("inbox")
BACK = declared.queue("back", forward_to=INBOX)
FRONT = declared.queue("front", forward_to=BACK)


def test_a_message_is_forwarded_along_a_chain(bus: Bus) -> None:
    bus.send(INBOX, "direct")
    bus.send(FRONT, "first", "second")

    receiver = bus.receiver(INBOX)
    numbers = []
    for body in ("direct", "first", "second"):
        message = take_one(receiver)
        assert str(message) == body
        numbers.append((message.sequence_number, message.enqueued_sequence_number))
        receiver.complete_message(message)

    # The second number is the one of the entity that the message was sent to.
    assert numbers == [(1, None), (2, 1), (3, 2)]


GRAVEYARD = declared.queue("graveyard")
MORTAL = declared.queue("mortal", forward_dead_lettered_messages_to=GRAVEYARD)


def test_dead_letters_are_forwarded(bus: Bus) -> None:
    bus.send(MORTAL, "a")
    receiver = bus.receiver(MORTAL)
    receiver.dead_letter_message(take_one(receiver), reason="why")

    message = take_one(bus.receiver(GRAVEYARD))

    assert str(message) == "a"
    assert message.dead_letter_reason == "why"
    assert message.dead_letter_source == MORTAL
    assert message.delivery_count == 0
    assert bus.left(MORTAL, sub_queue="deadletter") == []


COLLECTED = declared.queue("collected")
NEWS = declared.topic(
    "news",
    subscriptions=[
        subscription(
            "urgent",
            rule("urgent", sql="sys.Label = 'urgent'", action="SET by = 'rule'"),
            forward_to=COLLECTED,
        ),
        subscription("all"),
    ],
)


def test_a_subscription_forwards_what_its_rules_let_through(bus: Bus) -> None:
    bus.publish(NEWS, ServiceBusMessage("a", subject="urgent"), "b")

    message = take_one(bus.receiver(COLLECTED))

    assert str(message) == "a"
    assert (message.application_properties or {})[b"by"] == b"rule"
    assert bus.collected(NEWS, "all", 2) == ["a", "b"]


RELAYED = declared.topic("relayed", subscriptions=[subscription("all")])
RELAY = declared.queue("relay", forward_to=RELAYED)


def test_a_queue_forwards_to_a_topic(bus: Bus) -> None:
    bus.send(RELAY, "a")

    assert bus.collected(RELAYED, "all", 1) == ["a"]


CLOSED = declared.queue("closed", status="SendDisabled")
BLOCKED = declared.queue("blocked", forward_to=CLOSED)


def test_what_cannot_be_forwarded_is_kept_aside(bus: Bus) -> None:
    bus.send(BLOCKED, "a")

    receiver = bus.receiver(BLOCKED, sub_queue=TRANSFER)
    message = take_one(receiver)
    receiver.complete_message(message)

    assert str(message) == "a"
    assert message.dead_letter_reason


# Five hops, where four are allowed.
HOPS = [
    declared.queue(f"hop-{number}", forward_to=f"hop-{number + 1}")
    for number in range(5)
]
LAST_HOP = declared.queue("hop-5")


def test_a_chain_that_is_too_long_ends(bus: Bus) -> None:
    bus.send(HOPS[0], "a")
    bus.send(HOPS[1], "b")

    assert bus.drained(LAST_HOP, 1) == ["b"]
    message = take_one(bus.receiver(HOPS[4], sub_queue=TRANSFER))
    assert str(message) == "a"
    assert message.dead_letter_reason == "MaxTransferHopCountExceeded"


CIRCLE = declared.queue("circle", forward_to="circle", requires_session=True)


def test_a_queue_that_forwards_to_itself_ends_at_the_hop_limit(bus: Bus) -> None:
    bus.send(CIRCLE, ServiceBusMessage("a", session_id="s"))

    aside = take_one(bus.receiver(CIRCLE, sub_queue=TRANSFER))

    assert aside.dead_letter_reason == "MaxTransferHopCountExceeded"
