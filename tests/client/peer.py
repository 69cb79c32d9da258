"""A scripted server on the engine: it plays along up to a stage, and then stops.

Stages are the waits of a client in their order. A peer that stops at one does all that
comes before and never does that. It keeps the connection, so that only the client's own
deadline ends the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from twinbus.wire.connection import ConnectionState, Engine
from twinbus.wire.events import Answered, Attached, Delivered, Event, Opened
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import (
    ACCEPTED,
    Attach,
    Open,
    Source,
    Target,
)
from twinbus.wire.types import Int

NOTHING = "nothing"
SASL_HEADER = "sasl header"
SASL_OUTCOME = "sasl outcome"
OPEN = "open"
BEGIN = "begin"
CBS_ATTACH = "cbs attach"
CBS_REPLY = "cbs reply"
ATTACH = "attach"
CREDIT = "credit"
OUTCOME = "outcome"
CLOSE = "close"
NEVER = "never"

_STAGES = (
    NOTHING,
    SASL_HEADER,
    SASL_OUTCOME,
    OPEN,
    BEGIN,
    CBS_ATTACH,
    CBS_REPLY,
    ATTACH,
    CREDIT,
    OUTCOME,
    CLOSE,
    NEVER,
)


class Peer:
    """A server that stops; `connections` tells who came."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.port = 0
        self.connections: list[PeerConnection] = []
        self.tokens: list[str] = []
        # Tokens that were put, answered or not.
        self.claims_asked = 0
        # Called with each message before its outcome; it may do anything.
        self.on_message: Callable[[PeerConnection, Delivered], bool] | None = None
        self.idle_time_out: int | None = None
        self.is_gone = False
        self._news = asyncio.Event()

    def passes(self, stage: str) -> bool:
        """Whether the peer gets beyond a stage."""
        return _STAGES.index(stage) < _STAGES.index(self.stage)

    @property
    def open_connections(self) -> int:
        """How many have not ended."""
        return sum(not each.lost for each in self.connections)

    @property
    def polls(self) -> list[tuple[PeerConnection, Link]]:
        """The links on which a client waits for messages, or has waited."""
        return [
            (connection, link)
            for connection in self.connections
            for link in connection.links
            if link.sends and link.credit > 0 and _source(link) != "$cbs"
        ]

    def tell(self) -> None:
        """Something happened."""
        self._news.set()

    async def until(self, ready: Callable[[], bool]) -> None:
        """Until something has happened; fails after a while."""
        async with asyncio.timeout(5):
            while not ready():
                self._news.clear()
                await self._news.wait()


class PeerConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.engine = Engine(server=True, container_id="peer")
        self.lost = False
        self.heartbeats = 0
        self.links: list[Link] = []
        self.messages: list[Delivered] = []
        # Whether the client settled, for each of its words on its own deliveries.
        self.answered: list[bool] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer.connections.append(self)
        if self.peer.is_gone:
            # Its client came in the last moment, and may have left already.
            transport.abort()
        self.peer.tell()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.peer.tell()

    def data_received(self, data: bytes) -> None:
        passes = self.peer.passes
        if not passes(NOTHING):
            return
        self.heartbeats += data == b"\0\0\0\x08\x02\0\0\0"
        self.engine.feed(data)
        while (event := self.engine.next_event()) is not None:
            self._handle(event)
        self.peer.tell()
        self.flush()

    def flush(self) -> None:
        """Write what the peer lets out."""
        passes = self.peer.passes
        state = self.engine.state
        if not passes(SASL_HEADER):
            return
        out = self.engine.take()
        if state is ConnectionState.SASL and not passes(SASL_OUTCOME):
            out = out[:8]
        if state is ConnectionState.HEADER and not passes(SASL_OUTCOME):
            return
        if state is ConnectionState.OPEN and not passes(BEGIN):
            # A begin is answered by the engine itself, behind our open.
            out = out if not self.engine.sessions else b""
        if state is ConnectionState.CLOSED and not passes(CLOSE):
            return
        self.transport.write(out)

    def _handle(self, event: Event) -> None:
        peer = self.peer
        if isinstance(event, Opened):
            self.engine.trust()
            if peer.passes(OPEN):
                self.engine.open(Open(idle_time_out=peer.idle_time_out))
        elif isinstance(event, Attached):
            self._attach(event.link)
        elif isinstance(event, Delivered):
            self._deliver(event)
        elif isinstance(event, Answered):
            self.answered.append(event.settled)

    def _attach(self, link: Link) -> None:
        asked = link.peer_attach
        terminus: Any = asked.source if link.sends else asked.target
        is_cbs = terminus.address == "$cbs"
        if not self.peer.passes(CBS_ATTACH if is_cbs else ATTACH):
            return
        self.links.append(link)
        answer = Attach(
            source=asked.source or Source(),
            target=asked.target or Target(),
            max_message_size=1 << 18,
        )
        link.accept(answer)
        if not link.sends and (is_cbs or self.peer.passes(CREDIT)):
            link.credit_window = 100
            link.grant(100)

    def _deliver(self, delivery: Delivered) -> None:
        peer = self.peer
        target: Any = delivery.link.peer_attach.target
        number = delivery.delivery_id
        if target.address == "$cbs":
            peer.claims_asked += 1
            delivery.link.session.answer(number, number, ACCEPTED)
            if peer.passes(CBS_REPLY):
                self._reply(delivery)
            return
        self.messages.append(delivery)
        if peer.on_message is not None and not peer.on_message(self, delivery):
            return
        if peer.passes(OUTCOME):
            delivery.link.session.answer(number, number, ACCEPTED)

    def _reply(self, delivery: Delivered) -> None:
        request = sections.Request(delivery.payload)
        self.peer.tokens.append(request.body)
        properties = {"status-code": Int(202), "status-description": "Accepted"}
        payload = sections.encode_reply(request.message_id, properties, None)
        for link in delivery.link.session.links.values():
            if link.sends:
                link.settled_by_us = True
                link.send(payload, b"reply")


def _source(link: Link) -> Any:
    source: Any = link.peer_attach.source
    return source.address


@asynccontextmanager
async def peering(stage: str = NEVER) -> AsyncIterator[Peer]:
    """A peer that plays along up to a stage."""
    peer = Peer(stage)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PeerConnection(peer), "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        peer.is_gone = True
        for connection in peer.connections:
            connection.transport.abort()
        await peer.until(lambda: not peer.open_connections)
