"""The entities of a namespace: what exists, and the one path to create or change it.

Command line, configuration, emulator files and the administration API all come through
here. The store holds the truth; this keeps a compiled copy in memory, which grows with
the number of entities and never with the number of messages. Every change runs inside
the store's transaction. After a rollback `reload` reads everything anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.core.entity import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    changed,
)
from twinbus.core.names import EntityPath, SubQueue
from twinbus.core.rights import dated
from twinbus.core.rule import RuleDescription, default_rule
from twinbus.errors import (
    ArgumentOutOfRange,
    EntityExists,
    EntityNotFound,
)
from twinbus.server.broker.crossing import parcels
from twinbus.server.broker.directory.entity import Entity, Rule, rules_of_description
from twinbus.server.broker.load.throttle import Bucket
from twinbus.server.broker.turn import Turn
from twinbus.server.broker.undo import UndoLog
from twinbus.store.base import (
    SEQUENCE_MAX,
    TRANSFER_DEAD_LETTER,
    EntityRow,
    Store,
    entity_of,
)

if TYPE_CHECKING:
    from twinbus.server.broker.directory.shards import Shards

_KINDS: dict[str, type[Description]] = {
    "queue": QueueDescription,
    "topic": TopicDescription,
    "subscription": SubscriptionDescription,
}


class Entities:
    """All entities of one shard of a namespace."""

    def __init__(
        self,
        store: Store,
        undo_log: UndoLog | None = None,
        shard: int = 0,
        shards: Shards | None = None,
    ) -> None:
        self.shard = shard
        self._shards = shards
        self._store = store
        self._undo_log = undo_log or UndoLog()
        self._by_key: dict[str, Entity] = {}
        self._by_id: dict[int, Entity] = {}
        self.reload()

    def use_store(self, store: Store) -> None:
        """Go on with that store."""
        self._store = store

    def reload(self) -> None:
        """Read everything anew from the store.

        Entities that are still there stay the same objects: links hold them. If
        reading fails, all stays as it was; until all is read, the old ones are found.
        """
        rows = sorted(
            self._store.entities(), key=lambda row: row.kind == "subscription"
        )
        by_key: dict[str, Entity] = {}
        for row in rows:
            by_key[row.key] = self._read(row, by_key)
        self._by_key = by_key
        self._by_id = {entity.id: entity for entity in by_key.values()}
        # Deleted ones that still have messages.
        self.retired = self._store.retired()

    def __iter__(self) -> Iterator[Entity]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    # -- finding -------------------------------------------------------------------

    def find(self, key: str) -> Entity | None:
        """The entity with that lower-case key."""
        return self._by_key.get(key)

    def get(self, path: EntityPath) -> Entity:
        """The entity at that path; refuses what does not exist."""
        entity = self._by_key.get(path.key)
        if entity is None:
            raise EntityNotFound(path.text)
        return entity

    def find_anywhere(self, key: str) -> Entity | None:
        """The entity with that lower-case key, in this shard or another one."""
        entity = self._by_key.get(key)
        if entity is None and self._shards is not None:
            return self._shards.find(key)
        return entity

    def home_of(self, key: str) -> int | None:
        """The shard that would have the entity, if the name alone says it."""
        return None if self._shards is None else self._shards.home_of(key)

    def fragment_for(self, entity: Entity, key: str | None) -> Entity:
        """The fragment of an entity that a message with that key belongs to."""
        if self._shards is None:
            return entity
        return self._shards.fragment_for(entity, key)

    def of_container(self, container: int) -> Entity | None:
        """The entity that a container belongs to."""
        return self._by_id.get(entity_of(container))

    # -- changing ------------------------------------------------------------------

    def create(self, description: Description, now_ms: int) -> Entity:
        """Create a queue, topic or subscription (the latter with its default rule)."""
        self._check(description)
        if self.find_anywhere(description.key) is not None:
            raise EntityExists(
                f"The messaging entity '{description.path.text}' already exists."
            )
        rules: list[RuleDescription] = []
        if isinstance(description, SubscriptionDescription):
            self.get(EntityPath(description.topic_name))
            rules = [default_rule(now_ms)]
        self._check_targets(description)
        description = _dated(description, None, now_ms)
        kind = next(name for name, cls in _KINDS.items() if type(description) is cls)
        body = _body(description, rules, self._fragments_for(description))
        return self._insert(EntityRow(0, kind, description.key, body, now_ms, now_ms))

    def _insert(self, row: EntityRow) -> Entity:
        number = self._store.insert_entity(*row[1:5])
        row = row._replace(id=number)
        entity = self._read(row, self._by_key)
        self._remember(entity)
        self._undo_log.note(partial(self._forget, entity))
        self._tell(entity, row)
        return entity

    def _fragments_for(self, description: Description) -> tuple[int, ...]:
        """The shards that will have a fragment of a new entity; they never change."""
        if isinstance(description, SubscriptionDescription):
            return self.get(EntityPath(description.topic_name)).fragments
        if not description.enable_partitioning:
            return ()
        if self._shards is None:
            return (self.shard,)
        # From this one on, so that entities with the most fragments are spread.
        count = len(self._shards)
        around = [(self.shard + step) % count for step in range(count)]
        open_ones = [shard for shard in around if not self._shards[shard].is_away]
        return tuple(open_ones[: limits.FRAGMENTS_MAX])

    def put_fragment(self, row: EntityRow, turn: Turn) -> None:
        """Follow what the entity's home says: make the fragment, or change it."""
        entity = self._by_key.get(row.key)
        if entity is None:
            self._insert(row)
            return
        rules_before = rules_of_description(entity.description)
        before = (entity.description, entity.rules, entity.updated_ms)
        self._undo_log.note(partial(_restore, entity, before))
        self._describe(entity, row)
        self._store.update_entity(entity.id, row.body, row.updated_ms)
        self._tell(entity, row._replace(id=entity.id))
        if rules_of_description(entity.description) != rules_before:
            turn.rules_changed = True

    def update(self, description: Description, turn: Turn) -> Entity:
        """Give an entity another description."""
        entity = self.get(description.path)
        self._check(description)
        changed(entity.description, description)
        self._check_targets(description)
        description = _dated(description, entity.description, turn.now.wall_ms)
        if rules_of_description(description) != rules_of_description(
            entity.description
        ):
            turn.rules_changed = True
        self._undo_log.note(partial(_describe, entity, entity.description))
        entity.description = description
        entity.bucket = _bucket(description)
        self._save(entity, turn.now.wall_ms)
        return entity

    def delete(self, path: EntityPath, turn: Turn) -> Entity:
        """Delete an entity with its messages; a topic with its subscriptions."""
        entity = self.get(path)
        gone = [*entity.subscriptions.values(), entity]
        # First the store: if that fails, all stays as it was.
        for each in gone:
            self._delete(each)
        for each in gone:
            self._forget(each)
            self._undo_log.note(partial(self._remember, each))
        # Claims on its name must not reach what is called so next.
        if entity.authorization_rules:
            turn.rules_changed = True
        return entity

    def _delete(self, entity: Entity) -> None:
        """Delete an entity; what it holds goes later, if that is much."""
        key = entity.key.encode()
        if self.shard:
            self._store.post(0, parcels.UNMIRROR, key)
        if entity.is_home:
            for shard in entity.fragments[1:]:
                self._store.post(shard, parcels.UNFRAGMENT, key)
        counted = [
            self._store.counts(entity.container(sub_queue)) for sub_queue in SubQueue
        ]
        rows = sum(each.active + each.deferred + each.scheduled for each in counted)
        if rows <= limits.PURGE_STEP and entity.duplicate_window_ms is None:
            self._store.delete_entity(entity.id)
            return
        self._store.retire_entity(entity.id)
        self._undo_log.extend(self.retired, [entity.id])

    def empty_retired(self, turn: Turn) -> bool:
        """Forget what deleted entities hold; True if there is more."""
        while self.retired and not turn.is_full:
            entity = self.retired[0]
            turn.left -= limits.PURGE_STEP
            if self._is_emptied(entity):
                self._store.delete_entity(entity)
                self.retired.remove(entity)
                self._undo_log.note(partial(self.retired.insert, 0, entity))
        return bool(self.retired)

    def _is_emptied(self, entity: int) -> bool:
        """Forget some of what an entity holds; True if that was all."""
        for container in range(entity, entity + TRANSFER_DEAD_LETTER + 1):
            some = self._store.purge_some(container, SEQUENCE_MAX, limits.PURGE_STEP)
            if not some.done:
                return False
        return True

    def _forget(self, entity: Entity) -> None:
        del self._by_key[entity.key]
        del self._by_id[entity.id]
        if entity.topic is not None:
            name = entity.description.path.subscription or ""
            entity.topic.subscriptions.pop(name.lower(), None)

    def _remember(self, entity: Entity) -> None:
        self._by_key[entity.key] = entity
        self._by_id[entity.id] = entity
        if entity.topic is not None:
            name = entity.description.path.subscription or ""
            entity.topic.subscriptions[name.lower()] = entity

    def add_rule(self, entity: Entity, rule: RuleDescription, now_ms: int) -> None:
        """Add a rule to a subscription."""
        rule.validate()
        compiled = Rule(rule)
        if rule.name.lower() in entity.rules:
            path = f"{entity.name}/Rules/{rule.name}"
            raise EntityExists(f"The messaging entity '{path}' already exists.")
        assert entity.topic is not None
        total = sum(len(s.rules) for s in entity.topic.subscriptions.values())
        if total >= limits.FILTERS_PER_TOPIC_MAX:
            raise ArgumentOutOfRange(
                f"A topic has at most {limits.FILTERS_PER_TOPIC_MAX} rules."
            )
        self._note_rules(entity)
        entity.rules[rule.name.lower()] = compiled
        self._save(entity, now_ms)

    def _note_rules(self, entity: Entity) -> None:
        self._undo_log.note(partial(setattr, entity, "rules", dict(entity.rules)))

    def replace_rule(self, entity: Entity, rule: RuleDescription, now_ms: int) -> None:
        """Give a rule another filter or action."""
        rule.validate()
        compiled = Rule(rule)
        if rule.name.lower() not in entity.rules:
            raise EntityNotFound(f"{entity.name}/Rules/{rule.name}")
        self._note_rules(entity)
        entity.rules[rule.name.lower()] = compiled
        self._save(entity, now_ms)

    def remove_rule(self, entity: Entity, name: str, now_ms: int) -> None:
        """Remove a rule from a subscription."""
        if name.lower() not in entity.rules:
            raise EntityNotFound(f"{entity.name}/Rules/{name}")
        self._note_rules(entity)
        del entity.rules[name.lower()]
        self._save(entity, now_ms)

    def _check(self, description: Description) -> None:
        description.validate()
        if self._shards is not None:
            self._shards.tier.check(description)

    def _check_targets(self, description: Description) -> None:
        """Forwarding leads to an entity that exists, as the real service asks."""
        if isinstance(description, TopicDescription):
            return
        for key in (description.forward_key, description.forward_dead_letter_key):
            if key in (None, description.key):
                continue
            if self.find_anywhere(key) is None:
                raise EntityNotFound(key)

    def _save(self, entity: Entity, now_ms: int) -> None:
        self._undo_log.note(partial(setattr, entity, "updated_ms", entity.updated_ms))
        entity.updated_ms = now_ms
        rules = [rule.description for rule in entity.rules.values()]
        body = _body(entity.description, rules, entity.fragments)
        self._store.update_entity(entity.id, body, now_ms)
        times = (entity.created_ms, now_ms)
        self._tell(entity, EntityRow(entity.id, entity.kind, entity.key, body, *times))

    def _tell(self, entity: Entity, row: EntityRow) -> None:
        """Let the shards know that need to: shard 0, and those with fragments."""
        if self.shard:
            # For when this shard is away.
            self._store.post(0, parcels.MIRROR, parcels.pack_entity(row))
        if entity.is_home:
            for shard in entity.fragments[1:]:
                self._store.post(shard, parcels.FRAGMENT, parcels.pack_entity(row))

    @staticmethod
    def _describe(entity: Entity, row: EntityRow) -> None:
        """Give an entity what a row says of it."""
        data = json.loads(row.body)
        entity.description = _KINDS[row.kind].from_json(data["description"])
        entity.updated_ms = row.updated_ms
        entity.bucket = _bucket(entity.description)
        read = [RuleDescription.from_json(rule) for rule in data["rules"]]
        entity.rules = {rule.name.lower(): Rule(rule) for rule in read}

    def _read(self, row: EntityRow, by_key: dict[str, Entity]) -> Entity:
        """The entity of a row; a subscription's topic is in `by_key`."""
        entity = self._by_id.get(row.id)
        if entity is None:
            data = json.loads(row.body)
            description = _KINDS[row.kind].from_json(data["description"])
            times = (row.created_ms, row.updated_ms)
            entity = Entity(row.id, row.kind, row.key, description, *times)
            entity.shard = self.shard
            # One that was made before there were shards has no list.
            alone = [self.shard] if _is_partitioned(description) else []
            entity.fragments = tuple(data.get("fragments", alone))
        self._describe(entity, row)
        entity.subscriptions = {}
        description = entity.description
        if isinstance(description, SubscriptionDescription):
            topic = by_key[description.topic_name.lower()]
            topic.subscriptions[description.name.lower()] = entity
            entity.topic = topic
        return entity


def _is_partitioned(description: Description) -> bool:
    if isinstance(description, SubscriptionDescription):
        return False
    return description.enable_partitioning


def _restore(entity: Entity, before: tuple[Description, dict[str, Rule], int]) -> None:
    entity.description, entity.rules, entity.updated_ms = before
    entity.bucket = _bucket(entity.description)


def _describe(entity: Entity, description: Description) -> None:
    entity.description = description
    entity.bucket = _bucket(description)


def _dated(new: Description, old: Description | None, now_ms: int) -> Description:
    """The description with the times of its authorization rules."""
    if isinstance(new, SubscriptionDescription) or not new.authorization_rules:
        return new
    rules = dated(
        new.authorization_rules, rules_of_description(old) if old else (), now_ms
    )
    return replace(new, authorization_rules=rules)


def _bucket(description: Description) -> Bucket | None:
    rate = description.message_rate_per_second
    return None if rate is None else Bucket(rate)


def _body(
    description: Description, rules: list[RuleDescription], fragments: tuple[int, ...]
) -> str:
    data: dict[str, Any] = {
        "description": description.to_json(),
        "rules": [rule.to_json() for rule in rules],
    }
    if fragments:
        data["fragments"] = fragments
    return json.dumps(data, separators=(",", ":"))
