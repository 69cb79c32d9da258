"""Code that brings a credential object instead of a connection string.

`DefaultAzureCredential` and its like are objects that give tokens; the ones here give
tokens of an issuer that the server was told to trust.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    TransportType,
    aio,
)
from azure.servicebus.exceptions import ServiceBusAuthorizationError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.sdk.servers import Server, serving
from tests.server.access import tokens_of_issuer as issuer
from tests.server.access.tokens_of_issuer import OWNER, RECEIVER, SENDER

QUEUE = "orders"


class Credential:
    """Gives a fresh token to every caller."""

    def __init__(self, *roles: str, **changes: Any) -> None:
        self._changes = {"roles": list(roles), **changes}
        self.scopes: list[str] = []

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        del options
        self.scopes += scopes
        now_s = int(time.time())
        claims = issuer.claims(now_s, **self._changes)
        return AccessToken(issuer.token(claims), now_s + 3600)


class AsyncCredential(Credential):
    """The same for the asynchronous client."""

    async def get_token(  # type: ignore[override]
        self, *scopes: str, **options: Any
    ) -> AccessToken:
        return super().get_token(*scopes, **options)

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("trusting")
    issuer.write_jwks(folder)
    jwt = {"issuer": issuer.ISSUER, "jwks": "jwks.json"}
    plain = {"name": "plain", "queues": [{"name": QUEUE}]}
    config = {
        "namespaces": [
            {"name": "trusting", "queues": [{"name": QUEUE}], "jwt": jwt},
            plain,
        ]
    }
    with serving(folder, config) as server:
        yield server


def options(server: Server, namespace: str = "trusting") -> dict[str, Any]:
    port = server.namespaces[namespace].amqps_port
    return {
        "fully_qualified_namespace": "localhost",
        "custom_endpoint_address": f"sb://localhost:{port}",
        "transport_type": TransportType.Amqp,
        "connection_verify": server.ca_file,
        "retry_total": 0,
    }


def test_a_credential_sends_and_receives(trusting: Server) -> None:
    credential = Credential(SENDER, RECEIVER)
    with ServiceBusClient(credential=credential, **options(trusting)) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("a"))
        with client.get_queue_receiver(QUEUE, max_wait_time=10) as receiver:
            message = next(receiver)
            receiver.complete_message(message)

    assert str(message) == "a"
    assert set(credential.scopes) == {"https://servicebus.azure.net//.default"}


def test_an_asynchronous_credential_does_so_too(trusting: Server) -> None:
    async def run() -> str:
        credential: Any = AsyncCredential(OWNER)
        async with aio.ServiceBusClient(
            credential=credential, **options(trusting)
        ) as client:
            async with client.get_queue_sender(QUEUE) as sender:
                await sender.send_messages(ServiceBusMessage("b"))
            async with client.get_queue_receiver(
                QUEUE,
                max_wait_time=10,
                receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
            ) as receiver:
                return str(await anext(receiver))

    assert asyncio.run(run()) == "b"


def test_a_credential_administers(trusting: Server) -> None:
    port = trusting.namespaces["trusting"].https_port
    with ServiceBusAdministrationClient(
        f"localhost:{port}", Credential(OWNER), connection_verify=trusting.ca_file
    ) as client:
        names = [queue.name for queue in client.list_queues()]

    assert names == [QUEUE]


def _send(server: Server, credential: Credential, namespace: str) -> None:
    with (
        ServiceBusClient(credential=credential, **options(server, namespace)) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages(ServiceBusMessage("no"))


def _refusal(server: Server, credential: Credential, namespace: str) -> str:
    """What the server said; with an endpoint of its own the client hides the kind."""
    with pytest.raises(ServiceBusError) as refused:
        _send(server, credential, namespace)
    return str(refused.value.inner_exception)


def test_a_role_gives_its_right_alone(trusting: Server) -> None:
    with pytest.raises(ServiceBusAuthorizationError):
        _send(trusting, Credential(RECEIVER), "trusting")


@pytest.mark.parametrize(
    ("credential", "text"),
    [
        (Credential(), "no role or scope"),
        (Credential("Owner"), "no role or scope"),
        (Credential(OWNER, aud="https://vault.azure.net"), "another audience"),
        (Credential(OWNER, iss="https://other.example"), "another issuer"),
    ],
)
def test_a_token_that_is_not_for_us_is_refused(
    trusting: Server, credential: Credential, text: str
) -> None:
    refusal = _refusal(trusting, credential, "trusting")

    assert "Status code: 401" in refusal
    assert text in refusal


def test_a_server_without_an_issuer_says_what_to_set(trusting: Server) -> None:
    refusal = _refusal(trusting, Credential(OWNER), "plain")

    assert "--jwt-issuer" in refusal
