"""Rules of a subscription in the router: what they change, and how they fail."""

from __future__ import annotations

import logging

import pytest

from twinbus.clock import Now
from twinbus.core.entity import SubscriptionDescription, TopicDescription
from twinbus.core.filters import Budget, MessageView, SqlFilter, SqlRuleAction
from twinbus.core.rule import RuleDescription
from twinbus.errors import Bug, StoreFault
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import DEAD_LETTER, Stored
from twinbus.store.opening import open_store
from twinbus.wire.message import parts, sections
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION as DESCRIPTION
from twinbus.wire.types import Described, Symbol, Timestamp

NOW_MS = 1_700_000_000_000
TIMESPAN = Symbol("com.microsoft:timespan")


class Topic:
    """A namespace with one topic, one subscription and one rule."""

    def __init__(self, action: str | None = None) -> None:
        self.store = open_store(None)
        self.namespace = Namespace("contoso", self.store)
        self.store.begin()
        entities = self.namespace.entities
        self.topic = entities.create(TopicDescription("t"), NOW_MS)
        self.subscription: Entity = entities.create(
            SubscriptionDescription("t", "s"), NOW_MS
        )
        entities.remove_rule(self.subscription, "$Default", NOW_MS)
        sql = None if action is None else SqlRuleAction(action)
        rule = RuleDescription("r", SqlFilter("1=1"), sql)
        entities.add_rule(self.subscription, rule, NOW_MS)

    def publish(self, **properties: object) -> None:
        payload = sections.encode_message(b"x", {sections.MESSAGE_ID: "m"})
        message = sections.parse(payload)
        message.bare = parts.with_application_properties(message.bare, properties)
        self.namespace.send(self.topic, [message], Turn(Now.at(NOW_MS)))

    def kept(self, which: int = 0) -> list[Stored]:
        return self.store.peek(
            self.subscription.id + which, 1, 10, Now.at(NOW_MS), None
        )

    def received(self) -> dict[str, object]:
        """The properties of the only copy."""
        (copy,) = self.kept()
        return sections.read_application_properties(copy.bare)


@pytest.mark.parametrize(
    ("ticks", "copied", "negated"),
    [
        (2**63 - 1, 2**63 - 8, -(2**63) + 8),
        (-(2**63), -(2**63) + 8, 2**63 - 8),
        (-(2**63) + 1, -(2**63) + 8, 2**63 - 8),
        (15, 10, -10),
        (-15, -10, 10),
        (0, 0, 0),
    ],
)
def test_any_duration_can_be_copied_and_negated(
    ticks: int, copied: int, negated: int
) -> None:
    """To the microsecond, which is how exact durations are here."""
    topic = Topic("SET copied = a; SET negated = -a")

    topic.publish(a=Described(TIMESPAN, ticks))

    received = topic.received()
    assert received["a"] == Described(TIMESPAN, ticks)
    assert received["copied"] == Described(TIMESPAN, copied)
    assert received["negated"] == Described(TIMESPAN, negated)


@pytest.mark.parametrize("ms", [1001, -1001, 253402300799999, -62135596800000])
def test_any_time_can_be_copied(ms: int) -> None:
    topic = Topic("SET copied = a")

    topic.publish(a=Timestamp(ms))

    assert topic.received()["copied"] == Timestamp(ms)


class Broken:
    """A filter with a defect (`core.filters.Filter`)."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def matches(self, view: MessageView, budget: Budget | None = None) -> bool:
        raise self._error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (AssertionError("x" * 9_000), f"AssertionError: {'x' * 4080}"),
        (Bug("a defect"), "a defect"),
    ],
    ids=["exception", "assertion", "bug"],
)
def test_any_error_is_that_of_the_rule(
    error: Exception, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic()
    topic.subscription.rules["r"].filter = Broken(error)

    with caplog.at_level(logging.ERROR):
        topic.publish()

    (buried,) = topic.kept(DEAD_LETTER)
    marks = sections.read_application_properties(buried.bare)
    assert marks[DESCRIPTION] == text
    assert caplog.messages == ["rule r of t/Subscriptions/s failed"]


def test_a_fault_of_the_store_is_no_error_of_the_rule() -> None:
    topic = Topic()
    topic.subscription.rules["r"].filter = Broken(StoreFault("the disk is gone"))

    with pytest.raises(StoreFault):
        topic.publish()


def test_all_rules_of_a_subscription_share_one_budget() -> None:
    topic = Topic()
    entities = topic.namespace.entities
    for number in range(8):
        costly = SqlFilter(" OR ".join(["a LIKE '%a_b_z%'"] * 8))
        entities.add_rule(topic.subscription, RuleDescription(f"{number}", costly), 0)

    topic.publish(a="a" * 8_000)

    (buried,) = topic.kept(DEAD_LETTER)
    marks = sections.read_application_properties(buried.bare)
    assert marks[DESCRIPTION] == "the rules need more than 262144 steps on this message"
    assert topic.kept() == []
