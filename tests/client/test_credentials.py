"""Credentials: every kind gives tokens, is read anew each time, and may fail."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

from tests.client.peer import Peer, peering
from tests.client.site import QUEUE, Site, message
from tests.server.access import tokens_of_issuer as issuer
from tests.server.raw import connections_of, serving
from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey, SasSignature, credential_of
from twinbus.client.transport.endpoint import Endpoint
from twinbus.clock import ManualClock
from twinbus.core import sas
from twinbus.core.entity import QueueDescription
from twinbus.core.rights import JwtOptions
from twinbus.errors import (
    ArgumentError,
    ClaimRefused,
    CredentialFailed,
    DeadlineExceeded,
    RemoteError,
)
from twinbus.server.broker.directory.config import NamespaceConfig

ROOT = (sas.DEV_KEY_NAME, sas.DEV_KEY_TEXT)


class Given(NamedTuple):
    """What a token credential returns."""

    token: str
    expires_on: int


class Asked:
    """A token credential that counts; `error` is what it raises instead."""

    def __init__(self, seconds: int = 3600, error: Exception | None = None) -> None:
        self.scopes: list[str] = []
        self._seconds = seconds
        self._error = error

    def get_token(self, *scopes: str, **_: Any) -> Given:
        self.scopes += scopes
        if self._error is not None:
            raise self._error
        expires_s = ManualClock().now_ms() // 1000 + self._seconds
        return Given(f"token-{len(self.scopes)}", expires_s)


class AsyncAsked(Asked):
    """The same, asynchronous."""

    async def get_token(  # type: ignore[override]
        self, *scopes: str, **_: Any
    ) -> Given:
        return Asked.get_token(self, *scopes)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with peering() as listening:
        yield listening


def client_of(peer: Peer, credential: Any, timeout_seconds: float = 5) -> Connection:
    endpoint = Endpoint("127.0.0.1", peer.port)
    return Connection(
        endpoint, credential, timeout_seconds=timeout_seconds, clock=ManualClock()
    )


def signature() -> str:
    expires_s = int(time.time()) + 600
    return sas.make_token("sb://127.0.0.1/", ROOT[0], sas.Secret(ROOT[1]), expires_s)


@pytest.mark.parametrize(
    "credential",
    [
        SasKey(*ROOT),
        AzureNamedKeyCredential(*ROOT),
        SasSignature(signature()),
        AzureSasCredential(signature()),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_the_server_takes_the_token(namespace: Site, credential: Any) -> None:
    await namespace.client(credential).sender(QUEUE).send(message())


@pytest.mark.parametrize("kind", [Asked, AsyncAsked])
async def test_a_token_credential_is_asked_for_the_scope_of_the_service(
    peer: Peer, kind: type[Asked]
) -> None:
    credential = kind()
    async with client_of(peer, credential) as client:
        await client.sender("q").send(message())

    assert credential.scopes == ["https://servicebus.azure.net//.default"]
    assert peer.tokens == ["token-1"]


async def test_an_invalid_credential_is_refused_at_once(peer: Peer) -> None:
    with pytest.raises(ArgumentError):
        client_of(peer, object())


async def test_connection_strings_carry_keys_and_signatures() -> None:
    key = sas.parse_connection_string(
        "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=k"
    )
    token = sas.parse_connection_string(
        f"Endpoint=sb://h/;SharedAccessSignature={signature()}"
    )

    assert isinstance(credential_of(key), SasKey)
    assert isinstance(credential_of(token), SasSignature)


@pytest.mark.parametrize("kind", [SasKey, AzureNamedKeyCredential])
async def test_a_key_that_is_replaced_is_used_from_the_next_token_on(
    peer: Peer, kind: Any
) -> None:
    credential = kind("old", "key")
    async with client_of(peer, credential) as client:
        await client.sender("one").send(message())
        credential.update("new", "key")
        await client.sender("two").send(message())

    names = [sas.parse_token(each).key_name for each in peer.tokens]
    assert names == ["old", "new"]


async def test_a_refused_key_can_be_repaired_without_a_new_client(
    namespace: Site,
) -> None:
    credential = SasKey(ROOT[0], "wrong")
    sender = namespace.client(credential).sender(QUEUE)
    with pytest.raises(ClaimRefused) as refused:
        await sender.send(message())
    assert refused.value.status == 401

    credential.update(*ROOT)

    await sender.send(message())


async def test_a_token_is_renewed_before_it_ends(peer: Peer) -> None:
    async with client_of(peer, Asked(seconds=1)) as client:
        await client.sender("q").send(message())

        await peer.until(lambda: len(peer.tokens) == 2)

    assert peer.tokens == ["token-1", "token-2"]


async def test_a_renewal_uses_the_key_of_its_moment(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENT_TOKEN_SECONDS", 1)
    credential = SasKey("old", "key")
    async with client_of(peer, credential) as client:
        await client.sender("q").send(message())
        credential.update("new", "key")

        await peer.until(lambda: len(peer.tokens) == 2)

    names = [sas.parse_token(each).key_name for each in peer.tokens]
    assert names == ["old", "new"]


async def test_a_link_outlives_the_bearer_token_that_it_was_made_with(
    tmp_path: Path,
) -> None:
    class Issuer:
        """Gives a token for a second, and then one for an hour."""

        asked = 0
        renewed = asyncio.Event()

        async def get_token(self, *_: str) -> Given:
            now_s = server.clock.now_ms() // 1000
            end_s = now_s + (3600 if self.asked else 1)
            self.asked += 1
            if self.asked > 1:
                self.renewed.set()
            text = issuer.token(issuer.claims(now_s, exp=end_s, roles=[issuer.SENDER]))
            return Given(text, end_s)

    jwt = JwtOptions(issuer.ISSUER, issuer.write_jwks(tmp_path))
    config = NamespaceConfig("contoso", (QueueDescription("q"),), jwt=jwt)
    async with serving(tmp_path / "data", config) as server:
        endpoint = Endpoint("127.0.0.1", server.port)
        credential = Issuer()
        async with Connection(endpoint, credential, clock=server.clock) as client:
            sender = client.sender("q")
            await sender.send(message())
            async with asyncio.timeout(10):
                await credential.renewed.wait()
            # The server has the new token before anything that is sent behind it.
            await sender.send(message())
            link = sender._link

            server.advance(5000)
            await sender.send(message())

            assert sender._link is link
            # It may send, and nothing else.
            with pytest.raises(RemoteError) as refused:
                await client.receiver("q").open()
            assert refused.value.condition == "amqp:unauthorized-access"


@pytest.mark.parametrize("step_ms", [2 * 3_600_000, -2 * 3_600_000])
async def test_a_token_is_made_by_a_clock_that_was_set(
    tmp_path: Path, step_ms: int
) -> None:
    config = NamespaceConfig("contoso", (QueueDescription("q"),))
    async with serving(tmp_path, config) as server:
        endpoint = Endpoint("127.0.0.1", server.port)
        credential = SasKey(*ROOT)
        async with Connection(endpoint, credential, clock=server.clock) as client:
            await client.sender("q").send(message())
            server.clock.step(step_ms)
            server.host.tick()

            await client.sender("q").send(message())

            connected = connections_of(server.ports["contoso"])
            ends_s = [each.claims.next_end_s() for each in connected]
            now_s = server.clock.now().wall_ms // 1000
            assert all(end is not None and now_s < end for end in ends_s)


async def test_one_claim_serves_all_links_of_an_entity(peer: Peer) -> None:
    async with client_of(peer, Asked()) as client:
        await client.sender("q").send(message())
        await client.sender("q").send(message())
        await client.receiver("q").open()

    assert len(peer.tokens) == 1


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (ClientAuthenticationError("no such user"), True),
        (ServiceRequestError("no route"), False),
        (RuntimeError("broken"), False),
    ],
)
async def test_a_credential_that_fails_says_whose_fault_it_is(
    peer: Peer, error: Exception, refused: bool
) -> None:
    async with client_of(peer, Asked(error=error)) as client:
        with pytest.raises(CredentialFailed) as failed:
            await client.sender("q").send(message())

    assert failed.value.refused is refused
    assert failed.value.__cause__ is error


async def test_a_hanging_credential_ends_at_the_timeout(peer: Peer) -> None:
    asked = threading.Event()
    released = threading.Event()

    class Hanging:
        def get_token(self, *_: str) -> Given:
            asked.set()
            released.wait(30)
            return Given("late", 0)

    async with client_of(peer, Hanging(), 0.1) as client:
        with pytest.raises(DeadlineExceeded) as late:
            await client.sender("q").send(message())

    assert late.value.stage == "put-token"
    assert asked.is_set()
    released.set()


async def test_a_token_that_the_server_no_longer_honours_is_put_anew(
    namespace: Site,
) -> None:
    client = namespace.client()
    sender = client.sender(QUEUE)
    await sender.send(message())
    (connection,) = connections_of(namespace.server.ports["contoso"])
    connection.claims._by_audience.clear()
    connection.check_claims()

    with pytest.raises(RemoteError):
        await sender.send(message())
    await sender.send(message())
