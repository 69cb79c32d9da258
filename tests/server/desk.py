"""A raw client with every right beside a look into the store, for attacks on a server.

Owns the words that tests of hostile messages share: send a payload, schedule one, let
time pass for a turn, count what a container holds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.server.raw import RawClient, RawServer, serving
from twinbus.clock import Now
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.store.base import Counts, Stored
from twinbus.wire.codec import encode
from twinbus.wire.events import Delivered
from twinbus.wire.message import sections
from twinbus.wire.session import Session
from twinbus.wire.types import Described, Symbol, Timestamp, ULong


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


BODY = section(sections.DATA, b"x")


def with_properties(**properties: Any) -> bytes:
    """A message with application properties."""
    return section(sections.APPLICATION_PROPERTIES, properties) + BODY


class Desk:
    """A client with every right, and a look into the store."""

    def __init__(self, server: RawServer, client: RawClient, session: Session) -> None:
        self.server = server
        self.client = client
        self.session = session

    async def send(self, address: str, payload: bytes) -> Any:
        sender = await self.client.sender(self.session, address)
        return await self.client.send(sender, payload)

    async def schedule(self, address: str, payload: bytes, seconds: int) -> Any:
        due = Timestamp(self.server.clock.now_ms() + seconds * 1000)
        key = Symbol("x-opt-scheduled-enqueue-time")
        return await self.send(
            address, section(sections.MESSAGE_ANNOTATIONS, {key: due}) + payload
        )

    async def receive(self, address: str) -> Delivered:
        """Lock one message."""
        await self.client.receiver(self.session, address, credit=1)
        delivery: Delivered = await self.client.wait(Delivered)
        return delivery

    async def advance(self, seconds: int) -> None:
        """Let time pass, and the turn that works it off."""
        self.server.advance(seconds * 1000)
        await self.server.host.run(lambda _namespace, _now_ms: None)

    def counts(self, key: str, which: int = 0) -> Counts:
        namespace = self.server.host.namespace
        entity = namespace.entities.find(key)
        assert entity is not None
        return namespace.store.counts(entity.id + which)

    def kept(self, key: str, which: int = 0) -> list[Stored]:
        """The messages of a container."""
        namespace = self.server.host.namespace
        entity = namespace.entities.find(key)
        assert entity is not None
        now_ms = self.server.clock.now_ms()
        return namespace.store.peek(entity.id + which, 1, 100, Now.at(now_ms), None)

    def settle(self, delivery: Delivered, state: Any) -> None:
        number = delivery.delivery_id
        self.session.dispose(number, number, False, state)
        self.client.flush()


@asynccontextmanager
async def desk_at(folder: Path, config: NamespaceConfig) -> AsyncIterator[Desk]:
    """Serve a namespace from a folder, with a client."""
    async with serving(folder, config) as server:
        client = await RawClient.connect(server.port)
        session = await client.session()
        assert await client.authorize(session) == 202
        yield Desk(server, client, session)
