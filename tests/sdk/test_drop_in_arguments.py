"""The factory takes the official client's arguments, and goes the same way."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import TransportType

from twinbus.aio import MessagingFactory
from twinbus.pairing.options import check_pairing

HOST = "contoso.servicebus.windows.net"
GATEWAY = "sb://gateway.example:4430"
PROXY = {"proxy_hostname": "proxy.example", "proxy_port": 3128}
WEBSOCKET = TransportType.AmqpOverWebsocket


def factory(host: str = HOST, **options: Any) -> MessagingFactory:
    return MessagingFactory(host, AzureNamedKeyCredential("name", "key"), **options)


@pytest.mark.parametrize(
    ("options", "websocket", "target"),
    [
        ({}, False, (HOST, 5671)),
        ({"transport_type": TransportType.Amqp}, False, (HOST, 5671)),
        ({"transport_type": WEBSOCKET}, True, (HOST, 443)),
        # A proxy lets nothing else through, whatever was asked for.
        ({"http_proxy": PROXY}, True, (HOST, 443)),
        (
            {"http_proxy": PROXY, "transport_type": TransportType.Amqp},
            True,
            (HOST, 443),
        ),
        ({"custom_endpoint_address": GATEWAY}, True, ("gateway.example", 4430)),
        (
            {
                "custom_endpoint_address": GATEWAY,
                "transport_type": TransportType.Amqp,
            },
            False,
            ("gateway.example", 4430),
        ),
        ({"custom_endpoint_address": "gateway"}, True, ("gateway", 443)),
        (
            {
                "custom_endpoint_address": "gateway",
                "transport_type": TransportType.Amqp,
            },
            False,
            ("gateway", 5671),
        ),
    ],
)
def test_the_way_is_the_official_clients(
    options: dict[str, Any], websocket: bool, target: tuple[str, int]
) -> None:
    endpoint = factory(**options).endpoint

    assert (endpoint.websocket, endpoint.target) == (websocket, target)


def test_a_namespace_behind_a_gateway_keeps_its_name() -> None:
    made = factory(custom_endpoint_address=GATEWAY)

    assert made.facts.host == HOST
    assert made.fully_qualified_namespace == HOST


def test_two_namespaces_behind_one_gateway_are_two() -> None:
    class Options:
        def claim(self) -> None:
            """They can be used."""

    one = factory(custom_endpoint_address=GATEWAY)
    other = factory("fabrikam.servicebus.windows.net", custom_endpoint_address=GATEWAY)

    check_pairing(one.facts, other.facts, Options())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "options", "text"),
    [
        (HOST, {}, HOST),
        (f"sb://{HOST}:443/", {}, HOST),
        ("localhost:5672", {"use_tls": False}, "localhost:5672"),
    ],
)
def test_it_says_its_name_as_the_official_client_does(
    host: str, options: dict[str, Any], text: str
) -> None:
    assert factory(host, **options).fully_qualified_namespace == text
