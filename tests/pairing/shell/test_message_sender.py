"""Paired senders: what a send does while its entity is well, suspect and away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

import twinbus
from tests.pairing.pair_site import PairSite, pair_site, wait_for
from twinbus.aio import EventKind, MessagingFactory, Verdict
from twinbus.client.connection import Connection
from twinbus.errors import RemoteError
from twinbus.pairing.rules.syphon_rules import SendToPrimary, decide
from twinbus.testing.proxy import Fault


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairSite]:
    with pair_site(tmp_path_factory.mktemp("tls")) as found:
        yield found


@pytest.fixture(autouse=True)
def healed(site: PairSite) -> None:
    site.proxy.heal()


@pytest.fixture
def label() -> str:
    return f"home-{uuid4().hex}"


async def backlogged(site: PairSite, label: str) -> list[SendToPrimary]:
    """What waits in the backlog, as the syphon would send it."""
    found = []
    async with Connection.from_connection_string(site.away.connection_string) as client:
        for index in range(2):
            path = f"{label}/x-servicebus-transfer/{index}"
            for message in await client.management(path).peek(100):
                outcome = decide(message.payload, 0)
                assert isinstance(outcome, SendToPrimary)
                found.append(outcome)
    return found


# -- well ------------------------------------------------------------------------------


async def test_the_only_change_on_the_healthy_path_is_a_message_id(
    site: PairSite,
) -> None:
    queue = site.queue()
    message = AmqpAnnotatedMessage(
        data_body=b"plain",
        properties=AmqpMessageProperties(subject="s"),
        application_properties={"a": 1},
    )
    async with site.pair() as primary, primary.get_queue_sender(queue) as sender:
        await sender.send_messages(message)
        await sender.send_messages(ServiceBusMessage("own", message_id="mine"))

    plain, own = site.messages(queue, 2)
    assert (str(plain), plain.subject) == ("plain", "s")
    assert plain.application_properties == {b"a": 1}
    assert plain.message_id
    assert own.message_id == "mine"
    # The caller's object is as it was.
    assert message.properties is not None
    assert message.properties.message_id is None


async def test_entering_a_sender_and_making_a_batch_need_no_primary(
    site: PairSite,
) -> None:
    queue = site.queue()
    async with site.pair() as primary:
        site.fail()
        async with primary.get_queue_sender(queue) as sender:
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage("x"))

        assert batch.max_size_in_bytes == 256 * 1024
        assert len(batch) == 1


# -- failing over ----------------------------------------------------------------------


async def test_interval_zero_diverts_the_failing_send_in_the_same_call(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    async with site.pair(primary_name=label) as primary:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("warm"))
        # The connection breaks in the middle of the next transfer.
        site.proxy.inject(Fault("reset", after_frame="transfer", inside=True))
        site.proxy.refuse()
        await sender.send_messages(ServiceBusMessage("dies", message_id="one"))

        [entity] = primary.pairing.status().entities
        assert (entity.state, entity.diverted) == ("failed over", 1)

    [found] = await backlogged(site, label)
    assert found.path == queue
    assert b"dies" in found.payload


async def test_a_send_that_fails_while_suspect_is_held_until_failover(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    async with site.pair(failover_interval=0.4, primary_name=label) as primary:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("warm"))
        events = primary.pairing.events()
        site.fail()
        sends = [
            asyncio.ensure_future(sender.send_messages(ServiceBusMessage(f"{number}")))
            for number in range(5)
        ]
        await wait_for(events, EventKind.SUSPECT)
        assert primary.pairing.status().held > 0
        await asyncio.gather(*sends)
        await wait_for(events, EventKind.FAILED_OVER)

    found = await backlogged(site, label)
    assert len(found) == 5


async def test_a_send_that_fails_while_suspect_succeeds_when_the_entity_recovers(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    async with site.pair(failover_interval=60, primary_name=label) as primary:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("warm"))
        events = primary.pairing.events()
        site.fail()
        held = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("held")))
        await wait_for(events, EventKind.SUSPECT)
        site.proxy.heal()
        await held
        await wait_for(events, EventKind.RECOVERED)

    assert [str(each) for each in site.messages(queue, 2)] == ["warm", "held"]
    assert await backlogged(site, label) == []


async def test_without_holding_a_failing_send_raises(site: PairSite) -> None:
    queue = site.queue()
    async with site.pair(failover_interval=60, hold_during_failover=False) as primary:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("warm"))
        site.fail()
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("raises"))


async def test_the_callers_timeout_ends_a_held_send(site: PairSite, label: str) -> None:
    queue = site.queue()
    async with site.pair(failover_interval=60, primary_name=label) as primary:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("warm"))
        site.fail()
        with pytest.raises(OperationTimeoutError):
            await sender.send_messages(ServiceBusMessage("late"), timeout=0.2)

        assert primary.pairing.status().held == 0


async def test_a_cancelled_send_leaves_nothing_behind(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    async with site.pair(failover_interval=60, primary_name=label) as primary:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("warm"))
        events = primary.pairing.events()
        site.fail()
        held = [
            asyncio.ensure_future(sender.send_messages(ServiceBusMessage("gone")))
            for _ in range(10)
        ]
        await wait_for(events, EventKind.SUSPECT)
        for task in held:
            task.cancel()
        results = await asyncio.gather(*held, return_exceptions=True)

        assert all(isinstance(each, asyncio.CancelledError) for each in results)
        status = primary.pairing.status()
        assert (status.held, status.held_bytes) == (0, 0)
        site.proxy.heal()
        await sender.send_messages(ServiceBusMessage("goes on"))
        await wait_for(events, EventKind.RECOVERED)

    assert [str(each) for each in site.messages(queue, 2)] == ["warm", "goes on"]


async def test_one_entity_away_does_not_move_another(
    site: PairSite, label: str
) -> None:
    away, well = site.queue(), site.queue()
    # What this classifier counts is a fault of one entity alone.
    seen = threading.Event()

    def classifier(error: BaseException) -> Verdict | None:
        missing = isinstance(error, RemoteError) and "not-found" in error.condition
        if missing:
            seen.set()
        return Verdict.COUNTED if missing else None

    async with site.pair(primary_name=label, classifier=classifier) as primary:
        site.home.delete(away)
        await primary.get_queue_sender(away).send_messages(ServiceBusMessage("away"))
        await primary.get_queue_sender(well).send_messages(ServiceBusMessage("well"))
        states = {each.path: each.state for each in primary.pairing.status().entities}

    assert seen.is_set()
    assert states == {away: "failed over", well: "healthy"}
    assert [each.path for each in await backlogged(site, label)] == [away]
    assert [str(each) for each in site.messages(well, 1)] == ["well"]


async def test_errors_that_the_caller_must_act_on_are_raised_and_never_diverted(
    site: PairSite, label: str
) -> None:
    async with site.pair(primary_name=label) as primary:
        with pytest.raises(MessagingEntityNotFoundError):
            await primary.get_queue_sender("nowhere").send_messages(
                ServiceBusMessage("x")
            )
        too_large = ServiceBusMessage(b"x" * (300 * 1024))
        with pytest.raises(MessageSizeExceededError):
            await primary.get_queue_sender(site.queue()).send_messages(too_large)
        with pytest.raises(TypeError):
            await primary.get_queue_sender("any").send_messages(object())

    assert await backlogged(site, label) == []


# -- away ------------------------------------------------------------------------------


async def test_batches_go_whole_and_are_split_where_they_no_longer_fit(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    async with site.pair(primary_name=label) as primary:
        sender = primary.get_queue_sender(queue)
        batch = await sender.create_message_batch()
        count = 0
        while True:
            try:
                batch.add_message(ServiceBusMessage(b"%06d" % count + b"x" * 1000))
            except MessageSizeExceededError:
                break
            count += 1
        site.fail()
        await sender.send_messages(batch)
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])

    found = await backlogged(site, label)
    assert len(found) == min(count + 2, 100)
    assert site.backlog(label) == count + 2


async def test_scheduled_messages_keep_their_time_in_the_backlog(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    later = datetime.now(UTC) + timedelta(hours=1)
    async with site.pair(primary_name=label) as primary:
        sender = primary.get_queue_sender(queue)
        [number] = await sender.schedule_messages(ServiceBusMessage("one"), later)
        assert number is not None
        await sender.cancel_scheduled_messages(number)
        site.fail()
        two = [ServiceBusMessage("a"), ServiceBusMessage("b")]
        assert await sender.schedule_messages(two, later) == [None, None]
        with pytest.raises(ServiceBusConnectionError, match="failed over"):
            await sender.cancel_scheduled_messages(number)
        with pytest.raises(TypeError, match="backlog"):
            await sender.cancel_scheduled_messages([None])  # type: ignore[list-item]

    found = await backlogged(site, label)
    assert len(found) == 2
    assert all(b"x-opt-scheduled-enqueue-time" in each.payload for each in found)


async def test_no_backlog_queue_left_raises_the_last_error(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    told: list[Any] = []
    async with site.pair(primary_name=label, on_event=told.append) as primary:
        sender = primary.get_queue_sender(queue)
        site.fail()
        for index in range(2):
            site.away.delete(f"{label}/x-servicebus-transfer/{index}")
        with pytest.raises(MessagingEntityNotFoundError):
            await sender.send_messages(ServiceBusMessage("nowhere to go"))

    kinds = [each.kind for each in told]
    assert kinds.count(EventKind.BACKLOG_QUEUE_OUT) == 2


async def test_a_bad_backlog_queue_is_left_and_the_send_goes_on(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    async with site.pair(primary_name=label) as primary:
        site.fail()
        site.away.delete(f"{label}/x-servicebus-transfer/0")
        for number in range(8):
            sender = primary.get_queue_sender(queue)
            await sender.send_messages(ServiceBusMessage(f"{number}"))
        queues = {each.index: each for each in primary.pairing.status().backlog_queues}

    assert queues[1].accepted == 8
    assert not queues[0].usable


async def test_a_message_that_could_not_fail_over_is_told_while_all_is_well(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    told: list[Any] = []
    large = ServiceBusMessage(b"x" * (256 * 1024 - 100))
    async with site.pair(primary_name=label, on_event=told.append) as primary:
        sender = primary.get_queue_sender(queue)
        for _ in range(3):
            await sender.send_messages(large)
        assert [each.kind for each in told] == [EventKind.MESSAGE_TOO_LARGE]
        site.fail()
        with pytest.raises(twinbus.MessageTooLargeForBacklog) as caught:
            await sender.send_messages(large)

    assert isinstance(caught.value, MessageSizeExceededError)


# -- failing back ----------------------------------------------------------------------


async def test_an_accepted_ping_fails_back_every_sender(
    site: PairSite, label: str
) -> None:
    queue = site.queue()
    async with site.pair(primary_name=label) as primary:
        senders = [primary.get_queue_sender(queue) for _ in range(3)]
        events = primary.pairing.events()
        site.fail()
        await senders[0].send_messages(ServiceBusMessage("diverted"))
        await wait_for(events, EventKind.PING_FAILED)
        site.proxy.heal()
        await wait_for(events, EventKind.FAILED_BACK)
        for sender in senders:
            await sender.send_messages(ServiceBusMessage("home"))

    # The ping itself is never seen.
    assert site.count(queue) == 3
    assert [str(each) for each in site.messages(queue, 3)] == ["home"] * 3


async def test_mark_healthy_fails_back_at_once(site: PairSite, label: str) -> None:
    queue = site.queue()
    async with site.pair(primary_name=label, ping_primary_interval=1800) as primary:
        sender = primary.get_queue_sender(queue)
        events = primary.pairing.events()
        site.fail()
        await sender.send_messages(ServiceBusMessage("diverted"))
        await wait_for(events, EventKind.PING_FAILED)
        site.proxy.heal()
        primary.pairing.mark_healthy(queue.upper())
        await sender.send_messages(ServiceBusMessage("home"))

    assert [str(each) for each in site.messages(queue, 1)] == ["home"]


async def test_a_late_acceptance_fails_back(site: PairSite, label: str) -> None:
    queue = site.queue()
    async with site.pair(primary_name=label, ping_primary_interval=1800) as primary:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("warm"))
        events = primary.pairing.events()
        # The primary takes the next send, but its answer is on the way for long.
        site.proxy.inject(Fault("hold", towards="client"))
        slow = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("slow")))
        await asyncio.to_thread(site.proxy.wait_until, lambda proxy: proxy.strikes > 0)
        entity = primary._pair.entity(queue)  # type: ignore[union-attr]
        primary._pair.carry_out(  # type: ignore[union-attr]
            entity.policy.failed(0, Verdict.COUNTED, TimeoutError(), 0)
        )
        await slow
        await wait_for(events, EventKind.FAILED_OVER)
        site.proxy.heal()
        await wait_for(events, EventKind.FAILED_BACK)

    assert [str(each) for each in site.messages(queue, 2)] == ["warm", "slow"]
    assert len(await backlogged(site, label)) == 1


# -- unpaired and blocking -------------------------------------------------------------


async def test_an_unpaired_sender_tries_a_lost_connection_again(site: PairSite) -> None:
    queue = site.queue()
    async with MessagingFactory.from_connection_string(
        site.primary_text, retry_backoff_factor=0.01
    ) as factory:
        sender = factory.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("one"))
        site.proxy.cut()
        await sender.send_messages(ServiceBusMessage("two"))
        site.fail()
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage("three"))

    assert len(site.messages(queue, 2)) == 2


def test_the_blocking_surface_serves_many_threads(site: PairSite, label: str) -> None:
    queue = site.queue()
    primary = twinbus.MessagingFactory.from_connection_string(site.primary_text)
    secondary = twinbus.MessagingFactory.from_connection_string(
        site.away.connection_string
    )
    options = twinbus.SendAvailabilityPairedNamespaceOptions(
        site.away.admin_client(),
        secondary,
        2,
        0,
        primary_name=label,
        ping_primary_interval=1,
    )
    with primary, secondary:
        primary.pair_namespace(options)
        sender = primary.get_queue_sender(queue)
        events = primary.pairing.events()

        def send(text: str) -> None:
            for _ in range(20):
                sender.send_messages(ServiceBusMessage(text))

        def everywhere(text: str) -> None:
            threads = [threading.Thread(target=send, args=(text,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        everywhere("home")
        site.fail()
        everywhere("away")
        site.proxy.heal()
        for event in events:
            if event.kind is EventKind.FAILED_BACK:
                break
        with primary.get_queue_receiver(queue, max_wait_time=5) as receiver:
            found = receiver.receive_messages(80, 5)
        assert {str(each) for each in found} == {"home"}
        status = primary.pairing.status().as_dict()

    assert status["entities"][0]["diverted"] == 80
    assert primary.state == secondary.state == "closed"
    assert not any("twinbus-factories" in each.name for each in threading.enumerate())


def test_a_batch_of_the_official_client_is_taken(site: PairSite) -> None:
    queue = site.queue()
    with (
        site.home.client() as client,
        client.get_queue_sender(queue) as official,
        twinbus.MessagingFactory.from_connection_string(site.primary_text) as factory,
        factory.get_queue_sender(queue) as sender,
    ):
        batch = official.create_message_batch()
        assert isinstance(batch, ServiceBusMessageBatch)
        batch.add_message(ServiceBusMessage("one"))
        batch.add_message(ServiceBusMessage("two"))
        sender.send_messages(batch)

    assert [str(each) for each in site.messages(queue, 2)] == ["one", "two"]
