"""The entities of a namespace: what exists, and the one path to create or change it.

Command line, configuration, emulator files and the administration API all come through
here. The store holds the truth; this keeps a compiled copy in memory, which grows with
the number of entities and never with the number of messages. Every change runs inside
the store's transaction. After a rollback `reload` reads everything anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from twinbus import limits
from twinbus.core.durations import DURATION_MAX_MS
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    changed,
)
from twinbus.core.filters import Action, Filter, compile_action, compile_filter
from twinbus.core.names import EntityPath, SubQueue
from twinbus.core.rights import AuthorizationRule, dated
from twinbus.core.rule import RuleDescription, default_rule
from twinbus.errors import (
    ArgumentOutOfRange,
    EntityExists,
    EntityNotFound,
)
from twinbus.server.broker import parcels
from twinbus.server.broker.throttle import Bucket
from twinbus.server.broker.turn import Turn
from twinbus.server.broker.undo import UndoLog
from twinbus.store.base import (
    DEAD_LETTER,
    SEQUENCE_MAX,
    TRANSFER_DEAD_LETTER,
    EntityRow,
    Store,
    entity_of,
)

if TYPE_CHECKING:
    from twinbus.server.broker.directory.shards import Shards

Description = QueueDescription | TopicDescription | SubscriptionDescription

_KINDS: dict[str, type[Description]] = {
    "queue": QueueDescription,
    "topic": TopicDescription,
    "subscription": SubscriptionDescription,
}
_SUB_QUEUES = {
    SubQueue.NONE: 0,
    SubQueue.DEAD_LETTER: DEAD_LETTER,
    SubQueue.TRANSFER_DEAD_LETTER: TRANSFER_DEAD_LETTER,
}


class Rule:
    """A rule of a subscription, ready to run."""

    __slots__ = ("action", "description", "filter")

    def __init__(self, description: RuleDescription) -> None:
        self.description = description
        self.filter: Filter = compile_filter(description.filter)
        self.action: Action | None = None
        if description.action is not None:
            self.action = compile_action(description.action)


# What is counted of an entity since the start.
Counter = Literal[
    "received",
    "pings",
    "delivered",
    "completed",
    "dead_lettered",
    "expired",
    "throttled",
    "unfiltered",
]


@dataclass(eq=False)
class Entity:
    """A queue, topic or subscription that exists."""

    id: int
    kind: str
    key: str
    description: Description
    created_ms: int
    updated_ms: int
    # The number of the shard that it is in.
    shard: int = 0
    # Of a topic: its subscriptions by lower-case name.
    subscriptions: dict[str, Entity] = field(default_factory=dict)
    # Of a subscription: its rules by lower-case name, and its topic.
    rules: dict[str, Rule] = field(default_factory=dict)
    topic: Entity | None = None
    bucket: Bucket | None = None
    # Messages that came in since the start, pings apart.
    received: int = 0
    pings: int = 0
    # What else happened since the start.
    delivered: int = 0
    completed: int = 0
    dead_lettered: int = 0
    expired: int = 0
    throttled: int = 0
    # Messages on which a rule failed.
    unfiltered: int = 0
    # When it was accessed and updated, as the last look for idle entities found it, and
    # since when it has been idle, by the steady clock.
    used: tuple[int, int] | None = None
    idle_since_ms: int = 0

    @property
    def path(self) -> EntityPath:
        return self.description.path

    @property
    def name(self) -> str:
        return self.description.path.text

    @property
    def authorization_rules(self) -> tuple[AuthorizationRule, ...]:
        """Its own rules; a subscription has its topic's."""
        return _rules(self.description)

    @property
    def _receivable(self) -> QueueDescription | SubscriptionDescription | None:
        """The description of a queue or subscription; None for a topic."""
        description = self.description
        return None if isinstance(description, TopicDescription) else description

    @property
    def requires_session(self) -> bool:
        description = self._receivable
        return description is not None and description.requires_session

    @property
    def lock_ms(self) -> int:
        """How long a lock lasts; a topic has locks on what it set aside."""
        description = self._receivable
        if description is None:
            return limits.TOPIC_LOCK_MS
        return description.lock_duration_ms

    @property
    def max_delivery_count(self) -> int | None:
        """How often a message is delivered before it is dead-lettered."""
        description = self._receivable
        return None if description is None else description.max_delivery_count

    @property
    def dead_letters_expired(self) -> bool:
        description = self._receivable
        if description is None:
            return False
        return description.dead_lettering_on_message_expiration

    @property
    def dead_letters_filter_errors(self) -> bool:
        description = self.description
        if not isinstance(description, SubscriptionDescription):
            return False
        return description.dead_lettering_on_filter_evaluation_exceptions

    @property
    def forward_key(self) -> str | None:
        """The entity that all messages are forwarded to."""
        description = self._receivable
        return None if description is None else description.forward_key

    @property
    def forward_dead_letter_key(self) -> str | None:
        """The entity that dead-lettered messages are forwarded to."""
        description = self._receivable
        return None if description is None else description.forward_dead_letter_key

    @property
    def ttl_ms(self) -> int | None:
        """The default time to live; None is for ever."""
        ttl = self.description.default_message_time_to_live_ms
        return None if ttl >= DURATION_MAX_MS else ttl

    @property
    def duplicate_window_ms(self) -> int | None:
        """How long message ids are remembered; None if they are not."""
        description = self.description
        if isinstance(description, SubscriptionDescription):
            return None
        if not description.requires_duplicate_detection:
            return None
        return description.duplicate_detection_history_time_window_ms

    @property
    def size_bytes_max(self) -> int:
        """The quota; a subscription's messages count for its topic."""
        owner = (self.topic or self).description
        assert not isinstance(owner, SubscriptionDescription)
        return owner.max_size_in_megabytes * 1024 * 1024

    @property
    def message_bytes_max(self) -> int:
        """The largest message that it holds; a topic says it for its subscriptions."""
        owner = (self.topic or self).description
        assert not isinstance(owner, SubscriptionDescription)
        return owner.message_bytes_max

    def gives_messages(self, sub_queue: SubQueue) -> bool:
        """Whether it can be received from; a topic only from what it set aside."""
        return self.kind != "topic" or sub_queue is SubQueue.TRANSFER_DEAD_LETTER

    def count(self, name: Counter, amount: int, undo_log: UndoLog) -> None:
        """Raise a counter, until what was counted is undone."""
        setattr(self, name, getattr(self, name) + amount)
        undo_log.note(lambda: setattr(self, name, getattr(self, name) - amount))

    def container(self, sub_queue: SubQueue) -> int:
        """The store's container for the entity or one of its sub-queues."""
        return self.id + _SUB_QUEUES[sub_queue]


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

    def of_container(self, container: int) -> Entity | None:
        """The entity that a container belongs to."""
        return self._by_id.get(entity_of(container))

    # -- changing ------------------------------------------------------------------

    def create(self, description: Description, now_ms: int) -> Entity:
        """Create a queue, topic or subscription (the latter with its default rule)."""
        description.validate()
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
        body = _body(description, rules)
        number = self._store.insert_entity(kind, description.key, body, now_ms)
        row = EntityRow(number, kind, description.key, body, now_ms, now_ms)
        entity = self._read(row, self._by_key)
        self._remember(entity)
        self._undo_log.note(partial(self._forget, entity))
        self._mirror(row)
        return entity

    def update(self, description: Description, turn: Turn) -> Entity:
        """Give an entity another description."""
        entity = self.get(description.path)
        description.validate()
        changed(entity.description, description)
        self._check_targets(description)
        description = _dated(description, entity.description, turn.now.wall_ms)
        if _rules(description) != _rules(entity.description):
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
        if self.shard:
            self._store.post(0, parcels.UNMIRROR, entity.key.encode())
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
            raise EntityExists(f"The rule '{rule.name}' already exists.")
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

    def _check_targets(self, description: Description) -> None:
        """Forwarding leads to an entity that exists, as the real service asks."""
        if isinstance(description, TopicDescription):
            return
        for key in (description.forward_key, description.forward_dead_letter_key):
            if key is not None and self.find_anywhere(key) is None:
                raise EntityNotFound(key)

    def _save(self, entity: Entity, now_ms: int) -> None:
        self._undo_log.note(partial(setattr, entity, "updated_ms", entity.updated_ms))
        entity.updated_ms = now_ms
        rules = [rule.description for rule in entity.rules.values()]
        body = _body(entity.description, rules)
        self._store.update_entity(entity.id, body, now_ms)
        times = (entity.created_ms, now_ms)
        self._mirror(EntityRow(entity.id, entity.kind, entity.key, body, *times))

    def _mirror(self, row: EntityRow) -> None:
        """Let shard 0 know the entity, for when this shard is away."""
        if self.shard:
            self._store.post(0, parcels.MIRROR, parcels.pack_entity(row))

    def _read(self, row: EntityRow, by_key: dict[str, Entity]) -> Entity:
        """The entity of a row; a subscription's topic is in `by_key`."""
        data = json.loads(row.body)
        description = _KINDS[row.kind].from_json(data["description"])
        entity = self._by_id.get(row.id)
        if entity is None:
            times = (row.created_ms, row.updated_ms)
            entity = Entity(row.id, row.kind, row.key, description, *times)
            entity.shard = self.shard
        entity.description = description
        entity.updated_ms = row.updated_ms
        entity.bucket = _bucket(description)
        entity.subscriptions = {}
        entity.rules = {}
        for rule in data["rules"]:
            read = RuleDescription.from_json(rule)
            entity.rules[read.name.lower()] = Rule(read)
        if isinstance(description, SubscriptionDescription):
            topic = by_key[description.topic_name.lower()]
            topic.subscriptions[description.name.lower()] = entity
            entity.topic = topic
        return entity


def _describe(entity: Entity, description: Description) -> None:
    entity.description = description
    entity.bucket = _bucket(description)


def _rules(description: Description) -> tuple[AuthorizationRule, ...]:
    if isinstance(description, SubscriptionDescription):
        return ()
    return description.authorization_rules


def _dated(new: Description, old: Description | None, now_ms: int) -> Description:
    """The description with the times of its authorization rules."""
    if isinstance(new, SubscriptionDescription) or not new.authorization_rules:
        return new
    rules = dated(new.authorization_rules, _rules(old) if old else (), now_ms)
    return replace(new, authorization_rules=rules)


def _bucket(description: Description) -> Bucket | None:
    rate = description.message_rate_per_second
    return None if rate is None else Bucket(rate)


def _body(description: Description, rules: list[RuleDescription]) -> str:
    data = {
        "description": description.to_json(),
        "rules": [rule.to_json() for rule in rules],
    }
    return json.dumps(data, separators=(",", ":"))
