"""Entities in a data folder, while no server has it.

Owns what the commands of entities do there. A change is part of the transaction that
`offline.py` has around the command.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.cli.namespace.catalogue import EntityJson
from twinbus.cli.namespace.settings import Settings, changed_by
from twinbus.cli.offline import count_at, place_text
from twinbus.cli.output import entity_json
from twinbus.core.entity import Description
from twinbus.core.names import EntityPath
from twinbus.core.rule import RuleDescription
from twinbus.errors import EntityNotFound

if TYPE_CHECKING:
    from twinbus.server.broker.directory.entity import Entity
    from twinbus.server.broker.directory.shards import Shards
    from twinbus.server.broker.turn import Turn


class FolderCatalogue:
    """The entities in one folder (`Catalogue`)."""

    def __init__(self, data: Path, shards: Shards, turn: Turn) -> None:
        self.where = place_text(data, shards)
        self._shards = shards
        self._turn = turn
        self._now_ms = turn.now.wall_ms

    def create(self, description: Description, settings: Settings) -> EntityJson:
        """A subscription is made where its topic is, others in any shard."""
        del settings
        topic = self._shards.find(description.path.entity_key)
        number = (
            self._shards.place(description.path.key) if topic is None else topic.shard
        )
        made = self._shards[number].entities.create(description, self._now_ms)
        return entity_json(made, self._shards)

    def update(self, description: Description, settings: Settings) -> EntityJson:
        """Settings that were not given stay as they are."""
        old = self._find(_kind(description), description.path)
        assert type(old.description) is type(description)
        new = changed_by(old.description, description, settings)
        changed = self._shards[old.shard].entities.update(new, self._turn)
        return entity_json(changed, self._shards)

    def listed(self, kind: str, topic: str | None) -> list[EntityJson]:
        """In no order."""
        if topic is None:
            found = [one for one in self._shards.entities() if one.kind == kind]
        else:
            below = self._find("topic", EntityPath(topic)).subscriptions
            found = list(below.values())
        return [entity_json(one, self._shards) for one in found]

    def shown(self, kind: str, path: EntityPath) -> EntityJson:
        """One with its counts."""
        return entity_json(self._find(kind, path), self._shards)

    def count(self, kind: str, path: EntityPath) -> int:
        """How many messages it has, in any state."""
        return count_at(self._shards, self._find(kind, path).path)

    def delete(self, kind: str, path: EntityPath) -> None:
        """Delete one that is there."""
        entity = self._find(kind, path)
        self._shards[entity.shard].delete(entity.path, self._turn)

    # -- rules -------------------------------------------------------------------------

    def rules(self, path: EntityPath) -> list[RuleDescription]:
        """The rules of a subscription, by name."""
        entity = self._find("subscription", path)
        return [rule.description for rule in entity.rules_by_name]

    def rule(self, path: EntityPath, name: str) -> RuleDescription:
        """One of them."""
        entity = self._find("subscription", path)
        rule = entity.rules.get(name.lower())
        if rule is None:
            raise EntityNotFound(f"{entity.name}/Rules/{name}")
        return rule.description

    def add_rule(self, path: EntityPath, rule: RuleDescription) -> RuleDescription:
        """Add one."""
        entity = self._find("subscription", path)
        rule = dataclasses.replace(rule, created_at_ms=self._now_ms)
        self._shards[entity.shard].entities.add_rule(entity, rule, self._now_ms)
        return rule

    def replace_rule(self, path: EntityPath, rule: RuleDescription) -> RuleDescription:
        """Give one another filter and action."""
        entity = self._find("subscription", path)
        rule = dataclasses.replace(rule, created_at_ms=self._now_ms)
        self._shards[entity.shard].entities.replace_rule(entity, rule, self._now_ms)
        return rule

    def delete_rule(self, path: EntityPath, name: str) -> None:
        """Delete one that is there."""
        entity = self._find("subscription", path)
        self._shards[entity.shard].entities.remove_rule(entity, name, self._now_ms)

    def _find(self, kind: str, path: EntityPath) -> Entity:
        """The entity at that path, which must be of that kind."""
        entity = self._shards.get(path)
        if entity.kind != kind:
            raise EntityNotFound(f"{kind} {path.text}")
        return entity


def _kind(description: Description) -> str:
    return type(description).__name__.removesuffix("Description").lower()
