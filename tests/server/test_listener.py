"""Ports: which there are, what goes in clear text, and what a refusal says."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from pathlib import Path

import pytest

from twinbus.clock import SystemClock
from twinbus.errors import ConfigError
from twinbus.server import listener
from twinbus.server.certificates import TlsOptions, prepare
from twinbus.server.listener import ListenOptions


class Echo(asyncio.Protocol):
    """Says back what it hears."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def options(**ports: int) -> ListenOptions:
    return ListenOptions("127.0.0.1", ports)


def test_the_next_namespaces_count_up_from_the_first() -> None:
    plan = listener.plan_ports(options(amqp=5672, http=5300), ["a", "b", "c"])

    assert plan == {
        "a": {"amqp": 5672, "http": 5300},
        "b": {"amqp": 5673, "http": 5301},
        "c": {"amqp": 5674, "http": 5302},
    }


def test_zero_stays_zero_for_every_namespace() -> None:
    plan = listener.plan_ports(options(amqp=0, http=0), ["a", "b"])

    assert plan == {"a": {"amqp": 0, "http": 0}, "b": {"amqp": 0, "http": 0}}


def test_ports_that_would_collide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Port 5672 would be both .* choose another"):
        listener.plan_ports(options(amqp=5672, amqps=5671), ["a", "b"])


@pytest.mark.parametrize("port", [-1, 65536, 65535])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match="not between 0 and 65535"):
        listener.plan_ports(options(amqp=port), ["a", "b"])


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.1", False),
        ("localhost.example.com", False),
    ],
)
def test_loopback_is_known(host: str, expected: bool) -> None:
    assert listener.is_loopback(host) is expected


@pytest.mark.parametrize("kind", ["amqp", "http"])
def test_clear_text_beyond_loopback_must_be_asked_for(kind: str) -> None:
    with pytest.raises(ConfigError, match="--allow-plaintext"):
        listener.check_plaintext(ListenOptions("0.0.0.0", {kind: 0}))

    listener.check_plaintext(ListenOptions("0.0.0.0", {kind: 0}, allow_plaintext=True))
    listener.check_plaintext(ListenOptions("0.0.0.0", {"amqps": 0, "https": 0}))
    listener.check_plaintext(ListenOptions("127.0.0.1", {kind: 0}))


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(
            ConfigError, match=rf"127.0.0.1:{port} is in use.*--amqp-port"
        ):
            listener.bind("127.0.0.1", port, "amqp")


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match="no address of this machine"):
        listener.bind("192.0.2.1", 0, "amqp")


def test_a_name_that_does_not_resolve_is_refused() -> None:
    with pytest.raises(ConfigError, match="--host"):
        listener.bind("no such host", 0, "amqp")


def test_of_two_that_took_one_port_only_one_can_listen() -> None:
    first = listener.bind("127.0.0.1", 0, "amqp")
    port = first.getsockname()[1]
    second = listener.bind("127.0.0.1", port, "http")

    with first, second:
        listener.queue(first, "amqp")
        with pytest.raises(ConfigError, match=f"{port} is in use.*--http-port"):
            listener.queue(second, "http")


async def test_a_client_gets_a_protocol_of_its_own() -> None:
    bound = listener.bind("127.0.0.1", 0, "amqp")
    server = await listener.listen(bound, "amqp", Echo, None)
    port = bound.getsockname()[1]

    async with server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        await writer.wait_closed()


async def test_tls_serves_who_trusts_the_authority_and_asks_for_its_names(
    tmp_path: Path,
) -> None:
    # Real time: clients compare it with the certificate's.
    now_ms = SystemClock().now_ms()
    tls, ca_file = prepare(tmp_path, ["contoso"], TlsOptions(), now_ms)
    bound = listener.bind("127.0.0.1", 0, "amqps")
    server = await listener.listen(bound, "amqps", Echo, tls)
    port = bound.getsockname()[1]
    trusting = ssl.create_default_context(cafile=str(ca_file))
    strict = ssl.create_default_context(cafile=str(ca_file))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    old = ssl.create_default_context(cafile=str(ca_file))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.maximum_version = ssl.TLSVersion.TLSv1_1

    async with server:
        for context in (trusting, strict):
            for name in ("localhost", "127.0.0.1", "contoso.localhost"):
                assert await said_back(port, context, name) == b"hello"
        for context, name in (
            (ssl.create_default_context(), "localhost"),
            (trusting, "evil.example"),
            (old, "localhost"),
        ):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await said_back(port, context, name)


async def said_back(port: int, context: ssl.SSLContext, name: str) -> bytes:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=name
    )
    writer.write(b"hello")
    data = await reader.readexactly(5)
    writer.close()
    await writer.wait_closed()
    return data


async def test_a_tls_port_does_not_answer_clear_text(tmp_path: Path) -> None:
    tls, _ = prepare(tmp_path, [], TlsOptions(), SystemClock().now_ms())
    bound = listener.bind("127.0.0.1", 0, "amqps")
    server = await listener.listen(bound, "amqps", Echo, tls)

    async with server:
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(b"AMQP\x00\x01\x00\x00")
        assert b"AMQP" not in await reader.read()
        writer.close()
        await writer.wait_closed()
