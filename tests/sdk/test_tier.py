"""Tiers through the official clients: what standard refuses and premium takes."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import MessageSizeExceededError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.sdk.servers import Endpoint, Server, serving
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, make_token

KIB = 1024
LARGE = "x" * 300 * KIB
TRANSPORTS = ("tcp", "tls", "websocket")
CONFIG = {
    "namespaces": [
        {"name": "small", "tier": "standard", "queues": ["orders"]},
        {
            "name": "large",
            "tier": "Premium",
            "queues": [{"name": "orders", "max_message_size_in_kilobytes": 1024}],
        },
        {"name": "usual", "queues": ["orders"]},
    ]
}


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a namespace of each tier, and one that names none."""
    with serving(tmp_path_factory.mktemp("tiers"), CONFIG) as running:
        yield running


def connect(tiers: Server, name: str, transport: str) -> ServiceBusClient:
    endpoint = tiers.namespaces[name]
    if transport == "tcp":
        return ServiceBusClient.from_connection_string(
            endpoint.connection_string, retry_total=0
        )
    kinds = {
        "tls": (endpoint.amqps_port, TransportType.Amqp),
        "websocket": (endpoint.https_port, TransportType.AmqpOverWebsocket),
    }
    port, kind = kinds[transport]
    return ServiceBusClient.from_connection_string(
        endpoint.secured("localhost"),
        connection_verify=tiers.ca_file,
        custom_endpoint_address=f"sb://localhost:{port}",
        transport_type=kind,
        retry_total=0,
    )


def administer(tiers: Server, name: str) -> ServiceBusAdministrationClient:
    endpoint = tiers.namespaces[name]
    return ServiceBusAdministrationClient.from_connection_string(
        endpoint.secured(f"localhost:{endpoint.https_port}"),
        connection_verify=tiers.ca_file,
        retry_total=0,
    )


def post(endpoint: Endpoint, body: str) -> int:
    """Send over HTTP; returns the status."""
    connection = HTTPConnection("127.0.0.1", endpoint.http_port)
    token = make_token("http://x", DEV_KEY_NAME, Secret(DEV_KEY_TEXT), 1 << 33)
    connection.request("POST", "/orders/messages", body, {"Authorization": token})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_standard_refuses_large_messages(tiers: Server, transport: str) -> None:
    with (
        connect(tiers, "small", transport) as client,
        client.get_queue_sender("orders") as sender,
    ):
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(LARGE))

        assert sender.create_message_batch().max_size_in_bytes == 256 * KIB


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_premium_takes_large_messages(tiers: Server, transport: str) -> None:
    with (
        connect(tiers, "large", transport) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages(ServiceBusMessage(LARGE))
        message = receiver.receive_messages(1, 30)[0]
        receiver.complete_message(message)

    assert str(message) == LARGE


def test_http_knows_the_tier_too(tiers: Server) -> None:
    assert post(tiers.namespaces["small"], LARGE) == 403
    assert post(tiers.namespaces["large"], LARGE) == 201


def test_the_namespace_tells_its_tier(tiers: Server) -> None:
    told = {}
    for name in tiers.namespaces:
        with administer(tiers, name) as admin:
            told[name] = admin.get_namespace_properties().messaging_sku

    assert told == {"small": "Standard", "large": "Premium", "usual": "Premium"}


def refusal(refused: pytest.ExceptionInfo[HttpResponseError]) -> tuple[Any, str]:
    return refused.value.status_code, refused.value.message


def test_standard_has_no_entities_with_large_messages(tiers: Server) -> None:
    text = "must be 256 in a namespace of the tier standard. Leave it out, or serve the"
    with administer(tiers, "small") as admin:
        with pytest.raises(HttpResponseError) as refused:
            admin.create_queue("q", max_message_size_in_kilobytes=1024)
        with pytest.raises(HttpResponseError) as topic:
            admin.create_topic("t", max_message_size_in_kilobytes=1024)
        # What clients read they may write back.
        found = admin.get_queue("orders")
        admin.update_queue(found)
        found.max_message_size_in_kilobytes = 2048
        with pytest.raises(HttpResponseError) as update:
            admin.update_queue(found)

        left = admin.get_queue("orders").max_message_size_in_kilobytes
    for each in (refused, topic, update):
        status, said = refusal(each)
        assert (status, text in said) == (400, True), said
        assert "SubCode=40000" in said
    assert left == 256


def test_premium_has_entities_with_large_messages(tiers: Server) -> None:
    with administer(tiers, "usual") as admin:
        made = admin.create_queue("q", max_message_size_in_kilobytes=1024)

    assert made.max_message_size_in_kilobytes == 1024
