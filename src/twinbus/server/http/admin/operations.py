"""What the administration API does with entities.

Owns the operations: create, update, read, list and delete of queues, topics,
subscriptions and rules, and the namespace's own entry. Each runs inside the store's
transaction and changes everything it should or raises before it changed anything. All
changes go through `Entities`. Knows nothing about HTTP or rights.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from twinbus.core.entity import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.names import EntityPath
from twinbus.core.rule import DEFAULT_RULE_NAME, RuleDescription
from twinbus.errors import ArgumentError, CallerError, EntityNotFound
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.http.admin import descriptions as admin_descriptions
from twinbus.server.http.admin import rules as admin_rules
from twinbus.server.http.admin.descriptions import GivenDescription, shown_megabytes
from twinbus.server.http.admin.entries import (
    Page,
    entity_entry,
    facts_of,
    namespace_entry,
    rule_entry,
)
from twinbus.server.http.admin.front import NOTHING_LISTED
from twinbus.server.http.admin.request import (
    AdminReply,
    AdminRequest,
    TargetKind,
)
from twinbus.server.http.admin.xml import (
    ENTRY_TYPE,
    FEED_TYPE,
    AtomEntry,
    local_name,
    ticks,
    write_entry,
    write_feed,
)
from twinbus.server.http.route import MethodNotAllowed, PreconditionFailed

# The kinds of entities in the lists of the namespace.
_LISTED = {
    TargetKind.RESOURCES: ("queue", "topic"),
    TargetKind.QUEUES: ("queue",),
    TargetKind.TOPICS: ("topic",),
}
_TYPES: dict[str, type[QueueDescription | TopicDescription]] = {
    "queue": QueueDescription,
    "topic": TopicDescription,
}

# Fixed at creation: a request that leaves them out does not mean the default.
_KEPT = (
    "requires_session",
    "requires_duplicate_detection",
    "enable_partitioning",
    "message_rate_per_second",
    "created_at_ms",
)


class Administer:
    """A request as a command (`turn.Command`)."""

    __slots__ = ("_request",)

    def __init__(self, request: AdminRequest) -> None:
        self._request = request

    def __call__(self, namespace: Namespace, turn: Turn) -> AdminReply:
        return perform(namespace, self._request, turn)


def perform(namespace: Namespace, request: AdminRequest, turn: Turn) -> AdminReply:
    """Carry out a request; refusals are raised."""
    kind = request.target.kind
    if request.method in ("GET", "HEAD"):
        if kind.is_list:
            return _list(namespace, request, turn.now.wall_ms)
        return _get(namespace, request, turn.now.wall_ms)
    if kind.is_list or kind is TargetKind.NAMESPACE:
        raise MethodNotAllowed(f"{request.method} is not allowed for {kind.value}.")
    if request.method == "DELETE":
        return _delete(namespace, request, turn)
    if kind is TargetKind.RULE:
        return _put_rule(namespace, request, turn.now.wall_ms)
    if request.if_match is None:
        return _create(namespace, request, turn)
    return _update(namespace, request, turn)


# -- reading -------------------------------------------------------------------------


def _get(namespace: Namespace, request: AdminRequest, now_ms: int) -> AdminReply:
    target = request.target
    if target.kind is TargetKind.NAMESPACE:
        return _entry(200, namespace_entry(namespace, request, now_ms))
    entity = namespace.entities.find(target.path.key)
    if entity is None and target.kind is TargetKind.ENTITY:
        # A missing queue or topic is a list of nothing; all else that is missing, 404.
        body = write_feed(NOTHING_LISTED, request.url, now_ms, [], None)
        return AdminReply(200, body, FEED_TYPE)
    entity = namespace.entities.get(target.path)
    if target.kind is TargetKind.RULE:
        rule = _rule(entity, request)
        return _entry(200, rule_entry(namespace, request, entity, rule))
    return _entry(200, entity_entry(namespace, request, entity))


def _list(namespace: Namespace, request: AdminRequest, now_ms: int) -> AdminReply:
    target = request.target
    entries: list[AtomEntry]
    if target.kind is TargetKind.RULES:
        subscription = _subscription(namespace, request)
        rules = Page(subscription.rules_by_name, request)
        entries = [
            rule_entry(namespace, request, subscription, rule.description, listed=True)
            for rule in rules.items
        ]
        next_url = rules.next_url
    else:
        page = Page(_entities(namespace, request), request)
        entries = [
            entity_entry(namespace, request, entity, listed=True)
            for entity in page.items
        ]
        next_url = page.next_url
    title = target.kind.value.capitalize()
    body = write_feed(title, request.url, now_ms, entries, next_url)
    return AdminReply(200, body, FEED_TYPE)


def _entities(namespace: Namespace, request: AdminRequest) -> list[Entity]:
    """What a list shows, in the order of names, so that pages do not overlap."""
    target = request.target
    if target.kind is TargetKind.SUBSCRIPTIONS:
        found = list(_topic(namespace, target.entity).subscriptions.values())
    else:
        wanted = _LISTED[target.kind]
        everything = namespace.shards.entities()
        found = [entity for entity in everything if entity.kind in wanted]
    shards = namespace.shards
    found = [one for one in found if request.wanted(facts_of(shards, one))]
    return sorted(found, key=lambda entity: entity.key)


def _topic(namespace: Namespace, name: str) -> Entity:
    topic = namespace.entities.get(EntityPath(name))
    if topic.kind != "topic":
        raise EntityNotFound(name)
    return topic


def _subscription(namespace: Namespace, request: AdminRequest) -> Entity:
    return namespace.entities.get(request.target.path)


def _rule(subscription: Entity, request: AdminRequest) -> RuleDescription:
    name = request.target.rule or ""
    rule = subscription.rules.get(name.lower())
    if rule is None:
        raise EntityNotFound(f"{subscription.name}/Rules/{name}")
    return rule.description


# -- changing ------------------------------------------------------------------------


def _create(namespace: Namespace, request: AdminRequest, turn: Turn) -> AdminReply:
    given = _read(request)
    description = _described(request, given, turn.now.wall_ms)
    rule = None
    if isinstance(description, SubscriptionDescription):
        _topic(namespace, description.topic_name)
        if given.default_rule is not None:
            rule = admin_rules.read_rule(given.default_rule, None, turn.now.wall_ms)
            rule.validate()
    _check_forwards(namespace, request, None, description)
    entity = namespace.entities.create(description, turn.now.wall_ms)
    if rule is not None:
        _set_default_rule(namespace, entity, rule, turn)
    return _entry(201, entity_entry(namespace, request, entity, created=True))


def _set_default_rule(
    namespace: Namespace, entity: Entity, rule: RuleDescription, turn: Turn
) -> None:
    """Give a subscription that was just made another first rule."""
    entities = namespace.entities
    try:
        entities.remove_rule(entity, DEFAULT_RULE_NAME, turn.now.wall_ms)
        entities.add_rule(entity, rule, turn.now.wall_ms)
    except CallerError:
        entities.delete(entity.path, turn)
        raise


def _update(namespace: Namespace, request: AdminRequest, turn: Turn) -> AdminReply:
    entity = namespace.entities.get(request.target.path)
    given = _read(request)
    if given.form.kind != entity.kind:
        raise ArgumentError(
            f"'{entity.name}' is a {entity.kind}; it cannot become a {given.form.kind}."
        )
    _check_match(request, entity)
    old = entity.description
    description = _changed(entity, given)
    _check_forwards(namespace, request, old, description)
    namespace.entities.update(description, turn)
    return _entry(200, entity_entry(namespace, request, entity))


def _put_rule(namespace: Namespace, request: AdminRequest, now_ms: int) -> AdminReply:
    subscription = _subscription(namespace, request)
    element = request.description
    if element is None or local_name(element) != admin_rules.NAME:
        raise ArgumentError(f"The description must be a {admin_rules.NAME}.")
    name = request.target.rule or ""
    rule = admin_rules.read_rule(element, name, now_ms)
    entities = namespace.entities
    if request.if_match is None:
        entities.add_rule(subscription, rule, now_ms)
        return _entry(201, rule_entry(namespace, request, subscription, rule))
    old = _rule(subscription, request)
    _check_match(request, subscription)
    rule = dataclasses.replace(rule, name=old.name, created_at_ms=old.created_at_ms)
    entities.replace_rule(subscription, rule, now_ms)
    return _entry(200, rule_entry(namespace, request, subscription, rule))


def _delete(namespace: Namespace, request: AdminRequest, turn: Turn) -> AdminReply:
    target = request.target
    if target.kind is TargetKind.RULE:
        subscription = _subscription(namespace, request)
        namespace.entities.remove_rule(
            subscription, target.rule or "", turn.now.wall_ms
        )
    else:
        namespace.delete(target.path, turn)
    return AdminReply(200)


# -- descriptions --------------------------------------------------------------------


def _read(request: AdminRequest) -> GivenDescription:
    assert request.description is not None
    given = admin_descriptions.read(request.description, request.version)
    is_below = request.target.kind is TargetKind.SUBSCRIPTION
    if is_below != (given.form.kind == "subscription"):
        raise ArgumentError(
            f"A {given.form.element} does not belong to a {request.target.kind.value}."
        )
    return given


def _described(
    request: AdminRequest, given: GivenDescription, now_ms: int
) -> Description:
    """The description of an entity that is to be made."""
    target = request.target
    settings = {**given.settings, "created_at_ms": now_ms}
    if target.subscription is not None:
        return SubscriptionDescription(target.entity, target.subscription, **settings)
    rules = admin_descriptions.complete_rules(given.authorization_rules, ())
    kind = _TYPES[given.form.kind]
    return kind(target.entity, **settings, authorization_rules=rules)


def _changed(entity: Entity, given: GivenDescription) -> Description:
    """The description of an entity that is to be changed: the old one's name."""
    old = entity.description
    kept = {name: getattr(old, name) for name in _KEPT if hasattr(old, name)}
    settings: dict[str, Any] = {**kept, **given.settings}
    if isinstance(old, SubscriptionDescription):
        return SubscriptionDescription(old.topic_name, old.name, **settings)
    # Clients send back what they were shown.
    if settings.get("max_size_in_megabytes") == shown_megabytes(
        old, len(entity.fragments)
    ):
        settings["max_size_in_megabytes"] = old.max_size_in_megabytes
    rules = admin_descriptions.complete_rules(
        given.authorization_rules, old.authorization_rules
    )
    return type(old)(old.name, **settings, authorization_rules=rules)


