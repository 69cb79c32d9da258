"""The syphon of an application on a clock that tests move: queues, progress, end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.pairing.pump.pump_site import (
    LABEL,
    LONG_SECONDS,
    Namespaces,
    backlog_queue,
    message,
    namespaces,
)
from twinbus import limits
from twinbus.core.names import parse_address
from twinbus.pairing.errors import PairedFactoryError
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.rules.naming import backlog_path, found_indexes
from twinbus.pairing.shell.pair import Pair
from twinbus.pairing.shell.syphon import Syphon, Which

LOOK_MS = int(limits.SYPHON_LOOK_SECONDS * 1000)
GRACE_MS = int(limits.PARTNER_GRACE_SECONDS * 1000)


class Paired:
    """A syphon between the namespaces of a site."""

    def __init__(self, site: Namespaces) -> None:
        self.site = site
        options = SendAvailabilityPairedNamespaceOptions(object(), object(), 1)
        options.set_usable(frozenset({0}))
        self.pair = Pair(site.target, site.source, options, LABEL)
        self.looks = 0
        self.list_failure: Exception | None = None
        self.faulted: list[tuple[Which, PairedFactoryError]] = []
        self.syphon = Syphon(self.pair, self.list_indexes, self.fault, site.settings)

    async def list_indexes(self) -> list[int]:
        """What an administration client would find."""
        self.looks += 1
        if self.list_failure is not None:
            raise self.list_failure
        entities = self.site.secondary.host.namespace.entities
        return found_indexes([entity.name for entity in entities], LABEL)

    def fault(self, which: Which, error: PairedFactoryError) -> None:
        self.faulted.append((which, error))
        # As a factory does.
        self.syphon.factory_ended(which)

    async def came_home(self, count: int) -> list[str]:
        """Wait for messages at `orders`; returns their ids when all is settled."""
        receiver = self.site.at_primary.receiver("orders")
        found: list[str] = []
        while len(found) < count:
            messages = await receiver.receive(count, LONG_SECONDS)
            assert messages
            await receiver.complete(messages)
            found += [each.message_id for each in messages]
        for queue in self.syphon._queues.values():
            assert queue.pump is not None
            await queue.pump.settled()
        return found


@pytest.fixture
async def paired(tmp_path: Path) -> AsyncIterator[Paired]:
    async with namespaces(tmp_path) as site:
        made = Paired(site)
        yield made
        await made.syphon.stop()
        made.pair.stop()


def kinds(site: Namespaces) -> list[EventKind]:
    return [event.kind for event in site.events]


# -- queues ------------------------------------------------------------------------


async def test_every_index_that_exists_is_drained_also_beyond_the_count(
    paired: Paired,
) -> None:
    site = paired.site
    await site.create(site.secondary, backlog_queue(17))
    for index in (0, 1, 17):
        path = backlog_path(LABEL, index)
        await site.divert(("orders", message(str(index))), queue=path)

    paired.syphon.start()

    assert sorted(await paired.came_home(3)) == ["0", "1", "17"]
    queues = paired.syphon.status().queues
    assert {path: counts.moved for path, counts in queues.items()} == {
        backlog_path(LABEL, 0): 1,
        backlog_path(LABEL, 1): 1,
        backlog_path(LABEL, 17): 1,
    }


async def test_queues_that_are_made_later_are_found(paired: Paired) -> None:
    site = paired.site
    paired.syphon.start()
    await site.time.until_asleep(LOOK_MS)
    await site.create(site.secondary, backlog_queue(5))
    path = backlog_path(LABEL, 5)
    await site.divert(("orders", message("late")), queue=path)

    site.time.advance(LOOK_MS)

    assert await paired.came_home(1) == ["late"]
    assert paired.looks == 2


async def test_a_queue_that_was_deleted_is_left_alone(paired: Paired) -> None:
    site = paired.site
    paired.syphon.start()
    await site.time.until_asleep(LOOK_MS)
    assert paired.syphon._pumping.keys() == {0, 1}
    path = parse_address(backlog_path(LABEL, 1))
    await site.secondary.host.run(lambda namespace, turn: namespace.delete(path, turn))

    site.time.advance(LOOK_MS)
    await site.time.until_asleep(LOOK_MS)

    assert paired.syphon._pumping.keys() == {0}


async def test_if_queues_cannot_be_listed_they_are_looked_for_by_their_index(
    paired: Paired,
) -> None:
    site = paired.site
    paired.list_failure = ConnectionError("no administration today")
    await site.create(site.secondary, backlog_queue(17))
    for index in (0, 1, 17):
        path = backlog_path(LABEL, index)
        await site.divert(("orders", message(str(index))), queue=path)

    paired.syphon.start()

    assert sorted(await paired.came_home(3)) == ["0", "1", "17"]
    (event,) = [each for each in site.events if each.path == LABEL]
    assert event.kind is EventKind.SYPHON_BACKS_OFF
    assert event.cause is paired.list_failure


# -- progress ----------------------------------------------------------------------


async def test_progress_is_told_while_there_is_some(paired: Paired) -> None:
    site = paired.site
    paired.syphon.start()
    await site.divert(("orders", message("1")), ("orders", message("2")))
    await paired.came_home(2)
    progress_ms = int(limits.SYPHON_PROGRESS_SECONDS * 1000)
    await site.time.until_asleep(progress_ms)

    def is_progress(event: PairingEvent) -> bool:
        return event.kind is EventKind.SYPHON_PROGRESS

    site.time.advance(progress_ms)
    await site.until_event(is_progress)
    await site.time.until_asleep(progress_ms)
    site.time.advance(progress_ms)
    await site.time.until_asleep(progress_ms)

    # Told once: nothing has moved since.
    (event,) = [each for each in site.events if is_progress(each)]
    assert event.path == backlog_path(LABEL, 0)
    assert event.details["moved"] == 2
    assert event.details["moved_bytes"] == 2 * len(message("1"))


async def test_the_last_progress_is_told_when_the_syphon_stops(
    paired: Paired,
) -> None:
    site = paired.site
    paired.syphon.start()
    await site.divert(("orders", message("1")))
    await paired.came_home(1)

    await paired.syphon.stop()

    assert kinds(site) == [EventKind.SYPHON_PROGRESS]


# -- close and fault ---------------------------------------------------------------


async def test_a_stopped_syphon_holds_nothing(paired: Paired) -> None:
    site = paired.site
    paired.syphon.start()
    await site.divert(("orders", message("1")))
    await paired.came_home(1)

    await paired.syphon.stop()

    await site.divert(("orders", message("2")))
    assert await site.ready() == ["2"]
    assert not paired.syphon.status().running


@pytest.mark.parametrize("which", Which)
async def test_a_partner_that_is_still_open_after_five_seconds_is_faulted(
    paired: Paired, which: Which
) -> None:
    site = paired.site
    paired.syphon.start()
    await site.divert(("orders", message("1")))
    await paired.came_home(1)

    paired.syphon.factory_ended(which)
    await site.time.until_asleep(GRACE_MS)

    # At once, not at the end of a poll: messages that come now are for other receivers.
    await site.divert(("orders", message("2")))
    assert await site.ready() == ["2"]
    assert paired.faulted == []
    site.time.advance(GRACE_MS)
    while paired.syphon._tasks:
        await asyncio.wait(paired.syphon._tasks)
    ((partner, error),) = paired.faulted
    assert partner is which.partner
    assert which.value in str(error)
    assert not paired.syphon.status().running


async def test_a_partner_that_ends_in_time_is_not_faulted(paired: Paired) -> None:
    site = paired.site
    paired.syphon.start()
    paired.syphon.factory_ended(Which.SECONDARY)
    await site.time.until_asleep(GRACE_MS)

    paired.syphon.factory_ended(Which.PRIMARY)
    site.time.advance(GRACE_MS)
    while paired.syphon._tasks:
        await asyncio.wait(paired.syphon._tasks)

    assert paired.faulted == []
    assert not paired.syphon.status().running


async def test_a_stopped_syphon_faults_no_factory(paired: Paired) -> None:
    paired.syphon.start()
    await paired.syphon.stop()

    paired.syphon.factory_ended(Which.PRIMARY)

    assert not paired.syphon._tasks
    assert paired.faulted == []
