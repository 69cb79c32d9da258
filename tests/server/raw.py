"""A raw AMQP client on the engine, and a server in the same loop, for tests.

The official SDKs test what they do; this tests what they never do: transactions, odd
frames, tokens that end. Time stands still unless a test moves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from twinbus.clock import ManualClock
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, make_token
from twinbus.server.access.port import NamespacePort
from twinbus.server.amqp.connection import ServerConnection
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.host import Host
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.server import Server, ServerOptions
from twinbus.wire.codec import encode
from twinbus.wire.connection import ConnectionState, Engine
from twinbus.wire.events import (
    Attached,
    Begun,
    Closed,
    Delivered,
    Detached,
    Disposed,
    Ended,
    Event,
    Opened,
)
from twinbus.wire.frames import encode_frame
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import (
    Attach,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from twinbus.wire.session import Session
from twinbus.wire.types import Described, ULong

_WAIT_SECONDS = 10


class RawServer:
    """A server in this loop, with a clock that a test moves."""

    def __init__(self, server: Server, clock: ManualClock, port: int) -> None:
        self._server = server
        self.clock = clock
        self.port = port

    @property
    def ports(self) -> dict[str, NamespacePort]:
        """The way into each of its namespaces."""
        return self._server.ports

    @property
    def host(self) -> Host:
        """The host of the only namespace."""
        return next(iter(self.ports.values())).host

    def advance(self, milliseconds: int) -> None:
        """Let time pass for the namespace."""
        self.clock.advance(milliseconds)
        for host in self.host.hosts:
            host.tick()

    async def settle(self) -> None:
        """Wait until nothing is on its way between shards."""
        for host in self.host.hosts:
            await host.run(lambda _namespace, _turn: None)
        if self.host.mover is not None:
            await self.host.mover.settle()


def connections_of(port: NamespacePort) -> list[ServerConnection]:
    """The server's ends of the connections that came in through a port."""
    found = list(port.connections)
    return [each for each in found if isinstance(each, ServerConnection)]


@asynccontextmanager
async def serving(
    folder: Path, config: NamespaceConfig, shards: int | None = None
) -> AsyncIterator[RawServer]:
    """Serve a namespace on loopback."""
    clock = ManualClock()
    listen = ListenOptions("127.0.0.1", {"amqp": 0})
    options = ServerOptions([config], folder, listen, dev=True, shards=shards)
    server = Server(options, clock)
    ready = await server.start()
    try:
        port = ready["namespaces"][config.name]["amqp_port"]
        yield RawServer(server, clock, port)
    finally:
        await server.stop()


class RawClient(asyncio.Protocol):
    """One connection; `wait` gives the next event of a kind."""

    def __init__(self) -> None:
        self.engine = Engine(server=False, container_id="raw")
        self.events: list[Event] = []
        self.lost = False
        self._news = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, port: int) -> RawClient:
        """Connect and open."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(cls, "127.0.0.1", port)
        client.engine.start(SaslInit(mechanism="ANONYMOUS"), Open(hostname="localhost"))
        client.flush()
        await client.wait(Opened)
        return client

    # -- transport ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.engine.feed(data)
        while (event := self.engine.next_event()) is not None:
            self.events.append(event)
        self._news.set()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        del exc
        self.lost = True
        self._news.set()

    def flush(self) -> None:
        """Write what the engine has."""
        assert self._transport is not None
        data = self.engine.take()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def write(self, data: bytes) -> None:
        """Write bytes of the test's own."""
        assert self._transport is not None
        self._transport.write(data)

    def abort(self) -> None:
        """Vanish."""
        assert self._transport is not None
        self._transport.abort()

    async def wait(self, kind: type) -> Any:
        """The next event of a kind; others are kept."""
        while True:
            for event in self.events:
                if isinstance(event, kind):
                    self.events.remove(event)
                    return event
            assert not self.lost, f"lost while waiting for {kind.__name__}"
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), _WAIT_SECONDS)

    async def wait_lost(self) -> None:
        """Until the server has hung up."""
        while not self.lost:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), _WAIT_SECONDS)

    # -- AMQP --------------------------------------------------------------------------

    async def session(self) -> Session:
        """Begin a session."""
        session = self.engine.begin()
        self.flush()
        await self.wait(Begun)
        return session

    async def attach(self, session: Session, sends: bool, attach: Attach) -> Link:
        """Attach a link; it may have been refused."""
        link = session.attach(f"link-{len(session.links)}", sends, attach)
        self.flush()
        await self.wait(Attached)
        return link

    async def authorize(
        self,
        session: Session,
        audience: str = "sb://localhost/",
        expires_s: int = 1 << 33,
        token: str | None = None,
    ) -> int:
        """Put a root token, or another one; returns the status."""
        sender = await self.attach(
            session, True, Attach(source=Source(), target=Target(address="$cbs"))
        )
        receiver = await self.attach(
            session, False, Attach(source=Source(address="$cbs"), target=Target())
        )
        receiver.grant(1)
        key = Secret(DEV_KEY_TEXT)
        token = token or make_token(audience, DEV_KEY_NAME, key, expires_s)
        properties = {"operation": "put-token", "type": "jwt", "name": audience}
        payload = b"".join(
            encode(Described(ULong(code), value))
            for code, value in (
                (sections.PROPERTIES, ["1"]),
                (sections.APPLICATION_PROPERTIES, properties),
                (sections.VALUE, token),
            )
        )
        sender.send(payload, b"token")
        self.flush()
        reply = await self.wait(Delivered)
        await self.wait(Disposed)
        found = sections.Request(reply.payload).application_properties
        return int(found["status-code"])

    async def sender(self, session: Session, address: str) -> Link:
        """Attach a sender."""
        attach = Attach(source=Source(), target=Target(address=address))
        return await self.attach(session, True, attach)

    async def receiver(self, session: Session, address: str, credit: int = 0) -> Link:
        """Attach a receiver with some credit."""
        attach = Attach(
            source=Source(address=address),
            target=Target(),
            snd_settle_mode=0,
            rcv_settle_mode=1,
        )
        link = await self.attach(session, False, attach)
        if credit:
            link.grant(credit)
            self.flush()
        return link

    async def send(self, link: Link, payload: bytes, state: Any = None) -> Any:
        """Send one message; returns its outcome."""
        session = link.session
        if state is None:
            link.send(payload, b"tag")
        else:
            transfer = Transfer(
                handle=link.handle,
                delivery_id=session.next_delivery_out,
                delivery_tag=b"tag",
                message_format=0,
                state=state,
            )
            # Kept by the engine as if it had sent it, so that the answer is found.
            data = self.engine.take()
            assert not data
            link.send(b"", b"tag")
            self.engine.take()
            self.engine.write_bytes(encode_frame(session.channel, transfer, payload))
        self.flush()
        return (await self.wait(Disposed)).state


__all__ = ["Closed", "ConnectionState", "Detached", "Ended", "RawClient", "serving"]
