"""Pumps that crash, stop, lose their locks or their journal: nothing is lost by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.client.peer import OUTCOME, Peer, peering
from tests.pairing.pump.pump_site import (
    BACKLOG,
    LOCK_MS,
    LONG_SECONDS,
    Namespaces,
    message,
    namespaces,
)
from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.transport.endpoint import Endpoint
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.errors import CallerError, RemoteError
from twinbus.pairing.pump.pump import Pump
from twinbus.pairing.pump.settling import Receipt
from twinbus.wire.performatives import ACCEPTED


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Namespaces]:
    async with namespaces(tmp_path) as served:
        yield served


class Memory:
    """A journal that lives as long as the test."""

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.asked: list[tuple[int, int]] = []
        self.failure: Exception | None = None
        self.recorded = asyncio.Event()
        # Set: receipts are written at once.
        self.may_write = asyncio.Event()
        self.may_write.set()

    def sent_before(self, sequence: int, enqueued_ms: int) -> bool:
        self.asked.append((sequence, enqueued_ms))
        return (sequence, enqueued_ms) in [each[:2] for each in self.receipts]

    async def record(self, receipts: Sequence[Receipt]) -> None:
        self.recorded.set()
        await self.may_write.wait()
        if self.failure is not None:
            raise self.failure
        self.receipts += receipts


async def pump_once(pump: Pump) -> int:
    came = await pump.step(LONG_SECONDS)
    await pump.settled()
    return came


def has_messages(peer: Peer) -> bool:
    """Whether a message came that was not answered."""
    return any(connection.messages for connection in peer.connections)


def vanish(connection: Connection) -> None:
    """As if the process that has this connection was killed."""
    live = connection._live
    assert live is not None
    assert live._channel is not None
    live._channel.abort()


# -- crashes -----------------------------------------------------------------------


async def test_killed_between_send_and_complete_is_a_second_delivery_of_the_same_id(
    site: Namespaces,
) -> None:
    await site.divert(("orders", message("1")), ("once", message("2")))
    source = site.connect(site.secondary)
    journal = Memory()
    journal.may_write.clear()
    killed = site.pump(journal=journal, source=source)
    await killed.step(LONG_SECONDS)
    # The primary has both, and their receipts are not written yet.
    await journal.recorded.wait()
    while killed.counts.moved < 2:
        await killed._change()
    vanish(source)
    for task in list(killed._tasks.values()):
        task.cancel()
    site.time.advance(LOCK_MS)

    successor = site.pump()
    assert await pump_once(successor) == 2

    assert await site.ids("orders") == ["1", "1"]
    # Duplicate detection removes the second one.
    assert await site.ids("once") == ["2"]
    assert await site.backlog() == []
    assert successor.counts.redelivered == 2


async def test_a_message_in_the_journal_is_completed_and_not_sent_again(
    site: Namespaces,
) -> None:
    await site.divert(("orders", message("1")), ("orders", message("2")))
    journal = Memory()
    (first, *_) = await site.backlog()
    enqueued_ms = first.enqueued_ms or 0
    journal.receipts.append(Receipt(first.sequence_number, enqueued_ms, "orders", 1))
    # Only what was delivered before is looked up.
    receiver = site.at_backlog.receiver(BACKLOG)
    await receiver.abandon(await receiver.receive(1, LONG_SECONDS))
    pump = site.pump(journal=journal)

    await pump_once(pump)

    assert journal.asked == [(first.sequence_number, enqueued_ms)]
    assert await site.ids("orders") == ["2"]
    assert await site.backlog() == []
    assert pump.counts.skipped == 1


async def test_a_receipt_names_the_message_and_where_it_went(site: Namespaces) -> None:
    await site.divert(("Orders", message("1")))
    (stored,) = await site.backlog()
    journal = Memory()

    await pump_once(site.pump(journal=journal))

    (receipt,) = journal.receipts
    assert receipt.sequence == stored.sequence_number
    assert receipt.enqueued_ms == stored.enqueued_ms
    assert receipt.path == "Orders"
    assert receipt.size_bytes == len(message("1"))


async def test_nothing_is_completed_without_a_receipt(site: Namespaces) -> None:
    await site.divert(("orders", message("1")), ("orders", message("2")))
    journal = Memory()
    journal.failure = OSError("The disk is full.")
    pump = site.pump(journal=journal)
    running = asyncio.create_task(pump.run())

    with pytest.raises(OSError, match="disk is full"):
        await running

    # The pump has given them back, counted: the next journal is asked about them.
    assert [each.delivery_count for each in await site.backlog()] == [1, 1]
    assert await site.ready() == ["1", "2"]


async def test_a_pump_notices_a_journal_that_fails_while_it_waits(
    site: Namespaces,
) -> None:
    await site.divert(("orders", message("1")))
    journal = Memory()
    journal.may_write.clear()
    journal.failure = OSError("The disk is full.")
    pump = site.pump(journal=journal)
    await pump.step(LONG_SECONDS)
    waiting = asyncio.create_task(pump.step(900))
    await journal.recorded.wait()

    journal.may_write.set()

    with pytest.raises(OSError, match="disk is full"):
        await waiting


# -- unknown outcomes --------------------------------------------------------------


async def test_a_message_whose_outcome_is_unknown_is_sent_again_with_its_id(
    site: Namespaces,
) -> None:
    await site.divert(("orders", message("1")), ("orders", message("2")))
    async with peering(OUTCOME) as silent:
        key = SasKey(DEV_KEY_NAME, DEV_KEY_TEXT)
        target = Connection(Endpoint("127.0.0.1", silent.port), key)
        pump = site.pump(target=target, stop_seconds=0.05)
        await pump.step(LONG_SECONDS)
        await silent.until(lambda: has_messages(silent))
        silent.connections[-1].transport.abort()
        await pump.settled()
        await pump.stop()
        await target.close(0)

    assert pump.counts.unknown == 2
    assert pump.counts.moved == 0
    assert len(await site.backlog()) == 2
    assert await site.ready() == []
    site.time.advance(LOCK_MS)
    await pump_once(site.pump())
    assert await site.ids("orders") == ["1", "2"]


# -- locks -------------------------------------------------------------------------


async def test_locks_are_renewed_while_a_batch_is_in_flight(site: Namespaces) -> None:
    await site.divert(("orders", message("1")))
    async with peering(OUTCOME) as silent:
        key = SasKey(DEV_KEY_NAME, DEV_KEY_TEXT)
        target = Connection(Endpoint("127.0.0.1", silent.port), key)
        pump = site.pump(target=target, stop_seconds=0.05)
        await pump.step(LONG_SECONDS)
        for _ in range(6):
            await site.time.until_asleep(LOCK_MS // 3)
            site.time.advance(LOCK_MS // 3)
        await site.time.until_asleep(LOCK_MS // 3)

        # Two lock times have passed, and no other receiver gets it.
        assert await site.ready() == []
        await pump.stop()
        await target.close(0)


async def test_a_message_whose_lock_ended_is_not_sent(site: Namespaces) -> None:
    wire = await site.wire(site.secondary)
    source = site.connect(wire)
    pump = site.pump(source=source, chunk=2)
    large = b"x" * 200_000
    await site.divert(*[("orders", message(str(n), large)) for n in range(2)])
    async with peering(OUTCOME) as silent:
        key = SasKey(DEV_KEY_NAME, DEV_KEY_TEXT)
        target = Connection(Endpoint("127.0.0.1", silent.port), key)
        pump = site.pump(source=source, target=target, chunk=2)
        await pump.step(LONG_SECONDS)
        await silent.until(lambda: has_messages(silent))
        # The secondary goes, so that nothing is renewed, and the lock ends.
        wire.is_down = True
        wire.cut()
        await site.time.until_asleep(LOCK_MS // 3)
        site.time.advance(LOCK_MS)
        (delivery,) = silent.connections[-1].messages
        session = delivery.link.session
        session.answer(delivery.delivery_id, delivery.delivery_id, ACCEPTED)
        silent.connections[-1].flush()
        while pump.counts.moved < 1:
            await pump._change()
        await pump.stop()
        sent = len(silent.connections[-1].messages)
        await target.close(0)

    # The second batch was not sent: its message has returned to the queue.
    assert sent == 1
    assert await site.ready() == ["0", "1"]


async def test_a_complete_that_went_astray_is_repeated(site: Namespaces) -> None:
    wire = await site.wire(site.secondary)
    journal = Memory()
    journal.may_write.clear()
    pump = site.pump(journal=journal, source=site.connect(wire))
    await site.divert(("orders", message("1")), ("orders", message("2")))
    await pump.step(LONG_SECONDS)
    await journal.recorded.wait()

    wire.cut()
    journal.may_write.set()
    # The link may not know yet that it is gone.
    settled = asyncio.create_task(pump.settled())
    await site.time.until_asleep(limits.RETRY_PAUSE_MS_MIN)
    site.time.advance(limits.RETRY_PAUSE_MS_MIN)
    await settled

    assert await site.backlog() == []
    assert await site.ids("orders") == ["1", "2"]
    assert pump.counts.late == 0


# -- stopping ----------------------------------------------------------------------


async def test_messages_in_hand_are_abandoned_when_a_pump_stops(
    site: Namespaces,
) -> None:
    await site.divert(*[("orders", message(str(n))) for n in range(5)])
    async with peering(OUTCOME) as silent:
        key = SasKey(DEV_KEY_NAME, DEV_KEY_TEXT)
        target = Connection(Endpoint("127.0.0.1", silent.port), key)
        pump = site.pump(target=target, stop_seconds=0.05)
        await pump.step(LONG_SECONDS)
        await silent.until(lambda: has_messages(silent))

        await pump.stop()

        assert await site.ready() == ["0", "1", "2", "3", "4"]
        await target.close(0)


async def test_parked_messages_stay_parked_when_a_pump_stops(site: Namespaces) -> None:
    pump = site.pump()
    for number in range(3):
        await site.divert(("slow", message(str(number))))
        await pump_once(pump)

    await pump.stop()

    assert await site.ready() == []
    site.time.advance(LOCK_MS)
    assert await site.ready() == ["1", "2"]


async def test_stopping_ends_a_long_poll(site: Namespaces) -> None:
    pump = site.pump()
    running = asyncio.create_task(pump.run())
    await site.divert(("orders", message("1")))
    while pump.counts.moved < 1:
        await pump._change()

    await pump.stop()
    await running

    # It took nothing with it: messages that come now are for other receivers.
    await site.divert(("orders", message("2")))
    assert await site.ready() == ["2"]


async def test_a_pump_whose_connection_was_closed_says_so(site: Namespaces) -> None:
    await site.divert(("orders", message("1")))
    target = site.connect(site.primary)
    pump = site.pump(target=target)
    await target.close()

    with pytest.raises(CallerError, match="closed"):
        await pump.run()

    # The message is not at fault: neither lost nor dead-lettered.
    assert await site.dead() == []
    assert await site.ready() == ["1"]


async def test_a_pump_can_be_stopped_while_the_secondary_is_away(
    site: Namespaces,
) -> None:
    wire = await site.wire(site.secondary)
    pump = site.pump(source=site.connect(wire))
    await site.divert(("slow", message("1")))
    await pump_once(pump)
    wire.is_down = True
    wire.cut()

    await pump.stop()

    with pytest.raises(RemoteError):
        await pump._receiver.receive(1, 0)