def _check_match(request: AdminRequest, entity: Entity) -> None:
    wanted = (request.if_match or "").strip('"')
    if wanted not in ("*", ticks(entity.updated_ms)):
        raise PreconditionFailed


def _check_forwards(
    namespace: Namespace,
    request: AdminRequest,
    old: Description | None,
    new: Description,
) -> None:
    """Refuse targets that do not exist, and new ones that the caller may not use."""
    new.validate()
    before = _forwards(old)
    for field, target in _forwards(new).items():
        if target != before.get(field):
            assert request.forwarding is not None
            request.forwarding.check(field, target)
        if namespace.entities.find_anywhere(target) is None:
            raise ArgumentError(
                f"{field} leads to '{target}', which does not exist. Create it first."
            )


def _forwards(description: Description | None) -> dict[str, str]:
    """The targets of a queue or subscription, by the fields that name them."""
    if description is None or isinstance(description, TopicDescription):
        return {}
    targets = {
        "forward_to": description.forward_key,
        "forward_dead_lettered_messages_to": description.forward_dead_letter_key,
    }
    return {field: key for field, key in targets.items() if key is not None}


def _entry(status: int, entry: AtomEntry) -> AdminReply:
    etag = ticks(entry.updated_ms)
    return AdminReply(status, write_entry(entry), ENTRY_TYPE, etag)
