"""A rule that fails on a message costs that message alone, whatever the failure is.

Each of these once failed every turn of the namespace: the scheduled message became due
again in each, also after a restart, so no lock ended and no send was accepted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.desk import BODY, Desk, desk_at, with_properties
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.filters import SqlFilter, SqlRuleAction
from twinbus.core.rule import RuleDescription, default_rule
from twinbus.server.broker.directory.config import (
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.store.base import DEAD_LETTER
from twinbus.wire.message import sections
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION as DESCRIPTION
from twinbus.wire.message.names import DEAD_LETTER_REASON as REASON
from twinbus.wire.performatives import Accepted
from twinbus.wire.types import Described, Symbol

DOUBLE = RuleDescription("double", SqlFilter("1=1"), SqlRuleAction("SET a = a + a"), 0)


def subscription(name: str, rule: RuleDescription, bury: bool) -> SubscriptionConfig:
    description = SubscriptionDescription(
        "events", name, dead_lettering_on_filter_evaluation_exceptions=bury
    )
    return SubscriptionConfig(description, (rule,))


CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription("locked", lock_duration_ms=5_000),
        QueueDescription("planned"),
    ),
    topics=(
        TopicConfig(
            TopicDescription("events"),
            (
                subscription("strict", DOUBLE, bury=True),
                subscription("lenient", DOUBLE, bury=False),
                subscription("plain", default_rule(), bury=True),
            ),
        ),
    ),
)
LONG = Described(Symbol("com.microsoft:timespan"), (1 << 63) - 1)
STRICT, LENIENT, PLAIN = (
    f"events/subscriptions/{name}" for name in ("strict", "lenient", "plain")
)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_at(tmp_path, CONFIG) as made:
        yield made


async def prepare(desk: Desk) -> None:
    """A message on which rules fail is due in ten seconds, beside a lock and others."""
    assert isinstance(await desk.send("locked", BODY), Accepted)
    await desk.receive("locked")
    await desk.schedule("planned", BODY, 10)
    bad = with_properties(a=LONG)
    assert isinstance(await desk.schedule("events", bad, 10), Accepted)
    await desk.schedule("planned", BODY, 10)


async def check_served(desk: Desk) -> None:
    """The rules failed as any rule does, and nothing else did."""
    assert desk.counts("events").scheduled == 0
    (buried,) = desk.kept(STRICT, DEAD_LETTER)
    marks = sections.read_application_properties(buried.bare)
    assert marks[REASON] == "FilterEvaluation"
    assert marks[DESCRIPTION] == "a duration does not fit in 64 bits of 100 nanoseconds"
    assert marks["a"] == LONG
    assert desk.kept(STRICT) == []
    assert desk.kept(LENIENT) + desk.kept(LENIENT, DEAD_LETTER) == []
    (copy,) = desk.kept(PLAIN)
    assert sections.read_application_properties(copy.bare) == {"a": LONG}
    assert desk.counts("planned").active == 2
    assert isinstance(await desk.send("planned", BODY), Accepted)
    # Its lock has ended, so it comes again.
    again = await desk.receive("locked")
    assert again.payload.endswith(BODY)


async def test_a_scheduled_message_on_which_a_rule_fails(desk: Desk) -> None:
    await prepare(desk)

    await desk.advance(11)

    await check_served(desk)


async def test_a_failing_scheduled_message_does_not_stop_the_start(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path, CONFIG) as desk:
        await prepare(desk)

    async with desk_at(tmp_path, CONFIG) as desk:
        await desk.advance(11)

        await check_served(desk)


async def test_a_message_that_is_sent_at_once(desk: Desk) -> None:
    assert isinstance(await desk.send("events", with_properties(a=LONG)), Accepted)

    assert desk.counts(STRICT, DEAD_LETTER).active == 1
    assert desk.counts(PLAIN).active == 1
