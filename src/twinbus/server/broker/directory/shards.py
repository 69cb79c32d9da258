"""The shards of a namespace, as a turn sees them: which of them has which entity.

A namespace keeps its messages in one or more shards. Each is a `Namespace` with a store
and turns of its own, and an entity lives in one of them. Owns the way from a name to
its shard and the choice of a shard for a new entity. What other shards hold is read
from their memory and never changed from here: it may be old by the time it is used, so
whatever depends on it is checked again where it arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from twinbus.errors import EntityNotFound, ShardAway

if TYPE_CHECKING:
    from twinbus.core.names import EntityPath
    from twinbus.server.broker.directory.entities import Entity
    from twinbus.server.broker.namespace import Namespace


class Shards:
    """All shards of one namespace, by their numbers."""

    def __init__(self) -> None:
        self._all: list[Namespace] = []

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
        """The entity with that lower-case key, in whichever shard it is."""
        for namespace in self._all:
            entity = namespace.entities.find(key)
            if entity is not None:
                return entity
        return None

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
        """All entities of all shards."""
        for namespace in self._all:
            yield from namespace.entities

    # -- placing -------------------------------------------------------------------

    def place(self, planned: Mapping[int, int] | None = None) -> int:
        """The shard for a new queue or topic: the one that holds least.

        First the bytes count, then entities; `planned` are those of each shard that are
        not there yet.
        """
        more = planned or {}

        def load(each: Namespace) -> tuple[int, int, int]:
            count = len(each.entities) + more.get(each.shard, 0)
            return each.store.stored_bytes(), count, each.shard

        well = [each for each in self._all if not each.is_stopped] or self._all
        return min(well, key=load).shard
