"""The factory: pairing, its refusals, its states and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from prometheus_client import REGISTRY

from tests.pairing.pair_site import PairSite, pair_site, wait_for
from twinbus.aio import (
    AlreadyPaired,
    EventKind,
    MessagingFactory,
    NoBacklogQueue,
    OptionsAlreadyUsed,
    PairedFactoryError,
    PairingError,
    SameNamespace,
    SecondaryAlreadyPaired,
    SecondaryInUse,
    SendAvailabilityPairedNamespaceOptions,
)
from twinbus.errors import CallerError


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairSite]:
    with pair_site(tmp_path_factory.mktemp("tls")) as found:
        yield found


@pytest.fixture(autouse=True)
def healed(site: PairSite) -> None:
    site.proxy.heal()


def options_for(
    site: PairSite, secondary: MessagingFactory, **keywords: Any
) -> SendAvailabilityPairedNamespaceOptions:
    """Options with a fresh name, so that tests do not share backlog queues."""
    given = {"primary_name": f"home-{uuid4().hex}", **keywords}
    manager = site.away.admin_client()
    return SendAvailabilityPairedNamespaceOptions(manager, secondary, 2, **given)


def primary_of(site: PairSite) -> MessagingFactory:
    return MessagingFactory.from_connection_string(site.primary_text, try_timeout=5)


def secondary_of(site: PairSite) -> MessagingFactory:
    return MessagingFactory.from_connection_string(site.away.connection_string)


# -- pairing ---------------------------------------------------------------------------


async def test_pairing_makes_the_backlog_queues_with_their_properties(
    site: PairSite,
) -> None:
    async with site.pair(primary_name="contoso", backlog_queue_count=3) as primary:
        assert primary.pairing.options.backlog_queue_count == 3

    with site.away.admin_client() as admin:
        queue = admin.get_queue("contoso/x-servicebus-transfer/2")
    assert queue.max_size_in_megabytes == 5120
    assert queue.max_delivery_count == 2147483647
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.dead_lettering_on_message_expiration
    assert queue.enable_batched_operations
    assert queue.requires_session is False


async def test_pairing_leaves_extra_and_different_queues_alone(site: PairSite) -> None:
    for index in (0, 7):
        path = f"fabrikam/x-servicebus-transfer/{index}"
        site.away.create_queue(path, lock_duration="PT7S")

    async with site.pair(primary_name="fabrikam", backlog_queue_count=2) as primary:
        assert primary.pairing.options.usable_indexes == {0, 1}

    with site.away.admin_client() as admin:
        for index in (0, 7):
            queue = admin.get_queue(f"fabrikam/x-servicebus-transfer/{index}")
            assert queue.lock_duration == timedelta(seconds=7)


async def test_pairing_goes_on_with_the_queues_that_could_be_made(
    site: PairSite,
) -> None:
    # A topic of that name is in the way of the second queue.
    site.away.create_topic("tailspin/x-servicebus-transfer/1")
    told: list[Any] = []

    async with site.pair(
        primary_name="tailspin", backlog_queue_count=3, on_event=told.append
    ) as primary:
        assert primary.pairing.options.usable_indexes == {0, 2}
        assert primary.pairing.options.backlog_queue_count == 2

    [event] = [each for each in told if each.kind is EventKind.BACKLOG_QUEUE_MISSING]
    assert event.path == "tailspin/x-servicebus-transfer/1"
    assert event.cause is not None


async def test_pairing_without_any_queue_raises_and_leaves_it_unpaired(
    site: PairSite,
) -> None:
    for index in (0, 1):
        site.away.create_topic(f"adatum/x-servicebus-transfer/{index}")

    async with primary_of(site) as primary, secondary_of(site) as secondary:
        options = options_for(site, secondary, primary_name="adatum")
        with pytest.raises(NoBacklogQueue, match="adatum"):
            await primary.pair_namespace(options)

        assert options.backlog_queue_count == 0
        with pytest.raises(OptionsAlreadyUsed):
            await primary.pair_namespace(options)
        with pytest.raises(PairingError, match="not paired"):
            _ = primary.pairing
        await primary.pair_namespace(options_for(site, secondary))
        assert primary.pairing.options.backlog_queue_count == 2


async def test_a_key_that_the_secondary_refuses_is_shown_to_it_twice_at_most(
    site: PairSite,
) -> None:
    """A server may bar clients that show too many. The error says whose key it is."""
    wrong = site.away.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    async with (
        primary_of(site) as primary,
        MessagingFactory.from_connection_string(wrong) as refused,
        secondary_of(site) as secondary,
    ):
        options = SendAvailabilityPairedNamespaceOptions(
            site.away.admin_client(), refused, backlog_queue_count=10
        )
        with pytest.raises(ServiceBusAuthenticationError, match="The secondary '127"):
            await primary.pair_namespace(options)

        await primary.pair_namespace(options_for(site, secondary))


async def test_pairing_refuses_what_cannot_be_paired(site: PairSite) -> None:
    async with (
        primary_of(site) as primary,
        primary_of(site) as other,
        secondary_of(site) as secondary,
        secondary_of(site) as third,
    ):
        with pytest.raises(SameNamespace):
            await primary.pair_namespace(options_for(site, other))

        await primary.pair_namespace(options_for(site, secondary))

        with pytest.raises(AlreadyPaired):
            await primary.pair_namespace(options_for(site, third))
        with pytest.raises(SecondaryInUse):
            await other.pair_namespace(options_for(site, secondary))
        with pytest.raises(SecondaryAlreadyPaired):
            await third.pair_namespace(options_for(site, primary))
        await other.pair_namespace(options_for(site, third))


async def test_a_secondary_is_free_again_when_its_primary_is_closed(
    site: PairSite,
) -> None:
    async with secondary_of(site) as secondary:
        for _ in range(2):
            async with primary_of(site) as primary:
                await primary.pair_namespace(options_for(site, secondary))
                assert primary.pairing.options.backlog_queue_count == 2


async def test_senders_made_before_pairing_stay_unpaired(site: PairSite) -> None:
    queue = site.queue()
    async with primary_of(site) as primary, secondary_of(site) as secondary:
        before = primary.get_queue_sender(queue)
        pairing = asyncio.ensure_future(
            primary.pair_namespace(options_for(site, secondary))
        )
        await asyncio.sleep(0)
        during = primary.get_queue_sender(queue)
        await during.send_messages(ServiceBusMessage("waits for the pairing"))
        await pairing
        after = primary.get_queue_sender(queue)

        assert (before.paired, during.paired, after.paired) == (False, True, True)


# -- states ----------------------------------------------------------------------------


async def test_closing_lets_sends_under_way_end(site: PairSite) -> None:
    queue = site.queue()
    async with site.pair() as primary:
        sender = primary.get_queue_sender(queue)
        sends = [
            asyncio.ensure_future(sender.send_messages(ServiceBusMessage(f"{number}")))
            for number in range(50)
        ]
        await asyncio.sleep(0)
        await primary.close()

        assert primary.state == "closed"
        await asyncio.gather(*sends)
        with pytest.raises(ValueError, match="closed"):
            await sender.send_messages(ServiceBusMessage("too late"))

    assert len(site.messages(queue, 50)) == 50


async def test_closing_diverts_what_a_suspect_entity_holds(site: PairSite) -> None:
    queue = site.queue()
    label = f"home-{uuid4().hex}"
    async with site.pair(failover_interval=0.3, primary_name=label) as primary:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("warm"))
        events = primary.pairing.events()
        site.fail()
        held = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("held")))
        await wait_for(events, EventKind.SUSPECT)
        await primary.close()
        await held

    assert site.backlog(label) == 1


async def test_a_faulted_factory_refuses_sends_with_the_cause(site: PairSite) -> None:
    queue = site.queue()
    async with site.pair(failover_interval=60) as primary:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("warm"))
        events = primary.pairing.events()
        site.fail()
        held = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("held")))
        await wait_for(events, EventKind.SUSPECT)

        primary.fault(RuntimeError("the disk is on fire"))

        assert primary.state == "faulted"
        with pytest.raises(RuntimeError, match="on fire"):
            await held
        with pytest.raises(RuntimeError, match="on fire"):
            await sender.send_messages(ServiceBusMessage("more"))
        assert (await wait_for(events, EventKind.FAULTED)).cause is not None


async def test_closing_with_the_syphon_closes_the_secondary(site: PairSite) -> None:
    async with primary_of(site) as primary, secondary_of(site) as secondary:
        options = SendAvailabilityPairedNamespaceOptions(
            site.away.admin_client(), secondary, 2, enable_syphon=True
        )
        await primary.pair_namespace(options)
        await primary.close()

        assert (primary.state, secondary.state) == ("closed", "closed")


async def test_closing_without_the_syphon_leaves_the_secondary_open(
    site: PairSite,
) -> None:
    async with primary_of(site) as primary, secondary_of(site) as secondary:
        await primary.pair_namespace(options_for(site, secondary))
        await primary.close()

        assert (primary.state, secondary.state) == ("closed", "open")


async def test_the_syphon_faults_a_partner_that_stays_open(
    site: PairSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinbus.limits.PARTNER_GRACE_SECONDS", 0.05)
    told: list[Any] = []
    async with primary_of(site) as primary, secondary_of(site) as secondary:
        options = SendAvailabilityPairedNamespaceOptions(
            site.away.admin_client(),
            secondary,
            2,
            enable_syphon=True,
            on_event=told.append,
        )
        await primary.pair_namespace(options)
        events = primary.pairing.events()
        await secondary.close()

        event = await wait_for(events, EventKind.FAULTED)

        assert primary.state == "faulted"
        assert isinstance(event.cause, PairedFactoryError)
        with pytest.raises(PairedFactoryError, match="secondary"):
            await primary.get_queue_sender("orders").send_messages(
                ServiceBusMessage("refused")
            )


# -- places ----------------------------------------------------------------------------


def test_a_factory_belongs_to_one_event_loop(site: PairSite) -> None:
    queue = site.queue()
    primary = primary_of(site)

    async def send() -> None:
        sender = primary.get_queue_sender(queue)
        await sender.send_messages(ServiceBusMessage("one loop"))

    async def send_and_close() -> None:
        with pytest.raises(CallerError, match="another event loop"):
            await send()
        with pytest.raises(CallerError, match="another event loop"):
            await primary.close()
        assert primary.state == "open"

    loop = asyncio.new_event_loop()
    loop.run_until_complete(send())
    asyncio.run(send_and_close())
    loop.run_until_complete(primary.close())
    loop.close()


async def test_many_factories_in_one_process_do_not_disturb_each_other(
    site: PairSite,
) -> None:
    queue = site.queue()
    async with site.pair() as one, site.pair() as two:
        await asyncio.gather(
            *(
                factory.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))
                for factory in (one, two)
                for _ in range(20)
            )
        )
        one.fault(RuntimeError("only this one"))
        await two.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))

    assert len(site.messages(queue, 41)) == 41


# -- telling ---------------------------------------------------------------------------


async def test_a_backlog_that_is_not_drained_is_told(
    site: PairSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinbus.limits.BACKLOG_LOOK_SECONDS", 0.05)
    queue = site.queue()
    async with site.pair() as primary:
        events = primary.pairing.events()
        site.fail()
        await primary.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))
        await wait_for(events, EventKind.PING_FAILED)
        site.proxy.heal()
        await wait_for(events, EventKind.FAILED_BACK)
        event = await wait_for(events, EventKind.BACKLOG_STAYS)

    assert event.level == "WARNING"
    assert event.details["messages"] == 1


async def test_the_state_of_a_pair_is_shown_as_metrics(site: PairSite) -> None:
    queue, label = site.queue(), f"home-{uuid4().hex}"
    labels = {"primary": label, "path": queue}
    async with site.pair(primary_name=label) as primary:
        site.fail()
        await primary.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))

        value = REGISTRY.get_sample_value
        assert value("twinbus_pairing_failed_over", labels) == 1
        assert value("twinbus_pairing_held_sends", labels) == 0
        assert value("twinbus_pairing_diverted_messages_total", labels) == 1
        event = {**labels, "event": EventKind.FAILED_OVER.value}
        assert value("twinbus_pairing_events_total", event) == 1
    assert value("twinbus_pairing_failed_over", labels) is None


async def test_a_callback_that_raises_does_not_stop_the_pair(
    site: PairSite, caplog: pytest.LogCaptureFixture
) -> None:
    def on_event(event: Any) -> None:
        raise ZeroDivisionError(event.kind)

    queue = site.queue()
    async with site.pair(on_event=on_event) as primary:
        site.fail()
        await primary.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))
        assert primary.pairing.status().entities[0].diverted == 1

    assert "on_event raised" in caplog.text
