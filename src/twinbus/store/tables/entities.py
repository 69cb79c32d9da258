"""Entities, settings, duplicate history and counts of a store.

Owns the ids of entities: multiples of 4, because each one's containers have the ids
from there on. Rule: an entity and its containers come and go together.
Knows nothing of what an entity is: its body is text.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.clock import Now
from twinbus.errors import EntityExists, EntityNotFound, QuotaExceeded
from twinbus.store.base import (
    CONTAINERS_PER_ENTITY,
    DEAD_LETTER,
    PROBE,
    SEQUENCE_BITS,
    TRANSFER_DEAD_LETTER,
    Counts,
    EntityRow,
)
from twinbus.store.tables.messages import Messages
from twinbus.store.tables.rows import guarded

# Ids of messages have 63 bits.
ENTITY_MAX = (1 << (63 - SEQUENCE_BITS)) - CONTAINERS_PER_ENTITY


class EntityRows(Messages):
    """The part of the store that keeps entities and counts."""

    @guarded
    def entities(self) -> list[EntityRow]:
        rows = self._run(self._sql["entities"]).fetchall()
        return [EntityRow._make(row) for row in rows]

    @guarded
    def insert_entity(self, kind: str, key: str, body: str, wall_ms: int) -> int:
        if self._run(self._sql["entity_key_taken"], (key,)).fetchone() is not None:
            raise EntityExists(f"The entity '{key}' already exists.")
        entity = self._free_id()
        for container in _containers(entity):
            self._containers.create(container)
        row = (entity, kind, key, body, wall_ms, wall_ms)
        self._run(self._sql["insert_entity"], row)
        return entity

    def _free_id(self) -> int:
        row = self._run(self._sql["last_entity"]).fetchone()
        entity: int = CONTAINERS_PER_ENTITY + (0 if row is None else row[0])
        if entity > ENTITY_MAX:
            (entity,) = self._run(self._sql["free_entity"]).fetchone()
        if entity > ENTITY_MAX:
            raise QuotaExceeded("This namespace has too many entities.")
        return entity

    @guarded
    def update_entity(self, entity: int, body: str, wall_ms: int) -> None:
        self._containers.change(entity)
        self._run(self._sql["update_entity"], (body, wall_ms, entity))

    @guarded
    def delete_entity(self, entity: int) -> None:
        if entity % CONTAINERS_PER_ENTITY or entity == PROBE:
            raise EntityNotFound(f"entity {entity}")
        for container in _containers(entity):
            self._containers.drop(container)
        self._empty(entity, entity + CONTAINERS_PER_ENTITY)
        self._run(self._sql["delete_entity"], (entity,))

    @guarded
    def retire_entity(self, entity: int) -> None:
        self._containers.change(entity)
        self._run(self._sql["retire_entity"], (entity,))

    @guarded
    def retired(self) -> list[int]:
        return [row[0] for row in self._run(self._sql["retired"]).fetchall()]

    @guarded
    def setting(self, name: str) -> str | None:
        row = self._run(self._sql["setting"], (name,)).fetchone()
        return None if row is None else str(row[0])

    @guarded
    def put_setting(self, name: str, value: str) -> None:
        self._run(self._sql["put_setting"], (name, value))

    @guarded
    def remember(
        self, container: int, keys: Sequence[str], until_ms: int, now: Now
    ) -> list[bool]:
        self._containers.change(container)
        new = []
        for key in keys:
            row = (container, key, until_ms, now.steady_ms)
            new.append(self._changes(self._sql["remember"], row) == 1)
        return new

    def counts(self, container: int) -> Counts:
        return self._containers.get(container).counts()

    def size_bytes(self, entity: int) -> int:
        container = self._containers.get
        return (
            container(entity).size_bytes
            + container(entity + DEAD_LETTER).size_bytes
            + container(entity + TRANSFER_DEAD_LETTER).size_bytes
        )

    def stored_bytes(self) -> int:
        return self._containers.stored_bytes

    def touch(self, container: int, now: Now) -> None:
        self._containers.change(container).accessed_ms = now.wall_ms


def _containers(entity: int) -> range:
    """The ids of an entity's containers: main, dead-letter, transfer dead-letter."""
    return range(entity, entity + TRANSFER_DEAD_LETTER + 1)
