"""Heads of requests that are refused before a surface sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.http.websocket import PATH, SUBPROTOCOLS
from twinbus.server.setup.certificates import TlsOptions
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.server import Server, ServerOptions

UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    f"Sec-WebSocket-Protocol: {SUBPROTOCOLS[0]}\r\n"
)


@pytest.fixture(params=[True], ids=["dev"])
async def port(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[int]:
    """The HTTP port of a server."""
    listen = ListenOptions("127.0.0.1", {"http": 0})
    options = ServerOptions(
        [NamespaceConfig("contoso")],
        tmp_path,
        listen,
        dev=request.param,
        tls=TlsOptions(hosts=("bus.test",)),
    )
    server = Server(options)
    ready = await server.start()
    yield ready["namespaces"]["contoso"]["http_port"]
    await server.stop()


async def ask(port: int, request: str) -> tuple[int, str]:
    """Write a request and read until the server hangs up: status and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    status = int(head.split()[1])
    body = b"" if status == 101 else await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return status, body.decode()


def health(headers: str) -> str:
    return f"GET /health HTTP/1.1\r\nConnection: close\r\n{headers}\r\n\r\n"


@pytest.mark.parametrize("protocol_id", [0, 3])
async def test_amqp_is_closed_at_once(
    port: int, protocol_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client waits for a header of AMQP, and takes all else for broken frames."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"AMQP" + bytes([protocol_id, 1, 0, 0]))

    assert await asyncio.wait_for(reader.read(), 10) == b""
    assert "it speaks AMQP; this port is for HTTP" in caplog.text
    writer.close()
    await writer.wait_closed()


async def test_a_body_with_two_lengths_is_refused(port: int) -> None:
    """The second request would be a body to one reader and a request to another."""
    request = (
        "POST /q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\n"
        "Host: localhost\r\n\r\n"
    )

    status, text = await ask(port, request)

    assert status == 400
    assert text == "Send Content-Length or Transfer-Encoding, not both.\n"


async def test_two_lengths_that_differ_are_refused(port: int) -> None:
    lengths = "Content-Length: 5\r\nContent-Length: 6"

    status, _ = await ask(port, health(f"Host: localhost\r\n{lengths}"))

    assert status == 400


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:5300", 200),
        ("127.0.0.1:5300", 200),
        ("127.0.0.2", 200),
        ("[::1]:5300", 200),
        ("contoso.localhost", 200),
        ("contoso.servicebus.windows.net", 200),
        ("bus.test:443", 200),
        ("evil.test", 403),
        ("contoso.evil.test", 403),
        ("localhost.evil.test", 403),
        ("127.0.0.1.evil.test", 403),
        ("[::1", 200),
        ("10.0.0.1", 403),
        ("", 403),
    ],
)
async def test_with_dev_the_host_must_be_of_this_machine(
    port: int, host: str, status: int
) -> None:
    assert (await ask(port, health(f"Host: {host}")))[0] == status
    upgrade = f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\n{UPGRADE}\r\n"
    assert (await ask(port, upgrade))[0] == (101 if status == 200 else 403)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:5300", 200),
        ("https://localhost:5300", 200),
        ("http://localhost:3000", 403),
        ("http://localhost", 403),
        ("https://evil.test", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_with_dev_the_origin_must_be_the_server_itself(
    port: int, origin: str, status: int
) -> None:
    headers = f"Host: localhost:5300\r\nOrigin: {origin}"

    found, text = await ask(port, health(headers))
    upgrade = f"GET {PATH} HTTP/1.1\r\n{headers}\r\n{UPGRADE}\r\n"
    upgraded, _ = await ask(port, upgrade)

    assert (found, upgraded) == (status, 101 if status == 200 else 403)
    if status == 403:
        assert text == "With --dev no web page of another origin may use the server.\n"


async def test_a_refused_head_request_has_no_body(port: int) -> None:
    request = "HEAD /health HTTP/1.1\r\nHost: evil.test\r\n\r\n"

    assert await ask(port, request) == (403, "")


@pytest.mark.parametrize("port", [False], ids=["not dev"], indirect=True)
async def test_without_dev_any_host_and_origin_will_do(port: int) -> None:
    """The key is secret then, and a proxy may stand before the server."""
    headers = "Host: bus.example\r\nOrigin: https://console.example"

    assert (await ask(port, health(headers)))[0] == 200
