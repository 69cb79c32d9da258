"""Peers that are no clients: bytes by hand, silent sockets, a transport that is none.

Owns how a test brings a connection into a state and what came back from it. Knows
nothing about what should come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from twinbus.server.access.port import NamespacePort
from twinbus.server.amqp.connection import ServerConnection
from twinbus.wire.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Frame,
    FrameReader,
    encode_frame,
)
from twinbus.wire.performatives import (
    Attach,
    Begin,
    Open,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
)

SASL = 1
WAIT_SECONDS = 10

OPEN = encode_frame(0, Open(container_id="stranger", hostname="localhost"))
BEGIN = encode_frame(
    0, Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
)
LOGIN = SASL_HEADER + encode_frame(0, SaslInit(mechanism="ANONYMOUS"), kind=SASL)
# What brings a new connection into each state.
WAYS: dict[str, bytes] = {
    "start": b"",
    "sasl": SASL_HEADER,
    "header": LOGIN,
    "opening": LOGIN + AMQP_HEADER,
    "open": LOGIN + AMQP_HEADER + OPEN,
    "begun": LOGIN + AMQP_HEADER + OPEN + BEGIN,
}


def sends_to(address: str, handle: int = 0, **fields: Any) -> bytes:
    """An attach of a sender, as a frame."""
    attach = Attach(
        name=f"link-{handle}",
        handle=handle,
        role=False,
        source=Source(),
        target=Target(address=address),
        initial_delivery_count=0,
        **fields,
    )
    return encode_frame(0, attach)


class FakeTransport(asyncio.Transport):
    """A transport without a socket.

    One that `lingers` is never done with closing, like that of a peer that does not
    read; only `abort` ends it.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        address: str = "192.0.2.1",
        lingers: bool = False,
    ) -> None:
        super().__init__()
        self.written = bytearray()
        self.closing = self.aborted = False
        self._protocol = protocol
        self._address = address
        self._lingers = lingers
        self._reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 40_000) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        if not self.closing and not self._lingers:
            self._end()
        self.closing = True

    def abort(self) -> None:
        if not self.aborted:
            self._end()
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        """There is no buffer."""

    def _end(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(self._protocol.connection_lost, None)


def meet(
    port: NamespacePort, address: str = "192.0.2.1", lingers: bool = False
) -> tuple[ServerConnection, FakeTransport]:
    """A server's connection to a client at that address."""
    connection = ServerConnection(port)
    transport = FakeTransport(connection, address, lingers)
    connection.connection_made(transport)
    return connection, transport


def answers(data: bytes) -> list[Any]:
    """The performatives in what a server wrote; headers are left out."""
    reader = FrameReader(1 << 20)
    reader.feed(data)
    # A server that says anything begins with a header.
    reader.expect_header()
    found: list[Any] = []
    while (item := reader.next()) is not None:
        if isinstance(item, Frame):
            found.append(item.performative)
            if type(item.performative) is SaslOutcome:
                reader.expect_header()
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that has no event."""
    loop = asyncio.get_running_loop()
    end = loop.time() + WAIT_SECONDS
    never = asyncio.Event()
    while not condition():
        assert loop.time() < end, "it did not happen in time"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(never.wait(), 0.005)


class Stranger(asyncio.Protocol):
    """A socket of a peer that speaks by hand, or not at all."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    @classmethod
    async def connect(cls, port: int, receive_bytes: int | None = None) -> Stranger:
        """Connect; `receive_bytes` makes the kernel take little from the server."""
        loop = asyncio.get_running_loop()
        plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        plain.setblocking(False)
        if receive_bytes is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await loop.sock_connect(plain, ("127.0.0.1", port))
        _, stranger = await loop.create_connection(cls, sock=plain)
        return stranger

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up."""
        del exc
        self.lost.set()

    async def wait_lost(self) -> None:
        """Until the server has hung up."""
        await asyncio.wait_for(self.lost.wait(), WAIT_SECONDS)
