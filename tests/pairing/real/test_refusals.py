"""What is no outage diverts nothing; and what the backlog does when it fails, too."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from azure.servicebus.management import EntityStatus

from tests.pairing.real.site import (
    ATTEMPT_SECONDS,
    SLOW,
    SMALL,
    Leftovers,
    Paired,
    RealPair,
    message,
)
from twinbus.aio import EventKind, MessageSender
from twinbus.pairing.rules.naming import backlog_path

# Nearly a quarter of a megabyte, so that few of them fill a queue.
LARGE = b"x" * 250_000


async def _nothing_was_diverted(pair: RealPair, paired: Paired, path: str) -> None:
    assert paired.kinds(path) == []
    assert paired.state(path) == "healthy"
    assert pair.backlog() == []


async def test_a_disabled_entity_raises_and_its_neighbour_works(
    pair: RealPair,
) -> None:
    queue, other = pair.queue(), pair.queue()
    async with Leftovers(), pair.pair() as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        described = pair.primary.admin.get_queue(queue)
        described.status = EntityStatus.SEND_DISABLED
        pair.primary.admin.update_queue(described)

        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(message("refused"))
        await paired.sender(other).send_messages(message("fine"))

        await _nothing_was_diverted(pair, paired, queue)
        described.status = EntityStatus.ACTIVE
        pair.primary.admin.update_queue(described)
        await sender.send_messages(message("after"))
    assert pair.primary.ids(queue) == ["before", "after"]


async def test_an_entity_that_is_missing_raises(pair: RealPair) -> None:
    async with Leftovers(), pair.pair() as paired:
        with pytest.raises(MessagingEntityNotFoundError):
            await paired.sender("nowhere").send_messages(message("lost?"))

        await _nothing_was_diverted(pair, paired, "nowhere")


async def _send_until_refused(
    sender: MessageSender, each: ServiceBusMessage, seconds: float
) -> None:
    for _ in range(20):
        await sender.send_messages(each, timeout=seconds)


@pytest.mark.parametrize("seconds", [0.5, 5.0])
async def test_a_busy_entity_is_asked_again_only_after_ten_seconds(
    pair: RealPair, seconds: float
) -> None:
    async with Leftovers(), pair.pair() as paired:
        sender = paired.sender(SLOW)
        began = monotonic()
        with pytest.raises(ServiceBusServerBusyError):
            await _send_until_refused(sender, message("m"), seconds)

        # It would have to wait longer than the caller does, so it says so at once.
        assert monotonic() - began < 3
        await _nothing_was_diverted(pair, paired, SLOW)
        await paired.sender(SMALL).send_messages(message("fine"))


async def test_a_full_entity_raises(pair: RealPair) -> None:
    async with Leftovers(), pair.pair() as paired:
        sender = paired.sender(SMALL)
        with pytest.raises(ServiceBusQuotaExceededError):
            await _send_until_refused(sender, ServiceBusMessage(LARGE), 20)

        await _nothing_was_diverted(pair, paired, SMALL)


# -- the backlog -----------------------------------------------------------------------


async def test_a_bad_backlog_queue_is_left_out(pair: RealPair) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair() as paired:
        bad = backlog_path(pair.label, 0)
        described = pair.secondary.admin.get_queue(bad)
        described.status = EntityStatus.DISABLED
        pair.secondary.admin.update_queue(described)
        pair.primary.server.kill()

        # Each sender picks one at random, so that some of them pick the bad one.
        names = [f"m{number}" for number in range(12)]
        senders = [paired.sender(queue) for _ in names]
        for sender, name in zip(senders, names, strict=True):
            await sender.send_messages(message(name))

        await paired.until(EventKind.BACKLOG_QUEUE_OUT, bad)
        described.status = EntityStatus.ACTIVE
        pair.secondary.admin.update_queue(described)
        assert pair.secondary.ids(bad) == []
    assert pair.backlog() == names


async def test_without_a_secondary_the_send_raises(pair: RealPair) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair() as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        pair.primary.server.kill()
        pair.secondary.server.kill()

        async with asyncio.timeout(20 * ATTEMPT_SECONDS):
            with pytest.raises(ServiceBusConnectionError):
                await sender.send_messages(message("nowhere"))

        assert paired.state(queue) == "failed over"
        # A single queue that answers again is enough, as soon as a probe has found it.
        pair.secondary.server.start()
        await paired.until(EventKind.BACKLOG_QUEUE_IN, backlog_path(pair.label, 0))
        await sender.send_messages(message("again"))
    assert pair.backlog() == ["again"]


async def test_a_secondary_that_hangs_costs_a_deadline_and_no_more(
    pair: RealPair,
) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair() as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        pair.primary.server.kill()
        pair.secondary.server.pause()
        began = monotonic()

        with pytest.raises(ServiceBusError):
            await sender.send_messages(message("lost"), timeout=1.5)

        assert monotonic() - began < 5
        pair.secondary.server.resume()
