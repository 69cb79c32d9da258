"""The shards of a namespace, as a turn sees them: which of them has which entity.

A namespace keeps its messages in one or more shards. Each is a `Namespace` with a store
and turns of its own, and an entity lives in one of them; a partitioned entity has a
fragment in each of several. Owns the way from a name to
its shard and the choice of a shard for a new entity. What other shards hold is read
from their memory and never changed from here: it may be old by the time it is used, so
whatever depends on it is checked again where it arrives.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from twinbus.core.names import EntityPath, SubQueue
from twinbus.core.tier import DEFAULT_TIER, NamespaceTier
from twinbus.errors import EntityNotFound, ShardAway
from twinbus.store.base import Counts

if TYPE_CHECKING:
    from twinbus.server.broker.directory.entity import Entity
    from twinbus.server.broker.namespace import Namespace


class Shards:
    """All shards of one namespace, by their numbers."""

    def __init__(self) -> None:
        self._all: list[Namespace] = []
        # What the namespace allows in all of them.
        self.tier: NamespaceTier = DEFAULT_TIER

    def add(self, namespace: Namespace) -> None:
        """Take the shard with the next number in."""
        self._all.append(namespace)

    def __iter__(self) -> Iterator[Namespace]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> Namespace:
        return self._all[number]

    # -- finding -------------------------------------------------------------------

    def find(self, key: str) -> Entity | None:
        """The entity with that lower-case key, in whichever shard it is.

        Of a partitioned one it is the fragment where it is changed.
        """
        found = None
        for namespace in self._all:
            entity = namespace.entities.find(key)
            if entity is not None:
                found = entity
                if entity.is_home:
                    break
        return found

    def get(self, path: EntityPath) -> Entity:
        """The entity at that path; refuses what does not exist."""
        entity = self.find(path.key)
        if entity is None:
            self.check_known(path.entity_key)
            raise EntityNotFound(path.text)
        return entity

    def check_known(self, key: str) -> None:
        """Refuse to say that a queue or topic does not exist while that is unknown.

        Shard 0 knows all names. While it is away, an entity that no shard has may be
        one of its own.
        """
        if self._all[0].is_away and self.find(key) is None:
            raise ShardAway(0)

    def entities(self) -> Iterator[Entity]:
        """All entities of all shards; a partitioned one once."""
        for namespace in self._all:
            for entity in namespace.entities:
                if entity.is_home:
                    yield entity

    # -- fragments -----------------------------------------------------------------

    def fragments(self, entity: Entity) -> list[Entity]:
        """All fragments of an entity that are there; the entity itself, if it has none.

        A further one may be missing for a moment after the entity was made.
        """
        if not entity.fragments:
            return [entity]
        found = [self._all[k].entities.find(entity.key) for k in entity.fragments]
        return [each for each in found if each is not None]

    def fragment_for(
        self,
        entity: Entity,
        key: str | None,
        turns: int = 0,
        avoided: Callable[[Entity], bool] = lambda _fragment: False,
    ) -> Entity:
        """The fragment that a message belongs to.

        The key decides; without one fragments take turns, those first that are well
        and not to be avoided.
        """
        fragments = self.fragments(entity)
        if key is not None:
            wanted = entity.fragment_of(key)
            for each in fragments:
                if each.shard == wanted:
                    return each
            raise ShardAway(wanted)
        well = [each for each in fragments if not self._all[each.shard].is_stopped]
        usable = [each for each in well if not avoided(each)] or well or fragments
        return usable[turns % len(usable)]

    def counts(self, entity: Entity, sub_queue: SubQueue = SubQueue.NONE) -> Counts:
        """What an entity or one of its sub-queues holds, in all fragments."""
        found = [
            self._all[each.shard].store.counts(each.container(sub_queue))
            for each in self.fragments(entity)
        ]
        if len(found) == 1:
            return found[0]
        return Counts(
            active=sum(each.active for each in found),
            deferred=sum(each.deferred for each in found),
            scheduled=sum(each.scheduled for each in found),
            size_bytes=sum(each.size_bytes for each in found),
            last_sequence=sum(each.last_sequence for each in found),
            accessed_ms=max(each.accessed_ms for each in found),
        )

    # -- placing -------------------------------------------------------------------

    def home_of(self, key: str) -> int | None:
        """The shard that has the queue or topic of that name, if it exists.

        Where several nodes share the shards, the name decides, so that two nodes never
        make the same entity in two shards. None: memory knows where it is.
        """
        if len(self._all) > 1 and self._all[0].store.is_remote:
            return zlib.crc32(key.encode()) % len(self._all)
        return None

    def place(self, key: str, planned: Mapping[int, int] | None = None) -> int:
        """The shard for a new queue or topic: the one that holds least.

        First the bytes count, then entities; `planned` are those of each shard that are
        not there yet. Among nodes see `home_of`.
        """
        if (home := self.home_of(key)) is not None:
            return home
        more = planned or {}

        def load(each: Namespace) -> tuple[int, int, int]:
            count = len(each.entities) + more.get(each.shard, 0)
            return each.store.stored_bytes(), count, each.shard

        well = [each for each in self._all if not each.is_stopped] or self._all
        return min(well, key=load).shard
