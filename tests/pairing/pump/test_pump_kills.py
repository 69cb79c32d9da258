"""A connection that is cut at every one of its bytes' arrivals, one after the other.

Whatever is cut when: nothing is lost, what arrives twice has the same id, first
arrivals are in order, and nothing stays behind.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.pump.pump_site import Namespaces, Time, Wire, message, namespaces
from tests.pairing.pump.test_pump_faults import Memory
from twinbus.errors import RemoteError
from twinbus.pairing.pump.pump import Pump
from twinbus.pairing.status import PumpCounts

COUNT = 12
# No story has as many arrivals of bytes.
CUTS_MAX = 400
# With and without a journal, every second one: together all of them.
STRIDE = 2


class Story:
    """Twelve messages for two entities and one for none, and one cut."""

    def __init__(self, site: Namespaces, cut: Wire, pump: Pump) -> None:
        self.site = site
        self.cut = cut
        self.pump = pump

    async def run(self) -> None:
        sent = [
            ("orders" if n % 2 else "invoices", message(str(n))) for n in range(COUNT)
        ]
        sent.insert(7, ("nowhere", message("dead")))
        await self.site.divert(*sent)
        for _ in range(100):
            if not await self._step() and not await self.site.backlog():
                return
        raise AssertionError("The backlog is never empty.")

    async def _step(self) -> int:
        came = 0
        try:
            came = await self.pump.step(0)
            await self.pump.settled()
        except RemoteError:
            # As `run` does, less the pause.
            pass
        if not came:
            self.site.time.advance(10_000)
        return came

    async def check(self, twice_allowed: bool) -> None:
        dead = [each[0] for each in await self.site.dead()]
        assert set(dead) == {"dead"}
        for path, first in (("orders", 1), ("invoices", 0)):
            ids = [int(each) for each in await self.site.ids(path)]
            expected = list(range(first, COUNT, 2))
            assert list(dict.fromkeys(ids)) == expected
            if not twice_allowed:
                assert Counter(ids).most_common(1)[0][1] == 1, ids


class ShortSleeps(Time):
    """Pauses before another try pass at once; locks are renewed when time passes."""

    async def sleep(self, seconds: float) -> None:
        if seconds > 5:
            await super().sleep(seconds)
        else:
            self.advance(int(seconds * 1000))
            await asyncio.sleep(0)


async def story(folder: Path, side: str, cut_at: int, journal: Any) -> PumpCounts:
    """Play it once; returns what the pump has counted."""
    async with namespaces(folder) as site:
        site.time = ShortSleeps((site.primary, site.secondary))
        server = site.secondary if side == "source" else site.primary
        wire = await site.wire(server)
        connection: dict[str, Any] = {side: site.connect(wire)}
        pump = site.pump(
            journal,
            chunk=4,
            clock=site.time.clock,
            sleep=site.time.sleep,
            **connection,
        )
        wire.cut_at = cut_at
        played = Story(site, wire, pump)
        async with asyncio.timeout(30):
            await played.run()
        await pump.stop()
        # Without a cut, or with a journal and the cut at the source, nothing is twice.
        once = wire.events < cut_at or (journal is not None and side == "source")
        await played.check(twice_allowed=not once)
        if wire.events < cut_at:
            raise EndOfStory
        return pump.counts


class EndOfStory(Exception):
    """The cut would have come after the end."""


@pytest.mark.parametrize("with_journal", [False, True])
@pytest.mark.parametrize("side", ["source", "target"])
async def test_nothing_is_lost_wherever_a_connection_is_cut(
    tmp_path: Path, side: str, with_journal: bool
) -> None:
    cuts = 0
    for cut_at in range(1 + with_journal, CUTS_MAX, STRIDE):
        journal = Memory() if with_journal else None
        folder = tmp_path / str(cut_at)
        try:
            await story(folder, side, cut_at, journal)
        except EndOfStory:
            break
        cuts += 1
    else:
        raise AssertionError("The story has no end.")
    assert cuts > 5


async def stopped_story(folder: Path, side: str, stop_at: int, kill: bool) -> None:
    """Stop a pump, or cancel it, when bytes arrive for the so-manieth time."""
    async with namespaces(folder) as site:
        wire = await site.wire(site.secondary if side == "source" else site.primary)
        await site.divert(*[("orders", message(str(n))) for n in range(COUNT)])
        connection: dict[str, Any] = {side: site.connect(wire)}
        pump = site.pump(chunk=4, **connection)
        running = asyncio.create_task(pump.run())
        ended = asyncio.create_task(wire.until(stop_at))
        moved = asyncio.create_task(all_moved(pump))
        await asyncio.wait((ended, moved), return_when=asyncio.FIRST_COMPLETED)
        if kill:
            running.cancel()
        await pump.stop()
        await asyncio.gather(running, return_exceptions=True)
        ended.cancel()
        moved.cancel()

        # Not one is locked, lost or doubled, without waiting for anything.
        moved_ids = [int(each) for each in await site.ids("orders")]
        back = [int(each) for each in await site.ready()]
        assert moved_ids + back == list(range(COUNT))
        if wire.events < stop_at:
            raise EndOfStory


async def all_moved(pump: Pump) -> None:
    while pump.counts.moved < COUNT:
        await pump._change()
    await pump.settled()


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("side", ["source", "target"])
async def test_nothing_stays_locked_whenever_a_pump_stops(
    tmp_path: Path, side: str, kill: bool
) -> None:
    stops = 0
    for stop_at in range(1 + kill, CUTS_MAX, STRIDE):
        try:
            await stopped_story(tmp_path / str(stop_at), side, stop_at, kill)
        except EndOfStory:
            break
        stops += 1
    else:
        raise AssertionError("The story has no end.")
    assert stops > 5
