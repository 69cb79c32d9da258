"""Rules of subscriptions, and removing many messages, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.client.site import QUEUE, SESSIONS, TIMEOUT_SECONDS, Site, message
from tests.server.raw import serving
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.management import Management
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.rules import request_of, rule_of
from twinbus.client.transport.endpoint import Endpoint
from twinbus.core.entity import SubscriptionDescription, TopicDescription
from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
)
from twinbus.core.rule import RuleDescription, default_rule
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.errors import ArgumentError, RemoteError
from twinbus.server.broker.directory.config import (
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.wire.types import Described, ULong

TOPIC = "news"
SUBSCRIPTION = "all"
PATH = f"{TOPIC}/Subscriptions/{SUBSCRIPTION}"
_ALL = SubscriptionConfig(
    SubscriptionDescription(TOPIC, SUBSCRIPTION), (default_rule(),)
)
CONFIG = NamespaceConfig(
    "contoso", topics=(TopicConfig(TopicDescription(TOPIC), (_ALL,)),)
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Connection]:
    async with serving(tmp_path, CONFIG) as server:
        endpoint = Endpoint("127.0.0.1", server.port)
        key = SasKey(DEV_KEY_NAME, DEV_KEY_TEXT)
        made = Connection(endpoint, key, timeout_seconds=TIMEOUT_SECONDS)
        async with made:
            yield made


@pytest.fixture
def management(client: Connection) -> Management:
    return client.management(PATH)


@pytest.mark.parametrize(
    "wanted",
    [
        SqlFilter("amount > 10"),
        CorrelationFilter(label="x"),
        CorrelationFilter(
            "c",
            "m",
            "t",
            "r",
            "l",
            "s",
            "rs",
            "ct",
            {
                "text": "x",
                "whole": 5,
                "part": 0.5,
                "flag": True,
                "moment": datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
                "uuid": UUID(int=9),
                "bytes": b"z",
            },
        ),
    ],
)
@pytest.mark.parametrize("action", [None, SqlRuleAction("SET seen = 1")])
async def test_a_rule_comes_back_as_it_was_added(
    management: Management, wanted: Any, action: SqlRuleAction | None
) -> None:
    rule = RuleDescription("mine", wanted, action)

    await management.add_rule(rule)

    assert await management.rules() == [default_rule(), rule]


async def test_rules_are_listed_in_parts_and_removed(management: Management) -> None:
    names = [f"rule-{number}" for number in range(5)]
    for name in names:
        await management.add_rule(RuleDescription(name, SqlFilter("1=1")))

    await management.remove_rule("$Default")

    part = await management.rules(skip=1, top=3)
    assert [rule.name for rule in part] == names[1:4]
    assert part[0].created_at_ms > 0
    for name in names:
        await management.remove_rule(name)
    assert await management.rules() == []


async def test_a_rule_decides_what_a_subscription_gets(client: Connection) -> None:
    management = client.management(PATH)
    await management.remove_rule("$Default")
    await management.add_rule(RuleDescription("none", FalseFilter()))
    sender = client.sender(TOPIC)
    await sender.send(message())
    receiver = client.receiver(PATH)
    assert await receiver.receive(1, wait_seconds=0) == []

    await management.add_rule(RuleDescription("every", TrueFilter()))

    await sender.send(message())
    assert len(await receiver.receive(2)) == 1


async def test_a_refused_rule_says_why(management: Management) -> None:
    twice = RuleDescription("$default", SqlFilter("1=1"))
    with pytest.raises(RemoteError) as refused:
        await management.add_rule(twice)
    assert refused.value.condition == "com.microsoft:entity-already-exists"
    with pytest.raises(RemoteError) as refused:
        await management.remove_rule("unknown")
    assert refused.value.condition == "amqp:not-found"
    with pytest.raises(RemoteError, match="line 1"):
        await management.add_rule(RuleDescription("bad", SqlFilter("a = ")))


async def test_a_queue_has_no_rules(namespace: Site) -> None:
    with pytest.raises(RemoteError, match="no subscription"):
        await namespace.client().management(QUEUE).rules()


def test_parameters_are_refused_before_anything_is_sent() -> None:
    wanted = SqlFilter("a = @a", {"@a": 1})

    with pytest.raises(ArgumentError, match="administration"):
        request_of(RuleDescription("r", wanted))


def test_a_duration_is_written_as_dotnet_does() -> None:
    rule = RuleDescription("r", CorrelationFilter(properties={"d": timedelta(days=1)}))

    value = request_of(rule)["correlation-filter"]["properties"]["d"]

    assert value == Described("com.microsoft:timespan", 864_000_000_000)
    reply = Described(ULong(0x1370000009), [None] * 8 + [{"d": value}])
    empty = Described(ULong(0x13700000005), [])
    assert rule_of(Described(ULong(0x13700000004), [reply, empty, "r"])) == rule


@pytest.mark.parametrize(
    "reply",
    [
        None,
        "rule",
        [],
        Described(ULong(1), []),
        Described(ULong(0x13700000004), []),
        Described(ULong(0x13700000004), [None, None, "r"]),
        Described(ULong(0x13700000004), [Described(ULong(1), []), None, "r"]),
        Described(
            ULong(0x13700000004), [Described(ULong(0x1370000006), []), None, "r"]
        ),
    ],
)
def test_a_reply_that_is_no_rule_is_told(reply: Any) -> None:
    with pytest.raises(RemoteError, match="no rule"):
        rule_of(reply)


# -- removing ------------------------------------------------------------------------


async def test_old_messages_are_removed_and_new_ones_stay(namespace: Site) -> None:
    client = namespace.client()
    await client.sender(QUEUE).send([message() for _ in range(5)])
    namespace.server.advance(1000)
    between_ms = namespace.server.clock.now_ms()
    namespace.server.advance(1000)
    await client.sender(QUEUE).send([message(), message()])
    management = client.management(QUEUE)

    counts = [await management.delete(3, between_ms) for _ in range(3)]

    assert counts == [3, 2, 0]
    assert len(await management.peek(10)) == 2


async def test_messages_of_one_session_are_removed(namespace: Site) -> None:
    client = namespace.client()
    for session in ("a", "b"):
        await client.sender(SESSIONS).send(message(session_id=session))
    receiver = client.receiver(SESSIONS, ReceiveOptions(session_id="a"))
    await receiver.open()
    namespace.server.advance(1000)
    now_ms = namespace.server.clock.now_ms()

    assert await client.management(SESSIONS).delete(10, now_ms, "a") == 1

    (left,) = await client.management(SESSIONS).peek(10)
    assert left.session_id == "b"
