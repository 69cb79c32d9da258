"""A pump between two real servers: what comes home, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.pump.pump_site import (
    BACKLOG,
    LONG_SECONDS,
    Namespaces,
    message,
    namespaces,
)
from tests.pairing.rules.messages import canonical, section
from twinbus.core.entity import ActiveStatus
from twinbus.pairing.pump.pump import Pump
from twinbus.pairing.rules.ping import ping_message
from twinbus.wire.message import sections
from twinbus.wire.types import Symbol, Timestamp, UByte


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Namespaces]:
    async with namespaces(tmp_path) as served:
        yield served


async def pump_once(pump: Pump) -> int:
    came = await pump.step(LONG_SECONDS)
    await pump.settled()
    return came


def scheduled(payload: bytes, time_ms: int) -> bytes:
    time = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(time_ms)}
    return section(sections.MESSAGE_ANNOTATIONS, time) + payload


def by_hand(aliases: dict[str, Any]) -> bytes:
    """A message that this package did not divert."""
    return (
        section(sections.PROPERTIES, ["by hand"])
        + section(sections.APPLICATION_PROPERTIES, aliases)
        + section(sections.DATA, b"body")
    )


# -- what comes home ---------------------------------------------------------------


async def test_messages_come_home_and_leave_the_backlog(site: Namespaces) -> None:
    await site.divert(
        ("orders", message("1")), ("invoices", message("2")), ("orders", message("3"))
    )
    pump = site.pump()

    assert await pump_once(pump) == 3

    assert await site.ids("orders") == ["1", "3"]
    assert await site.ids("invoices") == ["2"]
    assert await site.backlog() == []
    assert pump.counts.received == pump.counts.moved == 3
    assert pump.counts.destinations["orders"].moved == 2


async def test_a_moved_message_equals_the_message_sent(site: Namespaces) -> None:
    properties = section(sections.APPLICATION_PROPERTIES, {"x-ms-path": "mine", "a": 1})
    original = section(sections.HEADER, [True, UByte(7)]) + (
        section(sections.PROPERTIES, ["1", b"user"]) + properties
    )
    original += section(sections.DATA, b"x" * 300) + section(sections.DATA, b"y")
    await site.divert(("orders", original))

    await pump_once(site.pump())

    (arrived,) = await site.arrived("orders")
    assert canonical(arrived.payload) == canonical(original)


async def test_the_session_id_is_restored(site: Namespaces) -> None:
    await site.divert(("baskets", message("1", session_id="s")))

    await pump_once(site.pump())

    (arrived,) = await site.arrived("baskets")
    assert arrived.session_id == "s"


async def test_order_is_kept_for_each_destination(site: Namespaces) -> None:
    sent = [("orders" if n % 3 else "invoices", message(str(n))) for n in range(60)]
    await site.divert(*sent)
    pump = site.pump(chunk=7)

    while pump.counts.received < 60:
        await pump.step(LONG_SECONDS)
    await pump.settled()

    assert await site.ids("orders") == [str(n) for n in range(60) if n % 3]
    assert await site.ids("invoices") == [str(n) for n in range(0, 60, 3)]


async def test_all_spellings_of_a_path_are_one_destination(site: Namespaces) -> None:
    await site.divert(
        ("Orders", message("1")), ("orders/", message("2")), ("ORDERS", message("3"))
    )

    pump = site.pump()
    await pump_once(pump)
    await site.divert(("orDers", message("4")))
    await pump_once(pump)

    assert await site.ids("orders") == ["1", "2", "3", "4"]
    assert [(path, each.moved) for path, each in pump.counts.destinations.items()] == [
        ("Orders", 4)
    ]


async def test_more_than_a_batch_holds_comes_home(site: Namespaces) -> None:
    large = b"x" * 100_000
    await site.divert(*[("orders", message(str(n), large)) for n in range(10)])
    pump = site.pump()

    while pump.counts.received < 10:
        await pump.step(LONG_SECONDS)
    await pump.settled()

    assert await site.ids("orders") == [str(n) for n in range(10)]


async def test_a_ping_found_in_a_backlog_is_dropped(site: Namespaces) -> None:
    # Our servers never store one, so it becomes one on its way out.
    ping = ping_message("s", "ping").replace(b"servicebus-ping", b"servicebus-pong")
    await site.divert(("orders", ping), ("orders", message("1")))
    wire = await site.wire(site.secondary)
    wire.swap = (b"servicebus-pong", b"servicebus-ping")
    pump = site.pump(source=site.connect(wire))

    await pump_once(pump)

    assert await site.ids("orders") == ["1"]
    assert await site.backlog() == []
    assert pump.counts.pings == 1


# -- times -------------------------------------------------------------------------


async def test_the_time_spent_in_the_backlog_counts(site: Namespaces) -> None:
    await site.divert(("orders", message("1", ttl_ms=60_000)))
    site.time.advance(20_000)

    await pump_once(site.pump())

    (arrived,) = await site.arrived("orders")
    assert arrived.header[2] == 40_000


async def test_messages_that_expired_in_the_backlog_are_dead_lettered(
    site: Namespaces,
) -> None:
    await site.divert(("orders", message("1", ttl_ms=60_000)), ("orders", message("2")))
    site.time.advance(60_001)
    pump = site.pump()

    await pump_once(pump)

    assert await site.ids("orders") == ["2"]
    ((message_id, reason, description),) = await site.dead()
    assert (message_id, reason) == ("1", "TTLExpiredException")
    assert "orders" in description
    assert pump.counts.dead_lettered == {"TTLExpiredException": 1}


async def test_restart_gives_the_whole_time_to_live_again(site: Namespaces) -> None:
    await site.divert(("orders", message("1", ttl_ms=60_000)))
    site.time.advance(90_000)

    await pump_once(site.pump(ttl_rule="restart"))

    (arrived,) = await site.arrived("orders")
    assert arrived.header[2] == 60_000


async def test_a_scheduled_time_in_the_past_is_delivered_now(site: Namespaces) -> None:
    now_ms = site.time.clock.now_ms()
    await site.divert(("orders", scheduled(message("1"), now_ms + 10_000)))
    site.time.advance(20_000)

    await pump_once(site.pump())

    found = await site.at_primary.receiver("orders").receive(1, LONG_SECONDS)
    assert [each.message_id for each in found] == ["1"]


async def test_a_scheduled_time_in_the_future_is_kept(site: Namespaces) -> None:
    now_ms = site.time.clock.now_ms()
    original = scheduled(message("1", ttl_ms=5_000), now_ms + 60_000)
    await site.divert(("orders", original))
    # Its time to live has not begun.
    site.time.advance(30_000)

    await pump_once(site.pump())

    receiver = site.at_primary.receiver("orders")
    assert await receiver.receive(1, 0) == []
    site.time.advance(30_000)
    (found,) = await receiver.receive(1, LONG_SECONDS)
    assert found.header[2] == 5_000


# -- what can never be sent --------------------------------------------------------


@pytest.mark.parametrize(
    ("aliases", "reason"),
    [
        ({}, "PathMissing"),
        ({"x-ms-path": 7}, "AliasInvalid"),
        ({"x-ms-path": "orders", "x-ms-sessionid": 7}, "AliasInvalid"),
        ({"x-ms-path": "orders", "x-ms-timetolive": "soon"}, "AliasInvalid"),
        (
            {"x-ms-path": "orders", "x-ms-scheduledenqueuetimeutc": True},
            "AliasInvalid",
        ),
        # These are nodes that take requests, with the rights of the syphon.
        ({"x-ms-path": "orders/$management"}, "AliasInvalid"),
        ({"x-ms-path": "$cbs"}, "AliasInvalid"),
    ],
)
async def test_a_message_with_bad_aliases_is_dead_lettered(
    site: Namespaces, aliases: dict[str, Any], reason: str
) -> None:
    await site.put(by_hand(aliases))
    await site.divert(("orders", message("good")))
    pump = site.pump()

    while pump.counts.received < 2:
        await pump_once(pump)

    assert await site.ids("orders") == ["good"]
    ((message_id, found, description),) = await site.dead()
    assert (message_id, found) == ("by hand", reason)
    assert description


@pytest.mark.parametrize(
    ("path", "reason"),
    [("nowhere", "DestinationNotFound"), ("closed", "DestinationDisabled")],
)
async def test_a_destination_that_takes_nothing_dead_letters_all_for_it(
    site: Namespaces, path: str, reason: str
) -> None:
    await site.divert(
        (path, message("1")), ("orders", message("2")), (path, message("3"))
    )
    pump = site.pump()

    await pump_once(pump)

    assert await site.ids("orders") == ["2"]
    assert [each[:2] for each in await site.dead()] == [("1", reason), ("3", reason)]
    assert await site.backlog() == []
    assert pump.counts.dead_lettered == {reason: 2}


async def test_a_message_too_large_for_its_destination_is_dead_lettered(
    site: Namespaces,
) -> None:
    await site.change(
        site.secondary, BACKLOG.lower(), max_message_size_in_kilobytes=1024
    )
    bodies = [b"small"] * 5 + [b"x" * 300_000] + [b"small"] * 5
    await site.divert(
        *[("orders", message(str(n), body)) for n, body in enumerate(bodies)]
    )
    pump = site.pump()

    while pump.counts.received < len(bodies):
        await pump_once(pump)

    assert [each[:2] for each in await site.dead()] == [("5", "MessageTooLarge")]
    assert await site.ids("orders") == [str(n) for n in range(11) if n != 5]


async def test_a_message_that_poisons_a_batch_does_not_take_its_neighbours(
    site: Namespaces,
) -> None:
    # A queue with sessions refuses what has none.
    sessions = ["s", "s", None, "s", "s", "s", None]
    await site.divert(
        *[
            ("baskets", message(str(n), session_id=session))
            for n, session in enumerate(sessions)
        ]
    )
    pump = site.pump()

    await pump_once(pump)

    assert await site.ids("baskets") == ["0", "1", "3", "4", "5"]
    assert [each[:2] for each in await site.dead()] == [
        ("2", "MessageRefused"),
        ("6", "MessageRefused"),
    ]
    assert await site.backlog() == []


async def test_a_destination_enabled_later_takes_later_messages(
    site: Namespaces,
) -> None:
    await site.divert(("closed", message("1")))
    pump = site.pump()
    await pump_once(pump)

    await site.change(site.primary, "closed", status=ActiveStatus.ACTIVE)
    await site.divert(("closed", message("2")))
    await pump_once(pump)

    assert await site.ids("closed") == ["2"]
    assert [each[0] for each in await site.dead()] == ["1"]
