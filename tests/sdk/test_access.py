"""Who gets in and how: names, keys, rights, TLS and WebSockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus._base_handler import _generate_sas_token
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from tests.sdk import declared
from tests.sdk.buses import ARRIVES_SECONDS, Bus, take_one
from tests.sdk.declared import key, subscription
from tests.sdk.servers import Endpoint

SECRET = "c2VjcmV0IG9mIHRoZSB0ZXN0cw=="
declared.namespace_key("sends", SECRET, "Send")
declared.namespace_key("listens", SECRET, "Listen")

OPEN = declared.queue("open")
GUARDED = declared.queue(
    "guarded",
    authorization_rules=[
        key("own-sender", SECRET, "Send"),
        key("own-listener", SECRET, "Listen"),
    ],
)


def sends(bus: Bus, client: ServiceBusClient, queue: str) -> None:
    sender = bus.keep(client.get_queue_sender(queue))
    sender.send_messages(ServiceBusMessage("a"))


def receives(bus: Bus, client: ServiceBusClient, queue: str) -> None:
    receiver = bus.keep(client.get_queue_receiver(queue))
    receiver.complete_message(take_one(receiver))


@pytest.mark.parametrize("use", [sends, receives])
def test_an_unknown_entity_is_refused(
    bus: Bus, use: Callable[[Bus, ServiceBusClient, str], None]
) -> None:
    # Its token is refused already, so the client speaks of authentication.
    with pytest.raises(ServiceBusAuthenticationError):
        use(bus, bus.client, "no-such-queue")


@declared.with_topic(subscription("s"))
def test_a_topic_cannot_be_received_from(bus: Bus, topic: str) -> None:
    with pytest.raises(ServiceBusError):
        bus.receiver(topic).receive_messages(1, ARRIVES_SECONDS)


@pytest.mark.parametrize(
    ("name", "secret"), [("sends", "d3Jvbmc="), ("no-such-key", SECRET)]
)
def test_a_wrong_key_is_refused(bus: Bus, name: str, secret: str) -> None:
    client = bus.connect(bus.endpoint.signed(name, secret))

    with pytest.raises(ServiceBusAuthenticationError):
        sends(bus, client, OPEN)


def test_a_key_gives_only_its_rights(bus: Bus) -> None:
    sender = bus.connect(bus.endpoint.signed("sends", SECRET))
    listener = bus.connect(bus.endpoint.signed("listens", SECRET))

    sends(bus, sender, OPEN)
    with pytest.raises(ServiceBusAuthorizationError):
        receives(bus, sender, OPEN)
    with pytest.raises(ServiceBusAuthorizationError):
        sends(bus, listener, OPEN)
    receives(bus, listener, OPEN)


def test_a_key_of_a_queue_opens_that_queue_alone(bus: Bus) -> None:
    sender = bus.connect(bus.endpoint.signed("own-sender", SECRET))
    listener = bus.connect(bus.endpoint.signed("own-listener", SECRET))

    sends(bus, sender, GUARDED)
    with pytest.raises(ServiceBusAuthorizationError):
        sends(bus, listener, GUARDED)
    receives(bus, listener, GUARDED)
    with pytest.raises(ServiceBusAuthenticationError):
        sends(bus, sender, OPEN)


@declared.with_queue()
def test_a_connection_string_may_carry_a_token(bus: Bus, queue: str) -> None:
    endpoint = bus.endpoint.connection_string.split(";")[0]
    host = endpoint.removeprefix("Endpoint=").rstrip("/")
    token = _generate_sas_token(host, "sends", SECRET).token
    client = bus.connect(
        f"{endpoint};SharedAccessSignature={token};UseDevelopmentEmulator=true"
    )

    sends(bus, client, queue)

    assert bus.drained(queue, 1) == ["a"]


@declared.with_queue()
def test_a_connection_string_may_name_its_entity(bus: Bus, queue: str) -> None:
    text = f"{bus.endpoint.connection_string.rstrip(';')};EntityPath={queue}"
    client = bus.connect(text)

    sends(bus, client, queue)
    receives(bus, client, queue)


@declared.with_queue()
def test_names_ignore_case(bus: Bus, queue: str) -> None:
    bus.send(queue.upper(), "a")

    assert bus.drained(queue, 1) == ["a"]


NESTED = declared.queue("area/team/orders")


def test_names_may_have_levels(bus: Bus) -> None:
    bus.send(NESTED, "a")

    receiver = bus.receiver(NESTED)
    assert [str(message) for message in receiver.peek_messages()] == ["a"]
    receiver.dead_letter_message(take_one(receiver))
    assert bus.drained(NESTED, 1, sub_queue="deadletter") == ["a"]


def tls(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "custom_endpoint_address": f"sb://localhost:{endpoint.amqps_port}",
        "transport_type": TransportType.Amqp,
    }


def websocket(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "custom_endpoint_address": f"sb://localhost:{endpoint.https_port}",
        "transport_type": TransportType.AmqpOverWebsocket,
    }


TRANSPORTS = {"tls": tls, "websocket": websocket}
CARRIED = {name: declared.queue(f"by-{name}") for name in TRANSPORTS}
ORDERED = declared.queue("by-both-in-sessions", requires_session=True)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_other_transports_carry_the_same(bus: Bus, transport: str) -> None:
    queue = CARRIED[transport]
    client = bus.connect(
        bus.endpoint.secured("localhost"),
        connection_verify=bus.ca_file,
        **TRANSPORTS[transport](bus.endpoint),
    )
    body = "0123456789" * 20 * 1024

    bus.keep(client.get_queue_sender(queue)).send_messages(ServiceBusMessage(body))
    receiver = bus.keep(client.get_queue_receiver(queue))
    assert len(receiver.peek_messages(sequence_number=1)) == 1
    message = take_one(receiver)
    receiver.renew_message_lock(message)
    receiver.complete_message(message)
    assert str(message) == body

    receiver = bus.keep(client.get_queue_receiver(ORDERED, session_id=transport))
    receiver.session.set_state(b"state")
    assert receiver.session.get_state() == b"state"


def test_an_unknown_certificate_is_not_trusted(bus: Bus) -> None:
    client = bus.connect(bus.endpoint.secured("localhost"), **tls(bus.endpoint))

    with pytest.raises(ServiceBusError):
        sends(bus, client, OPEN)
