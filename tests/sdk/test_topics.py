"""Topics, subscriptions and their rules, through the official clients.

The Python clients offer no way to change rules on the wire, so rules come from the
configuration here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from tests.sdk import declared
from tests.sdk.buses import Bus, left, number, take, take_one, texts
from tests.sdk.declared import rule, subscription

DEAD = ServiceBusSubQueue.DEAD_LETTER


def order(
    body: str, subject: str | None = None, **properties: Any
) -> ServiceBusMessage:
    """A message whose properties rules look at."""
    return ServiceBusMessage(
        body,
        subject=subject,
        correlation_id=f"c-{body}",
        application_properties=dict(properties.items()),
    )


@declared.with_topic(subscription("first"), subscription("second"))
def test_each_subscription_gets_its_copy(bus: Bus, topic: str) -> None:
    bus.publish(topic, "a", "b")

    receiver = bus.subscriber(topic, "first")
    for message in take(receiver, 2):
        receiver.complete_message(message)

    receiver = bus.subscriber(topic, "second")
    received = take(receiver, 2)
    assert texts(received) == ["a", "b"]
    assert [message.sequence_number for message in received] == [1, 2]


MARK = "SET seen = 1"


@declared.with_topic(
    subscription(
        "chosen",
        rule("red", MARK, correlation={"label": "red"}),
        rule(
            "red-and-large",
            MARK,
            correlation={"label": "red", "properties": {"size": "large"}},
        ),
        rule("two", MARK, correlation={"correlation_id": "c-2"}),
        rule("heavy", MARK, sql="weight > 10 AND sys.Label LIKE 'r%'"),
        rule("listed", MARK, sql="size IN ('large', 'huge')"),
        rule("weightless", MARK, sql="weight IS NULL"),
        rule("all", MARK, true={}),
        rule("none", MARK, false={}),
    ),
)
def test_filters_choose_messages(bus: Bus, topic: str) -> None:
    bus.publish(
        topic,
        order("1", "red", weight=5, size="large"),
        order("2", "blue", weight=50),
        order("3", "red", weight=50, size="small"),
        order("4", size="huge"),
    )

    # Each rule with an action makes a copy, which names the rule.
    chosen: dict[Any, list[str]] = {}
    for message in bus.subscriber(topic, "chosen").peek_messages(50):
        name = (message.application_properties or {})[b"RuleName"]
        chosen.setdefault(name, []).append(str(message))

    assert chosen == {
        b"red": ["1", "3"],
        b"red-and-large": ["1"],
        b"two": ["2"],
        b"heavy": ["3"],
        b"listed": ["1", "4"],
        b"weightless": ["4"],
        b"all": ["1", "2", "3", "4"],
    }


@declared.with_topic(
    subscription("none", rule("never", false={})),
    subscription(
        "either",
        rule("light", sql="weight < 10"),
        rule("red", correlation={"label": "red"}),
    ),
)
def test_a_message_that_meets_two_filters_comes_once(bus: Bus, topic: str) -> None:
    bus.publish(
        topic,
        order("both", "red", weight=5),
        order("one", "red", weight=50),
        order("neither", "blue", weight=50),
    )

    assert left(bus.subscriber(topic, "either")) == ["both", "one"]
    assert left(bus.subscriber(topic, "none")) == []


@declared.with_topic(
    subscription(
        "marked",
        rule(
            "mark",
            sql="weight > 10",
            action="SET sys.Label = 'heavy'; SET doubled = weight * 2; REMOVE size",
        ),
    )
)
def test_an_action_changes_the_copy(bus: Bus, topic: str) -> None:
    bus.publish(topic, order("1", "red", weight=50, size="large"))

    message = take_one(bus.subscriber(topic, "marked"))

    assert str(message) == "1"
    assert message.subject == "heavy"
    assert message.application_properties == {
        b"weight": 50,
        b"doubled": 100,
        b"RuleName": b"mark",
    }


@declared.with_topic(
    subscription(
        "copies",
        rule("plain", true={}),
        rule("also-plain", sql="weight > 10"),
        rule("first", sql="weight > 10", action="SET by = 'first'"),
        rule("second", true={}, action="SET by = 'second'"),
        rule("third", sql="weight > 100", action="SET by = 'third'"),
    )
)
def test_each_matching_rule_with_an_action_makes_a_copy(bus: Bus, topic: str) -> None:
    bus.publish(topic, order("1", weight=50))

    received = bus.subscriber(topic, "copies").peek_messages(10)

    found = [(m.application_properties or {}).get(b"by") for m in received]
    # One for all rules without action, and one for each matching rule with one.
    assert sorted(map(str, found)) == ["None", "b'first'", "b'second'"]


@declared.with_topic(
    subscription("strict", rule("divide", sql="10 / weight > 1")),
    subscription(
        "lenient",
        rule("divide", sql="10 / weight > 1"),
        dead_lettering_on_filter_evaluation_exceptions=False,
    ),
)
def test_a_filter_that_fails_dead_letters_if_wanted(bus: Bus, topic: str) -> None:
    bus.publish(topic, order("zero", weight=0), order("five", weight=5))

    buried = take_one(bus.subscriber(topic, "strict", sub_queue=DEAD))
    assert str(buried) == "zero"
    assert buried.dead_letter_reason
    assert left(bus.subscriber(topic, "lenient", sub_queue=DEAD)) == []
    for name in ("strict", "lenient"):
        assert bus.collected(topic, name, 1) == ["five"]


@declared.with_topic(subscription("s", max_delivery_count=2, lock_duration="PT30S"))
def test_a_subscription_settles_like_a_queue(bus: Bus, topic: str) -> None:
    bus.publish(topic, "complete", "defer", "abandon", "dead-letter")
    receiver = bus.subscriber(topic, "s")
    complete, defer, abandon, dead = take(receiver, 4)
    receiver.renew_message_lock(complete)
    receiver.complete_message(complete)
    receiver.defer_message(defer)
    receiver.abandon_message(abandon)
    (again,) = take(receiver, 1)
    receiver.abandon_message(again)
    receiver.dead_letter_message(dead, reason="mine")
    (deferred,) = receiver.receive_deferred_messages(number(defer))
    receiver.complete_message(deferred)

    assert left(receiver) == []
    receiver = bus.subscriber(topic, "s", sub_queue=DEAD)
    buried = take(receiver, 2)
    for message in buried:
        receiver.complete_message(message)
    assert left(receiver) == []
    reasons = {str(message): message.dead_letter_reason for message in buried}
    assert reasons == {
        "abandon": "MaxDeliveryCountExceeded",
        "dead-letter": "mine",
    }


@declared.with_topic(
    subscription("all"),
    requires_duplicate_detection=True,
    duplicate_detection_history_time_window="PT5M",
)
def test_a_topic_drops_duplicates(bus: Bus, topic: str) -> None:
    bus.publish(topic, ServiceBusMessage("a", message_id="1"))
    bus.publish(topic, ServiceBusMessage("again", message_id="1"))
    bus.publish(topic, ServiceBusMessage("b", message_id="2"))

    assert bus.collected(topic, "all", 2) == ["a", "b"]


@declared.with_topic(
    subscription(
        "short",
        default_message_time_to_live="PT1S",
        dead_lettering_on_message_expiration=True,
    ),
    subscription("long"),
    default_message_time_to_live="PT1H",
)
def test_a_subscription_may_shorten_lives(bus: Bus, topic: str) -> None:
    bus.publish(topic, "a")

    expired = take_one(bus.subscriber(topic, "short", sub_queue=DEAD))
    kept = take_one(bus.subscriber(topic, "long"))

    assert expired.dead_letter_reason == "TTLExpiredException"
    assert kept.time_to_live == timedelta(hours=1)


@declared.with_topic()
def test_a_topic_without_subscriptions_accepts_and_forgets(
    bus: Bus, topic: str
) -> None:
    bus.publish(topic, "a", "b")


# .NET's TimeSpan, as the Python client writes a described value: it has no type for it.
LONGEST = (
    {"TYPE": "SYMBOL", "VALUE": b"com.microsoft:timespan"},
    {"TYPE": "LONG", "VALUE": 2**63 - 1},
)


@declared.with_topic(
    subscription("strict", rule("double", "SET a = a + a", true={})),
    subscription(
        "lenient",
        rule("double", "SET a = a + a", true={}),
        dead_lettering_on_filter_evaluation_exceptions=False,
    ),
    subscription("negated", rule("negate", "SET a = -a", true={})),
)
def test_a_scheduled_message_on_which_an_action_fails(bus: Bus, topic: str) -> None:
    properties: Any = {"a": LONGEST}
    bad = ServiceBusMessage("bad", application_properties=properties)
    due = datetime.now(UTC) + timedelta(seconds=1)
    bus.publisher(topic).schedule_messages(bad, due)

    buried = take_one(bus.subscriber(topic, "strict", sub_queue=DEAD))
    assert str(buried) == "bad"
    assert buried.dead_letter_reason == "FilterEvaluation"
    assert "does not fit in 64 bits" in str(buried.dead_letter_error_description)
    negated = take_one(bus.subscriber(topic, "negated"))
    assert (negated.application_properties or {})[b"a"] == -(2**63) + 8
    # The server goes on as before.
    bus.publish(topic, order("good", a=1))
    for name in ("strict", "lenient"):
        assert bus.collected(topic, name, 1) == ["good"]
        assert left(bus.subscriber(topic, name)) == []
    assert left(bus.subscriber(topic, "lenient", sub_queue=DEAD)) == []
