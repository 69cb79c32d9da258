"""The factory's receivers connect to the server that its senders connect to.

Two servers with TLS run on one machine, at ports that are not the default ones, and
have the same queue and topic. A factory for the second one must not reach the first
one, nor a server at the default port.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage, TransportType

import twinbus
import twinbus.aio
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.testing.namespace import ServedNamespace, serve_namespace

QUEUE, TOPIC, SUBSCRIPTION = "orders", "events", "all"
ENTITIES = {
    "queues": [QUEUE],
    "topics": [{"name": TOPIC, "subscriptions": [SUBSCRIPTION]}],
}
# The transport, and which port of the server speaks it, with and without TLS.
WAYS = {
    "AMQP with TLS": (TransportType.Amqp, "amqps_port", True),
    "WebSocket with TLS": (TransportType.AmqpOverWebsocket, "https_port", True),
    "AMQP": (TransportType.Amqp, "amqp_port", False),
    "WebSocket": (TransportType.AmqpOverWebsocket, "http_port", False),
}
ways = pytest.mark.parametrize("way", WAYS)


Servers = tuple[ServedNamespace, ServedNamespace]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    # One authority, so that only the port tells the two apart.
    tls = tmp_path_factory.mktemp("tls")
    with (
        serve_namespace(ENTITIES, tls=tls) as first,
        serve_namespace(ENTITIES, tls=tls) as second,
    ):
        yield first, second


def arguments(server: ServedNamespace, way: str) -> tuple[str, dict[str, Any]]:
    """The connection string, and what it cannot say."""
    transport, port, tls = WAYS[way]
    text = (
        f"Endpoint=sb://localhost:{getattr(server, port)};"
        f"SharedAccessKeyName={DEV_KEY_NAME};SharedAccessKey={DEV_KEY_TEXT};"
    )
    options: dict[str, Any] = {"connection_verify": server.ca_file, "retry_total": 0}
    # A transport that is not given is AMQP, as with the official client.
    if transport is not TransportType.Amqp:
        options["transport_type"] = transport
    return text if tls else f"{text}UseDevelopmentEmulator=true;", options


@ways
def test_blocking_receivers_reach_the_server_of_the_senders(
    servers: Servers, way: str
) -> None:
    sent = [str(uuid4()) for _ in servers]

    for server, text in zip(servers, sent, strict=True):
        string, options = arguments(server, way)
        made = twinbus.MessagingFactory.from_connection_string(string, **options)
        with made as factory, factory.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage(text))
    received = []
    for server in servers:
        string, options = arguments(server, way)
        made = twinbus.MessagingFactory.from_connection_string(string, **options)
        with made as factory, factory.get_queue_receiver(QUEUE) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
            received.append(str(message))

    assert received == sent


# Without TLS the official client says so to aiohttp in a deprecated way.
@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")
@ways
async def test_async_receivers_reach_the_server_of_the_senders(
    servers: Servers, way: str
) -> None:
    sent = [str(uuid4()) for _ in servers]
    factory_of = twinbus.aio.MessagingFactory.from_connection_string

    for server, text in zip(servers, sent, strict=True):
        string, options = arguments(server, way)
        async with (
            factory_of(string, **options) as factory,
            factory.get_topic_sender(TOPIC) as sender,
        ):
            await sender.send_messages(ServiceBusMessage(text))
    received = []
    for server in servers:
        string, options = arguments(server, way)
        async with (
            factory_of(string, **options) as factory,
            factory.get_subscription_receiver(TOPIC, SUBSCRIPTION) as receiver,
        ):
            (message,) = await receiver.receive_messages(1, max_wait_time=5)
            await receiver.complete_message(message)
            received.append(str(message))

    assert received == sent


async def test_receivers_keep_the_port_of_a_host_name_with_a_credential(
    servers: Servers,
) -> None:
    _, second = servers
    text = str(uuid4())
    credential = AzureNamedKeyCredential(DEV_KEY_NAME, DEV_KEY_TEXT)
    host = f"localhost:{second.amqps_port}"
    made = twinbus.aio.MessagingFactory(
        host, credential, connection_verify=second.ca_file, retry_total=0
    )

    async with (
        made as factory,
        factory.get_queue_sender(QUEUE) as sender,
        factory.get_queue_receiver(QUEUE) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage(text))
        (message,) = await receiver.receive_messages(1, max_wait_time=5)
        await receiver.complete_message(message)

    assert str(message) == text
