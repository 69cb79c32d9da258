"""The page about errors is true: each of its errors is made with the official SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.cli.run import served

# The SDK forgets its socket when TLS fails.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
LISTENS = "k" * 44
# Nothing listens there.
NOWHERE = "9"

Attempts = dict[str, Callable[[], object]]


def rows() -> dict[str, tuple[str, str]]:
    """The class and the text of each error, by when it happens."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[1].startswith("`"):
            found[cells[0]] = (cells[1].strip("`"), cells[2].strip("`"))
    return found


def send(text: str, queue: str, body: str = "x", **options: Any) -> None:
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0, **options) as bus,
        bus.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage(body))


def receive(text: str, queue: str, **options: Any) -> None:
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as bus,
        bus.get_queue_receiver(queue, **options) as receiver,
    ):
        receiver.receive_messages(1, 1)


def administer(text: str, call: str, queue: str, ca_file: str | None) -> None:
    trust = {} if ca_file is None else {"connection_verify": ca_file}
    with ServiceBusAdministrationClient.from_connection_string(
        text, retry_total=0, **trust
    ) as client:
        getattr(client, call)(queue)


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attempts]:
    """What makes each error of the page, with one server."""
    folder = tmp_path_factory.mktemp("errors")
    config = folder / "entities.json"
    reader = {"name": "reader", "rights": ["Listen"], "primary_key": LISTENS}
    rooms = {"name": "rooms", "requires_session": True}
    closed = {"name": "closed", "status": "Disabled"}
    contoso = {"name": "contoso", "queues": ["orders", rooms, closed]}
    contoso["authorization_rules"] = [reader]
    config.write_text(json.dumps({"namespaces": [contoso]}))
    kinds = ("amqp", "amqps", "http", "https")
    ports = [word for kind in kinds for word in (f"--{kind}-port", "0")]
    with served(folder / "data", "--dev", "--config", config, *ports) as server:
        ready = server.ready["namespaces"]["contoso"]
        ca_file = server.ready["ca_file"]
        yield {**of_messages(ready), **of_administration(ready, ca_file)}


def of_messages(ready: dict[str, Any]) -> Attempts:
    text = ready["connection_string"]
    at_port = f":{ready['amqp_port']}/"
    reads = text.replace("RootManageSharedAccessKey", "reader")
    return {
        "the key is wrong": partial(send, text.replace("SAS_KEY", "OTHER"), "orders"),
        "the entity does not exist": partial(send, text, "nowhere"),
        "the key lacks the right": partial(
            send, reads.replace("SAS_KEY_VALUE", LISTENS), "orders"
        ),
        "no server is there": partial(
            send, text.replace(at_port, f":{NOWHERE}/"), "orders"
        ),
        "the port is the one for HTTP": partial(
            send, text.replace(at_port, f":{ready['http_port']}/"), "orders"
        ),
        "the certificate is not trusted": partial(
            send,
            f"Endpoint=sb://localhost/;{KEY}",
            "orders",
            custom_endpoint_address=f"sb://localhost:{ready['amqps_port']}",
            transport_type=TransportType.Amqp,
        ),
        "the message is too large": partial(send, text, "orders", "x" * 300_000),
        "a message lacks a session id": partial(send, text, "rooms"),
        "a receiver lacks a session": partial(receive, text, "rooms"),
        "a session is asked of a plain queue": partial(
            receive, text, "orders", session_id="a"
        ),
        "the entity is disabled": partial(send, text, "closed"),
    }


def of_administration(ready: dict[str, Any], ca_file: str) -> Attempts:
    text = ready["admin_connection_string"]
    at_port = f":{ready['https_port']}/"
    ask = partial(administer, call="get_queue", queue="orders", ca_file=ca_file)
    return {
        "the entity exists already": partial(
            administer, text, "create_queue", "orders", ca_file
        ),
        "the entity is not there": partial(ask, text, queue="nowhere"),
        "the key does not fit": partial(ask, text.replace("SAS_KEY", "OTHER")),
        "the authority is not trusted": partial(ask, text, ca_file=None),
        "the port is the one for AMQP": partial(ask, ready["connection_string"]),
        "no server listens": partial(ask, text.replace(at_port, f":{NOWHERE}/")),
    }


def test_every_error_of_the_page_has_an_attempt(attempts: Attempts) -> None:
    assert list(attempts) == list(rows())


@pytest.mark.parametrize("when", rows())
def test_the_error_is_as_the_page_says(attempts: Attempts, when: str) -> None:
    kind, text = rows()[when]

    with pytest.raises(AzureError) as caught:
        attempts[when]()

    assert type(caught.value).__name__ == kind
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("the key is wrong", "The key name or the signature of the token is wrong"),
        ("the entity does not exist", "nowhere' could not be found"),
    ],
)
def test_the_reason_is_inside_the_exception(
    attempts: Attempts, when: str, reason: str
) -> None:
    with pytest.raises(AzureError) as caught:
        attempts[when]()

    assert reason in str(caught.value.inner_exception)
