"""Pairing proves the rights that it needs, and makes the queues as they should be."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.exceptions import ServiceBusAuthorizationError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.pairing.real.site import Leftovers, RealPair, message, with_key
from twinbus.aio import (
    EventKind,
    MessagingFactory,
    SameNamespace,
    SendAvailabilityPairedNamespaceOptions,
)
from twinbus.pairing.rules.naming import backlog_path

# The longest of .NET, rounded to microseconds.
LONGEST = timedelta(days=10675199, hours=2, minutes=48, microseconds=5_477_581)


async def test_backlog_queues_are_made_with_the_longest_durations(
    pair: RealPair,
) -> None:
    async with pair.pair():
        queue = pair.secondary.admin.get_queue(backlog_path(pair.label, 1))

    assert queue.default_message_time_to_live == LONGEST
    assert queue.auto_delete_on_idle == LONGEST
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.max_delivery_count == 2**31 - 1


async def test_pairing_needs_send_on_the_secondary(pair: RealPair) -> None:
    listens = pair.secondary.text_with("Listen")

    async with Leftovers():
        with pytest.raises(ServiceBusAuthorizationError) as raised:
            async with pair.pair(backlog_text=listens):
                pass

    port = pair.secondary.proxy.port
    path = backlog_path(pair.label, 0)
    text = f"The secondary 'localhost:{port}' does not give its factory Send on"
    assert str(raised.value).startswith(f"{text} '{path}': ")


async def test_pairing_needs_listen_on_the_secondary_for_the_syphon_alone(
    pair: RealPair,
) -> None:
    sends = pair.secondary.text_with("Send")

    async with Leftovers():
        async with pair.pair(backlog_text=sends) as paired:
            assert paired.factory.pairing.options.backlog_queue_count == 2
        with pytest.raises(
            ServiceBusAuthorizationError, match="does not give its factory Listen on"
        ):
            async with pair.pair(backlog_text=sends, enable_syphon=True):
                pass


async def test_pairing_needs_manage_on_the_secondary(pair: RealPair) -> None:
    server = pair.secondary.server
    text = with_key(server.admin_connection_string, "Send")
    make = MessagingFactory.from_connection_string
    async with (
        Leftovers(),
        make(pair.primary.text) as primary,
        make(pair.secondary.text) as secondary,
    ):
        with ServiceBusAdministrationClient.from_connection_string(
            text, connection_verify=server.ca_file
        ) as manager:
            options = SendAvailabilityPairedNamespaceOptions(manager, secondary)
            with pytest.raises(ClientAuthenticationError) as raised:
                await primary.pair_namespace(options)

    place = f"localhost:{server.ports['https']}"
    assert f"The manager of the secondary '{place}' needs Manage: " in str(raised.value)


async def test_send_on_the_primary_is_asked_for_with_the_first_link(
    pair: RealPair,
) -> None:
    queue = pair.queue()
    async with (
        Leftovers(),
        pair.pair(pair.primary.text_with("Listen")) as paired,
    ):
        with pytest.raises(ServiceBusAuthorizationError, match=f"'Send'.*'{queue}'"):
            await paired.sender(queue).send_messages(message("m"))

        assert paired.kinds(queue) == []
    assert pair.backlog() == []


async def test_a_queue_that_cannot_be_linked_to_is_out_and_pairing_goes_on(
    pair: RealPair,
) -> None:
    async with Leftovers(), pair.pair(enable_syphon=True) as paired:
        label = pair.label
        assert all(q.usable for q in paired.factory.pairing.status().backlog_queues)
    bad = backlog_path(label, 1)
    described = pair.secondary.admin.get_queue(bad)
    described.status = "Disabled"
    pair.secondary.admin.update_queue(described)

    async with Leftovers(), pair.pair(primary_name=label, enable_syphon=True) as paired:
        await paired.until(EventKind.BACKLOG_QUEUE_OUT, bad)
        found = paired.factory.pairing.status().backlog_queues

    assert [queue.usable for queue in found] == [True, False]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_a_namespace_is_not_paired_with_itself_by_another_name(
    pair: RealPair, host: str
) -> None:
    text = pair.primary.text
    other = text.replace("//localhost:", f"//{host}:")
    assert other != text

    with pytest.raises(SameNamespace):
        async with pair.pair(text, other):
            pass
