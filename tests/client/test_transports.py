"""The ways to a server: TLS, WebSocket, proxy, plain; and what is in their way."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.client.site import message
from tests.sdk.servers import Endpoint as Served
from tests.sdk.servers import Server, serving
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.client.transport.endpoint import Endpoint, Proxy
from twinbus.core.sas import Secret
from twinbus.errors import Unreachable

NAME = "contoso"
QUEUE = "q"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = {"namespaces": [{"name": NAME, "queues": [{"name": QUEUE}]}]}
    with serving(tmp_path_factory.mktemp("transports"), config) as running:
        yield running


@pytest.fixture
def served(server: Server) -> Served:
    return server.namespaces[NAME]


@pytest.fixture
def trusting(server: Server) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=server.ca_file)


async def exchange(client: Connection) -> None:
    """Send a large message and a small one, and get both back."""
    async with client:
        sent = [message(b"x" * 200_000), message(b"y")]
        for each in sent:
            await client.sender(QUEUE).send(each)
        receiver = client.receiver(QUEUE)
        found: list[Message] = []
        while len(found) < 2:
            found += await receiver.receive(2)
        await receiver.complete(found)
        for each, came in zip(sent, found, strict=True):
            assert each.endswith(came.bare)


def client_of(served: Served, way: Endpoint) -> Connection:
    text = served.secured("localhost") if way.tls else served.connection_string
    return Connection.from_connection_string(text, way, timeout_seconds=10)


async def test_plain(served: Served) -> None:
    await exchange(client_of(served, Endpoint("")))


async def test_tls(served: Served, trusting: ssl.SSLContext) -> None:
    address = ("localhost", served.amqps_port)

    await exchange(client_of(served, Endpoint("", tls=trusting, address=address)))


async def test_a_websocket(served: Served) -> None:
    address = ("127.0.0.1", served.http_port)

    await exchange(client_of(served, Endpoint("", websocket=True, address=address)))


async def test_a_websocket_inside_tls(served: Served, trusting: ssl.SSLContext) -> None:
    address = ("localhost", served.https_port)
    way = Endpoint("", tls=trusting, websocket=True, address=address)

    await exchange(client_of(served, way))


async def test_an_unknown_certificate_is_refused(served: Served) -> None:
    address = ("localhost", served.amqps_port)
    way = Endpoint("", tls=ssl.create_default_context(), address=address)

    async with client_of(served, way) as client:
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.open()


async def test_a_host_that_speaks_no_websocket_is_unreachable(served: Served) -> None:
    address = ("127.0.0.1", served.amqp_port)
    way = Endpoint("", websocket=True, address=address)

    async with client_of(served, way) as client:
        with pytest.raises(Unreachable, match="WebSocket"):
            await client.open()


async def test_a_name_that_does_not_exist_is_unreachable(served: Served) -> None:
    way = Endpoint("", address=("nowhere.invalid", 5672))

    async with client_of(served, way) as client:
        with pytest.raises(Unreachable):
            await client.open()


# -- proxies -------------------------------------------------------------------------


class Tunnels:
    """A proxy of the test: what it was asked, and what it answers."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.port = 0
        self.serving: set[asyncio.Task[None]] = set()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        request = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(request)
        writer.write(self.answer)
        if b" 200 " in self.answer:
            host, _, port = request.split()[1].decode().rpartition(":")
            there = await asyncio.open_connection(host, int(port))
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, there[1]))
                both.create_task(_copy(there[0], writer))
        await _end(writer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    await _end(writer)


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def tunnels(answer: bytes) -> AsyncIterator[Tunnels]:
    proxy = Tunnels(answer)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        async with asyncio.timeout(10):
            await asyncio.gather(*proxy.serving)


async def test_tls_through_a_proxy(served: Served, trusting: ssl.SSLContext) -> None:
    async with tunnels(b"HTTP/1.1 200 Connection established\r\n\r\n") as proxy:
        way = Endpoint(
            "",
            tls=trusting,
            address=("localhost", served.amqps_port),
            proxy=Proxy("127.0.0.1", proxy.port, "user", Secret("secret")),
        )

        await exchange(client_of(served, way))

        (request,) = proxy.requests
        assert request.startswith(b"CONNECT localhost:%d HTTP/1.1" % served.amqps_port)
        assert b"Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n" in request


async def test_a_websocket_inside_tls_through_a_proxy(
    served: Served, trusting: ssl.SSLContext
) -> None:
    async with tunnels(b"HTTP/1.1 200 OK\r\nVia: 1.1 proxy\r\n\r\n") as proxy:
        way = Endpoint(
            "",
            tls=trusting,
            websocket=True,
            address=("localhost", served.https_port),
            proxy=Proxy("127.0.0.1", proxy.port),
        )

        await exchange(client_of(served, way))

        assert len(proxy.requests) == 1


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407"),
        (b"HTTP/1.1 200", "no answer"),
        (b"x" * 20_000, "no answer"),
        (b"\r\n\r\n", "refused"),
    ],
)
async def test_a_proxy_that_refuses_is_an_unreachable_server(
    served: Served, answer: bytes, text: str
) -> None:
    async with tunnels(answer) as proxy:
        way = Endpoint("", proxy=Proxy("127.0.0.1", proxy.port))
        async with client_of(served, way) as client:
            with pytest.raises(Unreachable, match=text):
                await client.open()
