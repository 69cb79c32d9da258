"""A pump that runs for ever: it waits cheaply, and comes back from every trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.client.peer import PeerConnection, peering
from tests.pairing.pump.pump_site import (
    BACKLOG,
    Namespaces,
    backlog_queue,
    message,
    namespaces,
)
from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions, Receiver
from twinbus.client.transport.endpoint import Endpoint
from twinbus.clock import ManualClock
from twinbus.core.names import parse_address
from twinbus.errors import RemoteError
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.pump.destinations import Senders
from twinbus.pairing.pump.pump import Pump, PumpSettings
from twinbus.pairing.status import DestinationCounts, PumpCounts, total
from twinbus.wire.link import Link
from twinbus.wire.performatives import Error
from twinbus.wire.types import Symbol

HOUR_MS = 3_600_000
DAYS = 30
MINUTE_MS = 60_000
# After how long Azure ends an idle link, and what it says then.
IDLE_MS = 10 * MINUTE_MS
IDLE_LINK = (
    "The link 'G2:1:receiver' is force detached. Code: consumer(link45). Details: "
    "AmqpMessageConsumer.IdleTimerExpired: Idle timeout: 00:10:00."
)
IDLE_CONNECTION = (
    "The connection was inactive for more than the allowed 300000 milliseconds and is "
    "closed by container 'LinkTracker'."
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Namespaces]:
    async with namespaces(tmp_path) as served:
        yield served


def backs_off(site: Namespaces) -> list[tuple[str, Any]]:
    kind = EventKind.SYPHON_BACKS_OFF
    return [
        (each.path, each.details["because"])
        for each in site.events
        if each.kind is kind
    ]


async def moved(pump: Pump, count: int) -> None:
    """Until so many messages came home."""
    async with asyncio.timeout(10):
        while pump.counts.moved < count:
            await pump._change()


# -- trouble with the secondary ----------------------------------------------------


async def test_a_secondary_that_is_away_is_asked_again_and_again(
    site: Namespaces,
) -> None:
    wire = await site.wire(site.secondary)
    wire.is_down = True
    pump = site.pump(source=site.connect(wire))
    running = asyncio.create_task(pump.run())
    pauses_ms = []
    for _ in range(12):
        await site.time.until_asleep(0, MINUTE_MS)
        (pause_ms,) = site.time.pauses_ms
        pauses_ms.append(pause_ms)
        site.time.advance(pause_ms)

    # Doubled each time, up to a minute, less up to a half so that pumps spread out.
    most_ms = [min(250 * 2**n, 60_000) for n in range(12)]
    assert all(
        most // 2 - 1 <= found <= most
        for found, most in zip(pauses_ms, most_ms, strict=True)
    )
    assert backs_off(site) == [(BACKLOG, "connection")]
    await site.time.until_asleep(0, MINUTE_MS)
    wire.is_down = False
    await site.divert(("orders", message("1")))
    site.time.advance(60_000)
    await moved(pump, 1)
    await pump.stop()
    await running


async def test_a_connection_that_breaks_while_idle_is_made_again(
    site: Namespaces,
) -> None:
    wire = await site.wire(site.secondary)
    pump = site.pump(source=site.connect(wire))
    running = asyncio.create_task(pump.run())
    await site.divert(("orders", message("1")))
    await moved(pump, 1)
    await pump.settled()

    wire.cut()
    await site.time.until_asleep(0, limits.RETRY_PAUSE_MS_MIN)
    site.time.advance(limits.RETRY_PAUSE_MS_MIN)
    await site.divert(("orders", message("2")))
    await moved(pump, 2)

    await pump.stop()
    await running
    assert await site.ids("orders") == ["1", "2"]


@pytest.mark.parametrize("step_ms", [2 * HOUR_MS, -2 * HOUR_MS])
async def test_a_secondary_whose_clock_is_set_is_drained(
    site: Namespaces, step_ms: int
) -> None:
    pump = site.pump()
    running = asyncio.create_task(pump.run())
    await site.divert(("orders", message("1")))
    await moved(pump, 1)
    await pump.settled()

    site.secondary.clock.step(step_ms)
    await site.divert(*(("orders", message(each)) for each in "234"))
    async with asyncio.timeout(10):
        while pump.counts.received < 4:
            await pump._change()
    # The first one after the step may be left until its lock ends, and those behind it.
    await pump.settled()
    site.time.advance(limits.BACKLOG_LOCK_SECONDS * 1000)
    await moved(pump, 4)

    await pump.stop()
    await running
    assert sorted(await site.ids("orders")) == ["1", "2", "3", "4"]


async def test_a_missing_queue_is_told_and_asked_for_seldom(site: Namespaces) -> None:
    path = parse_address(BACKLOG)
    await site.secondary.host.run(lambda namespace, turn: namespace.delete(path, turn))
    pump = site.pump()
    running = asyncio.create_task(pump.run())

    await site.time.until_asleep(limits.QUEUE_PAUSE_MS_MAX)

    assert backs_off(site) == [(BACKLOG, "missing")]
    await site.create(site.secondary, backlog_queue())
    await site.divert(("orders", message("1")))
    site.time.advance(limits.QUEUE_PAUSE_MS_MAX)
    await moved(pump, 1)
    await pump.stop()
    await running


async def test_a_missing_right_is_told_and_asked_for_seldom(site: Namespaces) -> None:
    stranger = SasKey("unknown", "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTMyLi4=")
    source = site.connect(site.secondary, credential=stranger)
    pump = site.pump(source=source)
    running = asyncio.create_task(pump.run())

    await site.time.until_asleep(limits.QUEUE_PAUSE_MS_MAX)

    assert backs_off(site) == [(BACKLOG, "access")]
    await pump.stop()
    await running


async def test_a_pump_that_is_cancelled_leaves_nothing_locked(
    site: Namespaces,
) -> None:
    pump = site.pump()
    running = asyncio.create_task(pump.run())
    await site.divert(("orders", message("1")))
    await moved(pump, 1)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    await site.divert(("orders", message("2")))
    assert await site.ready() == ["2"]


# -- idle links --------------------------------------------------------------------


def end_link(_: PeerConnection, link: Link) -> None:
    link.detach(Error(Symbol("amqp:link:detach-forced"), IDLE_LINK))


def end_connection(connection: PeerConnection, _: Link) -> None:
    condition = Symbol("amqp:connection:forced")
    connection.engine.close(Error(condition, IDLE_CONNECTION))


@pytest.mark.parametrize("end", [end_link, end_connection])
async def test_a_poll_that_a_service_ends_as_idle_is_followed_at_once_by_the_next(
    end: Callable[[PeerConnection, Link], None],
) -> None:
    clock = ManualClock()
    told: list[PairingEvent] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    settings = PumpSettings(clock=clock, sleep=sleep, on_event=told.append)
    async with (
        peering() as peer,
        Connection(Endpoint("127.0.0.1", peer.port), SasKey("a", "b")) as source,
    ):
        pump = Pump(source, Senders(source), BACKLOG, settings)
        running = asyncio.create_task(pump.run())
        for ended in range(3):
            await peer.until(lambda: len(peer.polls) == ended + 1)  # noqa: B023
            connection, link = peer.polls[-1]
            clock.advance(IDLE_MS)
            end(connection, link)
            connection.flush()
        await peer.until(lambda: len(peer.polls) == 4)

        assert (pump.counts.receives, slept, told) == (4, [], [])
        await pump.stop()
        await running


async def test_a_service_that_ends_links_early_is_backed_off_from(
    site: Namespaces,
) -> None:
    """Otherwise it would be asked again and again without a pause."""
    async with peering() as peer:
        source = site.connect(peer)
        pump = site.pump(source=source)
        running = asyncio.create_task(pump.run())
        await peer.until(lambda: len(peer.polls) == 1)
        connection, link = peer.polls[0]

        end_link(connection, link)
        connection.flush()
        await site.time.until_asleep(0, limits.RETRY_PAUSE_MS_MIN)

        assert backs_off(site) == [(BACKLOG, "connection")]
        await pump.stop()
        await running
        await source.close()


# -- what waiting costs ------------------------------------------------------------


class EmptySecondary(Connection):
    """A secondary on which nothing ever arrives, by a clock of its own."""

    def __init__(self, idle_ms: int | None = None) -> None:
        super().__init__(Endpoint("127.0.0.1", 1), SasKey("name", "key"))
        # After how long it ends idle links.
        self.idle_ms = idle_ms
        self.time = ManualClock()
        self.polls = 0
        self.waiting: list[asyncio.Future[None]] = []
        self.news = asyncio.Event()

    def receiver(self, path: str, options: ReceiveOptions | None = None) -> Receiver:
        return EmptyReceiver(self, path, options or ReceiveOptions())

    async def poll_ends(self, pumps: int) -> None:
        """Let the time of one poll pass."""
        while len(self.waiting) < pumps:
            self.news.clear()
            await self.news.wait()
        self.time.advance(self.idle_ms or int(limits.SYPHON_POLL_SECONDS * 1000))
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.set_result(None)


class EmptyReceiver(Receiver):
    """Waits as long as it is told to."""

    async def receive(
        self, count_max: int = 1, wait_seconds: float | None = None
    ) -> list[Message]:
        assert count_max > 0
        assert wait_seconds == limits.SYPHON_POLL_SECONDS
        secondary = self._connection
        assert isinstance(secondary, EmptySecondary)
        secondary.polls += 1
        secondary.waiting.append(asyncio.get_running_loop().create_future())
        secondary.news.set()
        await secondary.waiting[-1]
        if secondary.idle_ms is not None:
            raise RemoteError("amqp:link:detach-forced", IDLE_LINK)
        return []


@pytest.mark.parametrize(
    ("idle_ms", "polls"),
    [
        (None, (40, 960, 28_800)),
        # Where a service ends idle links after ten minutes, as Azure does.
        (IDLE_MS, (60, 1_440, 43_200)),
    ],
)
async def test_what_ten_idle_queues_cost_in_30_days(
    idle_ms: int | None, polls: tuple[int, int, int]
) -> None:
    secondary = EmptySecondary(idle_ms)
    clock = secondary.time
    settings = PumpSettings(clock=clock)
    senders = Senders(secondary)
    pumps = [Pump(secondary, senders, str(n), settings) for n in range(10)]
    running = [asyncio.create_task(pump.run()) for pump in pumps]
    start_ms = clock.now_ms()
    polls_by_hour = {}

    hours = 0.0
    while hours < DAYS * 24:
        await secondary.poll_ends(len(pumps))
        hours = (clock.now_ms() - start_ms) / HOUR_MS
        polls_by_hour[hours] = secondary.polls

    assert tuple(polls_by_hour[each] for each in (1, 24, 24 * DAYS)) == polls
    for pump in pumps:
        await pump.stop()
    await asyncio.gather(*running)


async def test_an_empty_receive_is_counted_once(site: Namespaces) -> None:
    pump = site.pump()

    assert await pump.step(0) == 0

    assert pump.counts.receives == 1
    assert replace(pump.counts, receives=0) == PumpCounts()


# -- senders and figures ------------------------------------------------------------


async def test_links_to_destinations_are_bounded(site: Namespaces) -> None:
    senders = Senders(site.target, open_max=2)
    links = []
    for path in ("orders", "Invoices", "large"):
        with senders.use(path) as sender:
            await sender.open()
            links.append(sender._link)
    await asyncio.gather(*senders._closing)

    # The one that was not used for longest is closed.
    assert [link is not None and link.failure is None for link in links] == [
        False,
        True,
        True,
    ]
    with senders.use("sb://contoso/INVOICES/") as again:
        assert again._link is links[1]
    await senders.close()
    assert all(link is not None and link.failure is not None for link in links)


async def test_a_link_that_is_in_use_is_not_closed(site: Namespaces) -> None:
    senders = Senders(site.target, open_max=1)
    with senders.use("orders") as sender:
        await sender.open()
        with senders.use("invoices"), senders.use("large"):
            pass
        await sender.send(message("1"))

    assert await site.ids("orders") == ["1"]
    await senders.close()


def test_figures_of_pumps_add_up() -> None:
    first, second = PumpCounts(moved=1, receives=2), PumpCounts(moved=3, late=1)
    first.destinations["orders"] = DestinationCounts(1, 10)
    second.destinations["orders"] = DestinationCounts(3, 30, "busy")
    second.dead_lettered["MessageRefused"] = 2

    found = total([first, second, second])

    assert (found.moved, found.receives, found.late) == (7, 2, 2)
    assert found.dead_lettered == {"MessageRefused": 4}
    assert found.destinations == {"orders": DestinationCounts(7, 70, "busy")}
    assert found.as_dict()["destinations"]["orders"]["moved"] == 7
    assert first.moved == 1
