"""Where messages are, and looks at them that hold up no turn.

Owns a reader and a thread for each shard. A look runs in that thread, on a connection
that cannot write. A store in memory has no such connection: there it runs in a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from twinbus.core.names import EntityPath
from twinbus.errors import MessageNotFound, ShardAway, StoreFault
from twinbus.server.broker.directory.entity import FRAGMENT_SHIFT, Entity
from twinbus.server.broker.directory.placement import get_entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.store.base import Stored, sequence_of
from twinbus.store.reading import HasReaders, StoreReader

T = TypeVar("T")


class LookPlace(NamedTuple):
    """A container: of an entity, or of one fragment of a partitioned one."""

    host: Host
    entity: Entity
    container: int

    @property
    def base(self) -> int:
        """What people see above its sequence numbers."""
        return self.entity.number_base

    def number(self, stored: Stored) -> int:
        """The sequence number that people see."""
        return self.base | stored.sequence

    def holds(self, number: int) -> bool:
        """Whether a number that people see is one of this container."""
        return 0 <= number - self.base < 1 << FRAGMENT_SHIFT


def places_at(host: Host, path: EntityPath) -> list[LookPlace]:
    """The containers behind a path, in the order of the numbers that they give out."""
    entity = get_entity(host, path)
    fragments = host.namespace.shards.fragments(entity)
    found = [
        LookPlace(host.hosts[each.shard], each, each.container(path.sub_queue))
        for each in fragments
    ]
    return sorted(found, key=lambda place: place.base)


def place_of(host: Host, path: EntityPath, number: int) -> LookPlace:
    """The container that has given out a number."""
    for place in places_at(host, path):
        if place.holds(number):
            return place
    raise MessageNotFound(f"There is no message {number} in '{path.text}'.")


def readable(namespace: Namespace) -> HasReaders:
    """The store of a shard, for looks; `ShardAway` if it could not be opened yet."""
    store = namespace.store
    if not isinstance(store, HasReaders):
        raise ShardAway(namespace.shard)
    return store


class Looker:
    """Reads beside the turns of all shards."""

    def __init__(self) -> None:
        self._readers: dict[Host, StoreReader] = {}
        self._threads: dict[Host, ThreadPoolExecutor] = {}

    async def look(self, host: Host, work: Callable[[StoreReader], T]) -> T:
        """Call `work` with a reader of that shard; one look at a time."""
        thread = self._threads.get(host)
        if thread is None:
            thread = self._threads[host] = ThreadPoolExecutor(1, "console-look")
        loop = asyncio.get_running_loop()
        reader = self._readers.get(host)
        if reader is None:
            store = readable(host.namespace)
            reader = await loop.run_in_executor(thread, store.open_reader)
            if reader is None:
                return await host.run(
                    lambda own, _turn: work(readable(own).reader_in())
                )
            # Another look may have opened one meanwhile.
            other = self._readers.setdefault(host, reader)
            if other is not reader:
                await loop.run_in_executor(thread, reader.close)
                reader = other
        try:
            return await loop.run_in_executor(thread, work, reader)
        except StoreFault:
            # The file may have been put in the place of another.
            if self._readers.pop(host, None) is not None:
                await loop.run_in_executor(thread, reader.close)
            raise

    async def find(self, place: LookPlace, number: int) -> Stored:
        """One message; refuses one that is not there."""
        sequence = sequence_of(number - place.base)
        wall_ms = place.host.clock.now().wall_ms

        def work(reader: StoreReader) -> Stored | None:
            look = reader.messages(place.container, sequence, wall_ms, None)
            return next(look, None)

        stored = await self.look(place.host, work)
        if stored is None or stored.sequence != sequence:
            raise MessageNotFound(
                f"There is no message {number} in '{place.entity.name}' any more."
            )
        return stored

    async def close(self) -> None:
        """Close all readers; looks that are under way come to their end first."""
        loop = asyncio.get_running_loop()
        for host, reader in self._readers.items():
            await loop.run_in_executor(self._threads[host], reader.close)
        self._readers = {}
        for thread in self._threads.values():
            thread.shutdown(wait=False)
