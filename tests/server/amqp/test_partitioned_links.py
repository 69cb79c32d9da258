"""Requests about partitioned entities over the wire: their order, and the SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from tests.server.cbs import RequestLinks
from tests.server.raw import RawClient, RawServer, serving
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.core.sas import (
    DEV_KEY_NAME,
    DEV_KEY_TEXT,
    Secret,
    format_connection_string,
)
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.entity import Entity
from twinbus.wire.events import Delivered
from twinbus.wire.message import sections
from twinbus.wire.types import Int

CONFIG = NamespaceConfig("n", queues=(QueueDescription("q", enable_partitioning=True),))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RawServer]:
    async with serving(tmp_path, CONFIG, shards=4) as running:
        await running.settle()
        yield running


def find_queue(server: RawServer) -> Entity:
    found = server.host.namespace.shards.find("q")
    assert found is not None
    return found


def requests(sender_handle: int | None, count: int) -> list[bytes]:
    """Peeks, every third of them an operation that does not exist."""
    body = {"from-sequence-number": 1, "message-count": Int(1)}
    names = ["com.microsoft:peek-message", "com.microsoft:peek-message", "none"]
    return [
        sections.encode_request(
            f"answers-{sender_handle}",
            {"operation": names[number % 3]},
            body,
            f"request-{number}",
        )
        for number in range(count)
    ]


def correlation_of(payload: bytes) -> Any:
    return sections.read_properties(payload)[5]


async def test_replies_keep_the_order_of_the_requests(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So small that the connection is told to wait in between.
    monkeypatch.setattr(limits, "REQUEST_BYTES_MAX", 300)
    client = await RawClient.connect(server.port)
    session = await client.session()
    assert await client.authorize(session) == 202
    links = await RequestLinks.open(client, session, "q/$management")
    # In the last fragment, so that every peek asks all of them.
    *_, last = server.host.namespace.shards.fragments(find_queue(server))
    kept = [sections.parse(sections.encode_message(b"x", {}))]
    host = server.host.hosts[last.shard]
    await host.run(lambda n, t: list(n.send(last, kept, t)))

    for place, request in enumerate(requests(links.sender.handle, 60)):
        links.sender.send(request, b"%d" % place)
    client.flush()

    replies = [await client.wait(Delivered) for _ in range(60)]
    found = [correlation_of(reply.payload) for reply in replies]
    assert found == [f"request-{number}" for number in range(60)]
    statuses = [
        sections.Request(reply.payload).application_properties["statusCode"]
        for reply in replies
    ]
    assert statuses == [200, 200, 501] * 20
    client.abort()


async def test_the_official_client_schedules_peeks_and_cancels(
    server: RawServer,
) -> None:
    text = format_connection_string(
        "127.0.0.1", server.port, DEV_KEY_NAME, Secret(DEV_KEY_TEXT), dev=True
    )
    later = datetime.now(UTC) + timedelta(days=1)
    async with ServiceBusClient.from_connection_string(text) as client:
        async with client.get_queue_sender("q") as sender:
            numbers = []
            for place in range(8):
                messages = [ServiceBusMessage(f"{place}a"), ServiceBusMessage("b")]
                numbers += await sender.schedule_messages(messages, later)
            assert sorted({number >> 48 for number in numbers}) == [0, 1, 2, 3]
            keyed = [ServiceBusMessage("k", partition_key=key) for key in "abcdefgh"]
            numbers += await sender.schedule_messages(keyed, later)
            async with client.get_queue_receiver("q") as receiver:
                found = []
                while page := await receiver.peek_messages(5):
                    found += [message.sequence_number for message in page]
            assert found == sorted(numbers)

            await sender.cancel_scheduled_messages(numbers)

        async with client.get_queue_receiver("q") as receiver:
            assert await receiver.peek_messages() == []
