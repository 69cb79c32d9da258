"""What a configuration file puts into a namespace.

Owns the comparison of a file with what exists: what is missing is made, what differs is
changed where that is allowed, and what the file does not name is left alone. So the
same file can be applied at every start. Runs inside the store's transaction; the caller
rolls back if it raises, so a file is applied whole or not at all.
Knows nothing about formats of files.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

from twinbus.core.entity import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    changed,
)
from twinbus.core.rule import DEFAULT_RULE_NAME, RuleDescription
from twinbus.errors import CallerError, ConfigError
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig, SubscriptionConfig
from twinbus.server.broker.directory.shards import Shards
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn

_FORWARDS = ("forward_to", "forward_dead_lettered_messages_to")


def provision(namespace: Namespace, config: NamespaceConfig, turn: Turn) -> None:
    """Bring all shards of a namespace to what its configuration says, in one turn.

    `ConfigError` names the entity that cannot become what the file wants.
    """
    shards = namespace.shards
    parts = list(zip(shards, plan(shards, config), strict=True))
    made = [create_missing(shard, part, turn) for shard, part in parts]
    for (shard, part), new in zip(parts, made, strict=True):
        bring_up(shard, part, new, turn)


def plan(shards: Shards, config: NamespaceConfig) -> list[NamespaceConfig]:
    """What each shard has to do for the configuration of its namespace."""
    planned: Counter[int] = Counter()

    def place(description: QueueDescription | TopicDescription) -> int:
        entity = shards.find(description.key)
        if entity is not None:
            return entity.shard
        shard = shards.place(description.key, planned)
        planned[shard] += 1
        return shard

    queues = [(place(each), each) for each in config.queues]
    topics = [(place(each.description), each) for each in config.topics]
    return [
        dataclasses.replace(
            config,
            queues=tuple(each for shard, each in queues if shard == number),
            topics=tuple(each for shard, each in topics if shard == number),
            authorization_rules=config.authorization_rules if number == 0 else (),
        )
        for number in range(len(shards))
    ]


def create_missing(
    namespace: Namespace, config: NamespaceConfig, turn: Turn
) -> set[str]:
    """Make the entities that are not there yet; returns their keys."""
    made: set[str] = set()
    for description in _descriptions(config):
        if namespace.entities.find(description.key) is None:
            _create(namespace, description, turn.now.wall_ms)
            made.add(description.key)
    return made


def bring_up(
    namespace: Namespace, config: NamespaceConfig, made: set[str], turn: Turn
) -> None:
    """Change what differs.

    Forwarding may lead to an entity further down or of another shard, so this comes
    when all exist.
    """
    for description in _descriptions(config):
        _update(namespace, description, turn)
    for topic in config.topics:
        for subscription in topic.subscriptions:
            is_new = subscription.description.key in made
            _add_rules(namespace, subscription, is_new, turn.now.wall_ms)
    wanted = config.authorization_rules
    if wanted:
        namespace.change_rules(
            lambda store: keys.merge_rules(store, wanted, turn.now.wall_ms), turn
        )


def _descriptions(config: NamespaceConfig) -> Iterator[Description]:
    yield from config.queues
    for topic in config.topics:
        yield topic.description
        for subscription in topic.subscriptions:
            yield subscription.description


def _create(namespace: Namespace, description: Description, now_ms: int) -> None:
    # A topic that the file wants may be a queue here; then its subscriptions have none.
    if isinstance(description, SubscriptionDescription):
        topic = namespace.entities.find(description.topic_name.lower())
        if topic is not None and topic.kind != "topic":
            _refuse(description, f"'{topic.name}' is a {topic.kind} and not a topic.")
    none: dict[str, Any] = {n: None for n in _FORWARDS if hasattr(description, n)}
    try:
        namespace.entities.create(dataclasses.replace(description, **none), now_ms)
    except CallerError as error:
        _refuse(description, error.text)


def _update(namespace: Namespace, description: Description, turn: Turn) -> None:
    existing = namespace.entities.get(description.path)
    wanted = dataclasses.replace(
        description, created_at_ms=existing.description.created_at_ms
    )
    try:
        if changed(existing.description, wanted):
            namespace.entities.update(wanted, turn)
    except CallerError as error:
        _refuse(description, error.text)


def _add_rules(
    namespace: Namespace, config: SubscriptionConfig, is_new: bool, now_ms: int
) -> None:
    entities = namespace.entities
    subscription = entities.get(config.description.path)
    wanted = {rule.key: rule for rule in config.rules}
    default = DEFAULT_RULE_NAME.lower()
    # Removed first, since a new subscription's only rule lets everything through.
    if is_new and default not in wanted and default in subscription.rules:
        entities.remove_rule(subscription, DEFAULT_RULE_NAME, now_ms)
    for key, rule in wanted.items():
        existing = subscription.rules.get(key)
        dated = dataclasses.replace(rule, created_at_ms=now_ms)
        try:
            if existing is None:
                entities.add_rule(subscription, dated, now_ms)
            elif existing.description != rule:
                entities.replace_rule(
                    subscription, _kept(existing.description, rule), now_ms
                )
        except CallerError as error:
            _refuse(config.description, error.text)


def _kept(old: RuleDescription, new: RuleDescription) -> RuleDescription:
    return dataclasses.replace(new, created_at_ms=old.created_at_ms)


def _refuse(description: Description, text: str) -> None:
    raise ConfigError(
        f"The configuration of '{description.path.text}' cannot be applied: {text}"
    ) from None
