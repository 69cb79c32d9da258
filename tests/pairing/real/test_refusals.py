"""What is no outage diverts nothing; and what the backlog does when it fails, too."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from azure.servicebus.management import EntityStatus

from tests.pairing.real.site import (
    ATTEMPT_SECONDS,
    PATIENCE_SECONDS,
    QUEUES,
    SLOW,
    SMALL,
    Leftovers,
    Paired,
    RealPair,
    message,
)
from twinbus.aio import EventKind, MessageSender
from twinbus.pairing.rules import rotation
from twinbus.pairing.rules.naming import backlog_path
from twinbus.pairing.rules.retry import Backoff

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


async def test_a_send_with_a_timeout_waits_for_the_secondary(
    pair: RealPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are away; it is sent soon after one backlog queue is back."""
    slow = Backoff(first_ms=300_000, longest_ms=300_000)
    monkeypatch.setattr(rotation, "QUEUE_BACKOFF", slow)
    queue = pair.queue()
    async with Leftovers(), pair.pair() as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        pair.primary.server.kill()
        pair.secondary.server.kill()

        send = asyncio.ensure_future(sender.send_messages(message("held"), timeout=90))
        for index in range(QUEUES):
            path = backlog_path(pair.label, index)
            await paired.until(EventKind.BACKLOG_QUEUE_OUT, path)
        await asyncio.to_thread(pair.secondary.server.start)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await send

        assert paired.state(queue) == "failed over"
    assert pair.backlog() == ["held"]


async def test_closing_lets_a_send_that_waits_for_the_secondary_end(
    pair: RealPair,
) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair() as paired:
        pair.primary.server.kill()
        pair.secondary.server.kill()
        send = asyncio.ensure_future(
            paired.sender(queue).send_messages(message("held"), timeout=90)
        )
        await paired.until(EventKind.BACKLOG_QUEUE_OUT, backlog_path(pair.label, 1))

        closing = asyncio.ensure_future(paired.factory.close())
        await asyncio.to_thread(pair.secondary.server.start)

        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(send, closing)
    assert pair.backlog() == ["held"]


async def test_a_send_that_waits_for_the_secondary_takes_the_primary_if_that_is_first(
    pair: RealPair,
) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair() as paired:
        sender = paired.sender(queue)
        await sender.send_messages(message("before"))
        pair.primary.server.kill()
        pair.secondary.server.kill()
        send = asyncio.ensure_future(sender.send_messages(message("held"), timeout=90))
        await paired.until(EventKind.BACKLOG_QUEUE_OUT, backlog_path(pair.label, 0))
        await asyncio.to_thread(pair.primary.server.start)
        await send
    assert pair.primary.ids(queue) == ["before", "held"]


async def test_a_send_ends_with_its_timeout_while_both_are_away(
    pair: RealPair,
) -> None:
    async with Leftovers(), pair.pair() as paired:
        pair.primary.server.kill()
        pair.secondary.server.kill()
        began = monotonic()

        with pytest.raises(OperationTimeoutError):
            await paired.sender("orders").send_messages(message("lost"), timeout=3)

        assert 3 <= monotonic() - began < 3 + PATIENCE_SECONDS


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
