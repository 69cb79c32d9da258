"""HTTP: health, and AMQP over WebSockets, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import wsproto
from wsproto import ConnectionType, events

from twinbus.clock import ManualClock
from twinbus.errors import StoreFault
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.http.server import HttpServer
from twinbus.server.http.websocket import PATH, SUBPROTOCOLS
from twinbus.server.setup import listener
from twinbus.store.opening import open_store


class Shouter(asyncio.Protocol):
    """Says back in capitals what it hears, and hangs up when it hears `bye`."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        assert transport.get_extra_info("peername")[0] == "127.0.0.1"

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)
        self.transport.write(data.upper())
        if data == b"bye":
            self.transport.close()
            assert self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


@dataclass
class Site:
    host: Host
    port: int
    shouters: list[Shouter]
    http: HttpServer


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    host = Host(Namespace("contoso", open_store(None)), ManualClock())
    shouters: list[Shouter] = []

    def connect(port: NamespacePort) -> asyncio.Protocol:
        shouters.append(Shouter())
        return shouters[-1]

    http = HttpServer(NamespacePort(host), connect)
    bound = listener.bind("127.0.0.1", 0, "http")
    server = listener.listen(bound, "http", http.protocol, None)
    yield Site(host, bound.getsockname()[1], shouters, http)
    server.close()
    await http.close()
    await host.close()


async def ask(port: int, request: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def test_health_is_what_the_emulator_says(site: Site) -> None:
    answer = await ask(site.port, "GET /health")

    assert answer.startswith("HTTP/1.1 200 ")
    assert answer.endswith('{"status":"healthy","message":"Service is healthy."}')


async def test_a_stopped_store_is_not_healthy(site: Site) -> None:
    site.host.fault = StoreFault("The disk is full.")

    answer = await ask(site.port, "GET /health")

    assert answer.startswith("HTTP/1.1 503 ")
    assert "The disk is full." in answer


@pytest.mark.parametrize(
    ("request_line", "status"), [("GET /other", 401), ("DELETE /health", 401)]
)
async def test_other_requests_are_refused(
    site: Site, request_line: str, status: int
) -> None:
    assert (await ask(site.port, request_line)).startswith(f"HTTP/1.1 {status} ")


async def test_bytes_that_are_not_http_are_refused(site: Site) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"\x16\x03\x01\x00\xa5\r\n\r\n")

    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    await writer.wait_closed()


class Caller:
    """A WebSocket client that decides how its bytes are cut."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader, self.writer = reader, writer
        self.messages = wsproto.WSConnection(ConnectionType.CLIENT)
        self.pending: list[events.Event] = []

    @classmethod
    async def call(
        cls,
        port: int,
        target: str = PATH,
        protocols: tuple[str, ...] = SUBPROTOCOLS[:1],
    ) -> Caller:
        caller = cls(*await asyncio.open_connection("127.0.0.1", port))
        caller.send(events.Request(host="x", target=target, subprotocols=[*protocols]))
        return caller

    def send(self, event: events.Event) -> None:
        self.writer.write(self.messages.send(event))

    def say(self, data: bytes, *, finished: bool = True) -> None:
        self.send(events.BytesMessage(data=data, message_finished=finished))

    async def next(self) -> events.Event:
        while not self.pending:
            data = await self.reader.read(65536)
            self.messages.receive_data(data or None)
            self.pending.extend(self.messages.events())
        return self.pending.pop(0)

    async def hear(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            event = await self.next()
            assert isinstance(event, events.BytesMessage), event
            data += event.data
        return data

    async def hang_up(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def called(site: Site) -> Caller:
    caller = await Caller.call(site.port)
    accepted = await caller.next()
    assert isinstance(accepted, events.AcceptConnection)
    assert accepted.subprotocol == SUBPROTOCOLS[0]
    return caller


@pytest.mark.parametrize(
    "target",
    [
        PATH,
        PATH + "/",
        "/%24servicebus/websocket?a=b",
        f"https://localhost{PATH}",
        f"HTTP://localhost:1{PATH}/?a=b",
    ],
)
@pytest.mark.parametrize("subprotocol", ["AMQPWSB10", "amqp"])
async def test_the_subprotocol_is_selected(
    site: Site, target: str, subprotocol: str
) -> None:
    caller = await Caller.call(site.port, target, ("other", subprotocol))

    accepted = await caller.next()

    assert isinstance(accepted, events.AcceptConnection)
    assert accepted.subprotocol == subprotocol
    await caller.hang_up()


@pytest.mark.parametrize(
    ("target", "protocols", "status"),
    [
        ("/other", ("amqp",), 404),
        (f"https:/{PATH}", ("amqp",), 404),
        (PATH, ("mqtt",), 400),
        (PATH, (), 400),
    ],
)
async def test_another_path_or_subprotocol_is_refused(
    site: Site, target: str, protocols: tuple[str, ...], status: int
) -> None:
    caller = await Caller.call(site.port, target, protocols)

    refused = await caller.next()

    assert isinstance(refused, events.RejectConnection)
    assert refused.status_code == status
    assert not site.shouters
    await caller.hang_up()


async def test_bytes_arrive_in_order_however_they_are_cut(site: Site) -> None:
    caller = await called(site)

    caller.say(b"one")
    caller.say(b"t", finished=False)
    caller.say(b"w", finished=False)
    caller.send(events.Ping(payload=b"p"))
    caller.say(b"o")
    caller.say(b"x" * 300_000)

    heard: list[bytes] = []
    while sum(len(data) for data in heard) < 300_006:
        event = await caller.next()
        if isinstance(event, events.BytesMessage):
            heard.append(bytes(event.data))
        else:
            assert event == events.Pong(payload=b"p")
    assert b"".join(heard) == b"ONETWO" + b"X" * 300_000
    assert b"".join(site.shouters[0].heard) == b"onetwo" + b"x" * 300_000
    await caller.hang_up()


async def test_a_close_frame_ends_the_connection(site: Site) -> None:
    caller = await called(site)
    caller.send(events.CloseConnection(code=1000))

    assert isinstance(await caller.next(), events.CloseConnection)
    await site.shouters[0].lost.wait()
    await caller.hang_up()


async def test_a_lost_socket_ends_the_connection(site: Site) -> None:
    caller = await called(site)
    caller.writer.transport.abort()

    await site.shouters[0].lost.wait()


async def test_closing_the_connection_sends_everything_first(site: Site) -> None:
    caller = await called(site)
    caller.say(b"bye")

    assert await caller.hear(3) == b"BYE"
    closed = await caller.next()
    assert isinstance(closed, events.CloseConnection)
    assert closed.code == 1000
    await caller.hang_up()


async def test_text_messages_are_refused(site: Site) -> None:
    caller = await called(site)
    caller.send(events.TextMessage(data="hello"))

    closed = await caller.next()

    assert isinstance(closed, events.CloseConnection)
    assert closed.code == 1003
    assert not site.shouters[0].heard
    await caller.hang_up()


async def test_invalid_frames_close_the_websocket(site: Site) -> None:
    caller = await called(site)
    # A server's frame is not masked; a client's must be.
    caller.writer.write(b"\x82\x05hello")

    closed = await caller.next()

    assert isinstance(closed, events.CloseConnection)
    assert closed.code == 1002
    await site.shouters[0].lost.wait()
    await caller.hang_up()


async def test_stopping_the_server_closes_websockets(site: Site) -> None:
    caller = await called(site)

    await site.http.close()

    closed = await caller.next()
    assert isinstance(closed, events.CloseConnection)
    assert closed.code == 1001
    await caller.hang_up()
