"""A namespace with several shards and their hosts, without clients, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from twinbus.clock import ManualClock, Now
from twinbus.core.entity import Description
from twinbus.core.names import parse_address
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.placement import host_for_new
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.setup.namespaces import (
    open_namespace,
    set_up,
    settle_hosts,
    start_hosts,
    stop_hosts,
)
from twinbus.store.base import Stored
from twinbus.wire.message import sections
from twinbus.wire.message.sections import parse

SHARDS = 4
_START_MS = 1_700_000_000_000

T = TypeVar("T")


class ShardedSite:
    """What tests do to the namespace."""

    def __init__(self, first: Host, clock: ManualClock) -> None:
        self.first = first
        self.clock = clock

    @property
    def hosts(self) -> list[Host]:
        return list(self.first.hosts)

    def find(self, name: str) -> Entity:
        entity = self.first.namespace.shards.find(name.lower())
        assert entity is not None, name
        return entity

    def host(self, name: str) -> Host:
        return self.hosts[self.find(name).shard]

    async def run(self, name: str, command: Callable[[Namespace, Turn], T]) -> T:
        """Do something in a turn of the entity's shard."""
        return await self.host(name).run(command)

    async def create(self, description: Description, shard: int | None = None) -> None:
        """Make an entity, in the shard that is chosen for it or in that one."""

        def make(namespace: Namespace, turn: Turn) -> None:
            namespace.entities.create(description, turn.now.wall_ms)

        if shard is not None:
            await self.hosts[shard].run(make)
            return
        with host_for_new(self.first, description.path) as host:
            await host.run(make)

    async def send(self, name: str, *bodies: str, session: str | None = None) -> None:
        fields = {} if session is None else {sections.GROUP_ID: session}
        messages = [
            parse(sections.encode_message(body.encode(), fields)) for body in bodies
        ]
        entity = self.find(name)
        await self.run(name, lambda n, t: list(n.send(entity, messages, t)))

    async def bodies(self, address: str) -> list[str]:
        """What a queue, a subscription or one of their sub-queues holds, in order."""
        return [_body(stored) for stored in await self.kept(address)]

    async def kept(self, address: str) -> list[Stored]:
        path = parse_address(address)
        entity = self.find(path.key)

        def peek(namespace: Namespace, turn: Turn) -> list[Stored]:
            container = entity.container(path.sub_queue)
            return namespace.store.peek(container, 1, 10_000, turn.now, None)

        return await self.hosts[entity.shard].run(peek)

    async def settle(self) -> None:
        """Wait until nothing is on its way between shards."""
        for host in self.hosts:
            if host.fault is None:
                await host.run(lambda _namespace, _turn: None)
        assert self.first.mover is not None
        await self.first.mover.settle()


def _body(stored: Stored) -> str:
    for code, _begin, start, end in sections.find_sections(stored.bare):
        if code == sections.DATA:
            # A binary of less than 256 bytes: one byte of type, one of length.
            return stored.bare[start + 2 : end].decode()
    return ""


@asynccontextmanager
async def sharded(
    folder: Path | None,
    config: NamespaceConfig | None = None,
    shards: int | None = SHARDS,
) -> AsyncIterator[ShardedSite]:
    """Run a namespace from a folder; without one it is in memory."""
    clock = ManualClock(_START_MS)
    opened = open_namespace(folder, "contoso", wanted=shards)
    set_up(opened.shards, config or NamespaceConfig("contoso"), Now.at(_START_MS))
    first = start_hosts(opened, clock)
    try:
        await settle_hosts(first)
        yield ShardedSite(first, clock)
    finally:
        await stop_hosts(first)


__all__ = ["SHARDS", "ShardedSite", "sharded"]
