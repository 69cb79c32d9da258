"""Destinations that take nothing for a while: they alone wait, and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.pump.pump_site import (
    BACKLOG,
    LOCK_MS,
    LONG_SECONDS,
    Namespaces,
    Wire,
    message,
    namespaces,
)
from twinbus import limits
from twinbus.client.credentials import SasKey
from twinbus.core.entity import QueueDescription
from twinbus.pairing.events import EventKind
from twinbus.pairing.pump.pump import Pump
from twinbus.pairing.rules.envelope import divert


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Namespaces]:
    async with namespaces(tmp_path) as served:
        yield served


@pytest.fixture
async def wire(site: Namespaces) -> Wire:
    """The way to a primary that may be away."""
    return await site.wire(site.primary)


async def pump_all(pump: Pump) -> int:
    """Everything that is ready."""
    came = 0
    while found := await pump.step(0):
        came += found
    await pump.settled()
    return came


def backs_off(site: Namespaces) -> list[tuple[str, Any]]:
    kind = EventKind.SYPHON_BACKS_OFF
    return [
        (each.path, each.details["because"])
        for each in site.events
        if each.kind is kind
    ]


# -- who rests ---------------------------------------------------------------------


async def test_a_throttled_destination_rests_and_the_others_go_on(
    site: Namespaces,
) -> None:
    pump = site.pump()
    await site.divert(("slow", message("1")))
    await pump_all(pump)

    await site.divert(
        ("slow", message("2")), ("orders", message("a")), ("slow", message("3"))
    )
    await pump_all(pump)

    assert await site.ids("slow") == ["1"]
    assert await site.ids("orders") == ["a"]
    assert backs_off(site) == [("slow", "busy")]
    assert pump.counts.destinations["slow"].state == "busy"
    assert pump.counts.parked == pump.counts.resting == 2
    assert await site.dead() == []


async def test_a_full_destination_rests(site: Namespaces) -> None:
    large = message("x", b"x" * 250_000)
    sender = site.at_primary.sender("full")
    for _ in range(4):
        await sender.send(large)
    pump = site.pump()
    await site.divert(("full", message("1", b"x" * 100_000)), ("orders", message("a")))

    await pump_all(pump)

    assert await site.ids("orders") == ["a"]
    assert backs_off(site) == [("full", "full")]
    # A receiver makes room, so there is some when the message comes up again.
    receiver = site.at_primary.receiver("full")
    await receiver.complete(await receiver.receive(4, LONG_SECONDS))
    site.time.advance(LOCK_MS)
    await pump_all(pump)
    assert await site.ids("full") == ["1"]
    assert pump.counts.destinations["full"].state == "ok"
    assert pump.counts.resting == 0


async def test_a_primary_that_is_away_is_waited_for(
    site: Namespaces, wire: Wire
) -> None:
    wire.is_down = True
    pump = site.pump(target=site.connect(wire))
    await site.divert(*[("orders", message(str(n))) for n in range(5)])

    await pump_all(pump)

    assert backs_off(site) == [("orders", "away")]
    wire.is_down = False
    site.time.advance(LOCK_MS)
    await pump_all(pump)
    assert await site.ids("orders") == ["0", "1", "2", "3", "4"]
    assert await site.backlog() == []


async def test_without_a_right_at_the_primary_nothing_is_dead_lettered(
    site: Namespaces,
) -> None:
    stranger = SasKey("unknown", "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTMyLi4=")
    target = site.connect(site.primary, credential=stranger)
    pump = site.pump(target=target)
    await site.divert(("orders", message("1")))

    await pump_all(pump)

    assert backs_off(site) == [("orders", "no access")]
    assert await site.dead() == []
    assert len(await site.backlog()) == 1


async def test_resting_is_told_once_until_it_is_over(site: Namespaces) -> None:
    pump = site.pump()
    await site.divert(("slow", message("1")))
    await pump_all(pump)
    for number in range(3):
        await site.divert(("slow", message(f"again {number}")))
        await pump_all(pump)

    assert backs_off(site) == [("slow", "busy")]


# -- how long ----------------------------------------------------------------------


async def test_a_busy_destination_is_left_alone_for_ten_seconds(
    tmp_path: Path,
) -> None:
    async with namespaces(tmp_path) as site:
        # A lock shorter than the rest: the message comes up before it is over.
        await site.change(
            site.secondary, "contoso/x-servicebus-transfer/0", lock_duration_ms=5_000
        )
        pump = site.pump()
        await site.divert(("slow", message("1")))
        await pump_all(pump)
        await site.divert(("slow", message("2")))
        await pump_all(pump)

        site.time.advance(5_000)
        assert await pump_all(pump) == 1
        assert await site.ids("slow") == ["1"]
        site.time.advance(5_000)
        assert await pump_all(pump) == 1
        assert await site.ids("slow") == ["1", "2"]


async def test_parked_messages_are_not_renewed(site: Namespaces) -> None:
    pump = site.pump()
    await site.divert(("slow", message("1")))
    await pump_all(pump)
    await site.divert(("slow", message("2")))
    await pump_all(pump)

    # Two thirds of the lock pass, in which a lock in hand would be renewed twice.
    for _ in range(3):
        site.time.advance(LOCK_MS // 3)

    assert await site.ready() == ["2"]


# -- order -------------------------------------------------------------------------


async def test_order_is_kept_while_a_destination_rests(site: Namespaces) -> None:
    pump = site.pump()
    await site.divert(("slow", message("1")))
    await pump_all(pump)
    await site.divert(("slow", message("2")), ("slow", message("3")))
    await pump_all(pump)
    site.time.advance(30_000)
    # The rest is over, but 2 and 3 are away: 4 would overtake them.
    await site.divert(("slow", message("4")))
    await pump_all(pump)
    assert await site.ids("slow") == ["1"]

    site.time.advance(30_000)
    await pump_all(pump)
    assert await site.ids("slow") == ["1", "2", "3"]

    site.time.advance(30_000)
    await pump_all(pump)
    assert await site.ids("slow") == ["1", "2", "3", "4"]


async def test_a_pump_waits_for_what_another_pump_left_parked(
    site: Namespaces,
) -> None:
    first = site.pump()
    await site.divert(("slow", message("1")))
    await pump_all(first)
    await site.divert(("slow", message("2")))
    await pump_all(first)
    await first.stop()
    site.time.advance(30_000)

    second = site.pump()
    await site.divert(("slow", message("3")), ("orders", message("a")))
    await pump_all(second)

    # Nothing tells the second pump but the gap before 3.
    assert await site.ids("slow") == ["1"]
    assert await site.ids("orders") == ["a"]
    site.time.advance(30_000)
    await pump_all(second)
    assert await site.ids("slow") == ["1", "2"]
    site.time.advance(30_000)
    await pump_all(second)
    assert await site.ids("slow") == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("set_ms", "age_ms", "ttl_ms", "ttl_rule"),
    [
        pytest.param(-3_600_000, 0, 600_000, "remaining", id="clock set back"),
        pytest.param(0, 3_600_000, 600_000, "restart", id="time to live restarts"),
        pytest.param(0, 0, LOCK_MS // 2, "remaining", id="expires before a lock ends"),
    ],
)
async def test_a_message_that_another_receiver_may_return_alive_is_waited_for(
    site: Namespaces, set_ms: int, age_ms: int, ttl_ms: int, ttl_rule: str
) -> None:
    site.time.clock.step(set_ms)
    diverted_ms = site.time.clock.now().wall_ms - age_ms
    first = divert(message("1", ttl_ms=ttl_ms), "orders", diverted_ms)
    await site.put(first, divert(message("2"), "orders", diverted_ms))
    receiver = site.at_backlog.receiver(BACKLOG)
    held = await receiver.receive(1, LONG_SECONDS)
    pump = site.pump(ttl_rule=ttl_rule)

    await pump_all(pump)
    assert await site.ids("orders") == []

    await receiver.abandon(held)
    await pump_all(pump)
    assert await site.ids("orders") == ["1"]

    site.time.advance(LOCK_MS)
    await pump_all(pump)
    assert (await site.ids("orders"))[-1] == "2"


async def test_a_pump_that_need_not_keep_order_does_not_look_for_gaps(
    site: Namespaces,
) -> None:
    receiver = site.at_backlog.receiver(BACKLOG)
    await site.divert(("orders", message("1")), ("orders", message("2")))
    (held,) = await receiver.receive(1, LONG_SECONDS)

    await pump_all(site.pump(keeps_order=False))

    assert held.message_id == "1"
    assert await site.ids("orders") == ["2"]


async def test_several_syphons_may_compete(site: Namespaces) -> None:
    await site.divert(*[("orders", message(str(n))) for n in range(50)])
    pumps = [site.pump(source=site.connect(site.secondary), chunk=5) for _ in range(2)]

    while await site.backlog():
        await asyncio.gather(*(pump_all(pump) for pump in pumps))
        site.time.advance(LOCK_MS // 3)

    found = await site.ids("orders")
    assert sorted(found, key=int) == [str(n) for n in range(50)]


# -- too many ----------------------------------------------------------------------


async def test_with_too_many_parked_nothing_more_is_received_for_a_while(
    site: Namespaces, wire: Wire
) -> None:
    wire.is_down = True
    pump = site.pump(target=site.connect(wire))
    count = limits.PARKED_MESSAGES_MAX
    await site.divert(*[("orders", message(str(n))) for n in range(count + 100)])
    await site.divert(("invoices", message("last")))
    while pump.counts.resting < count:
        await pump.step(LONG_SECONDS)
        await pump.settled()
    receives = pump.counts.receives

    assert await _paused(site, pump, LOCK_MS)

    assert pump.counts.receives == receives
    wire.is_down = False
    site.time.advance(LOCK_MS)
    while await site.backlog():
        await pump_all(pump)
        site.time.advance(10_000)
    assert await site.ids("invoices") == ["last"]
    (first, *_) = await site.ids("orders", 1)
    assert first == "0"
    assert pump.counts.moved == count + 101


async def _paused(site: Namespaces, pump: Pump, milliseconds: int) -> bool:
    """Whether the next step begins with a pause."""
    step = asyncio.create_task(pump.step(0))
    await site.time.until_asleep(milliseconds)
    is_waiting = not step.done()
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    return is_waiting


async def test_a_destination_made_later_is_not_waited_for(site: Namespaces) -> None:
    """What is missing is dead-lettered at once, since it may never exist."""
    pump = site.pump()
    await site.divert(("new", message("1")))
    await pump_all(pump)

    await site.create(site.primary, QueueDescription("new"))
    await site.divert(("new", message("2")))
    await pump_all(pump)

    assert await site.ids("new") == ["2"]
    assert [each[0] for each in await site.dead()] == ["1"]
