"""Entries of the administration API: an entity with its state, ready to be written.

Owns what is no setting of an entity: its counts, sizes and times, read inside the
store's transaction so that they are exact. Deferred messages count as active, as users
of the real service see it; locked ones do, too.
Knows nothing about requests beyond their URL and version.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from typing import Generic, TypeVar

from twinbus import limits
from twinbus.core.names import SubQueue
from twinbus.core.rule import RuleDescription
from twinbus.core.tier import NamespaceTier
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.directory.shards import Shards
from twinbus.server.broker.namespace import Namespace
from twinbus.server.http.admin import descriptions as admin_descriptions
from twinbus.server.http.admin import rules as admin_rules
from twinbus.server.http.admin.descriptions import write_rules
from twinbus.server.http.admin.filters import Facts
from twinbus.server.http.admin.request import AdminRequest, TargetKind
from twinbus.server.http.admin.xml import (
    AtomEntry,
    escape,
    moment,
    tag,
    write_description,
)

Item = TypeVar("Item")


class Page(Generic[Item]):
    """A part of a list, and where the next one begins."""

    def __init__(self, items: Sequence[Item], request: AdminRequest) -> None:
        top = min(request.top, limits.ADMIN_PAGE_ENTRIES_MAX)
        end = request.skip + top
        self.items = items[request.skip : end]
        self.next_url: str | None = None
        if self.items and end < len(items):
            path = urllib.parse.urlsplit(request.url).path
            query = f"api-version={request.version}&$skip={end}&$top={top}"
            if request.filter_text is not None:
                query += f"&$filter={urllib.parse.quote(request.filter_text, safe='')}"
            self.next_url = f"{request.root}{path.removeprefix('/')}?{query}"


def entity_entry(
    namespace: Namespace,
    request: AdminRequest,
    entity: Entity,
    *,
    listed: bool = False,
    created: bool = False,
) -> AtomEntry:
    """An entity; one that was just created comes without counts."""
    runtime = _runtime(namespace.shards, entity)
    if created:
        del runtime["CountDetails"]
    if request.target.kind is TargetKind.RESOURCES:
        # Keys are in the lists of each kind, which administration clients ask for.
        runtime["AuthorizationRules"] = write_rules((), entity.created_ms)
    authority = request.root.partition("://")[2]
    content = admin_descriptions.write(
        entity.description,
        runtime,
        f"sb://{authority}",
        request.version,
        len(entity.fragments),
    )
    path = entity.description.path
    return AtomEntry(
        url=_url(request, entity.name) if listed else request.url,
        title=path.subscription or path.entity,
        author=namespace.name,
        created_ms=entity.created_ms,
        updated_ms=entity.updated_ms,
        content=content,
    )


def rule_entry(
    namespace: Namespace,
    request: AdminRequest,
    entity: Entity,
    rule: RuleDescription,
    *,
    listed: bool = False,
) -> AtomEntry:
    """A rule of a subscription."""
    path = f"{entity.name}/Rules/{rule.name}"
    return AtomEntry(
        url=_url(request, path) if listed else request.url,
        title=rule.name,
        author=namespace.name,
        created_ms=rule.created_at_ms,
        updated_ms=entity.updated_ms,
        content=admin_rules.write_rule(rule),
    )


def namespace_entry(
    namespace: Namespace, request: AdminRequest, now_ms: int
) -> AtomEntry:
    """The namespace itself."""
    created_ms = namespace.created_ms(now_ms)
    changes = (entity.updated_ms for entity in namespace.entities)
    updated_ms = max(changes, default=created_ms)
    tier = namespace.shards.tier
    inner = (
        tag("CreatedTime", moment(created_ms))
        + tag("MessagingSKU", tier.sku)
        # The JavaScript client wants the number where it is premium, and nowhere else.
        + (tag("MessagingUnits", "1") if tier is NamespaceTier.PREMIUM else "")
        + tag("ModifiedTime", moment(updated_ms))
        + tag("Name", escape(namespace.name))
        + tag("NamespaceType", "Messaging")
    )
    return AtomEntry(
        url=request.url,
        title=namespace.name,
        author=namespace.name,
        created_ms=created_ms,
        updated_ms=updated_ms,
        content=write_description("NamespaceInfo", inner),
    )


def _url(request: AdminRequest, path: str) -> str:
    quoted = urllib.parse.quote(path, safe="/$~")
    return f"{request.root}{quoted}?api-version={request.version}"


# -- state ---------------------------------------------------------------------------


def _runtime(shards: Shards, entity: Entity) -> dict[str, str]:
    """The elements of a description that are no settings, as XML."""
    counts = _counts(shards, entity)
    rules = entity.authorization_rules
    return {
        "SizeInBytes": str(_size_bytes(shards, entity)),
        "MessageCount": str(sum(counts.values())),
        "IsAnonymousAccessible": "false",
        "AuthorizationRules": write_rules(rules, entity.created_ms),
        "CreatedAt": moment(entity.created_ms),
        "UpdatedAt": moment(entity.updated_ms),
        "AccessedAt": moment(shards.counts(entity).accessed_ms),
        "CountDetails": admin_descriptions.write_counts(counts),
        "EntityAvailabilityStatus": "Available",
        "IsClientAffine": "false",
        **_topic_counts(entity),
    }


def facts_of(shards: Shards, entity: Entity) -> Facts:
    """What a filter can ask about an entity: the same that its entry shows."""
    return Facts(
        entity.name,
        entity.created_ms,
        entity.updated_ms,
        lambda: shards.counts(entity).accessed_ms,
        lambda: sum(_counts(shards, entity).values()),
    )


def _counts(shards: Shards, entity: Entity) -> dict[str, int]:
    own = shards.counts(entity)
    dead = shards.counts(entity, SubQueue.DEAD_LETTER)
    transfer_dead = shards.counts(entity, SubQueue.TRANSFER_DEAD_LETTER)
    return {
        "ActiveMessageCount": own.active + own.deferred,
        "DeadLetterMessageCount": dead.active + dead.deferred,
        "ScheduledMessageCount": own.scheduled,
        # What is forwarded moves in the transaction that brought it: none waits.
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": transfer_dead.active + transfer_dead.deferred,
    }


def _size_bytes(shards: Shards, entity: Entity) -> int:
    """What it holds with all below it; a topic's quota is for its subscriptions."""
    own = sum(shards.counts(entity, each).size_bytes for each in SubQueue)
    below = entity.subscriptions.values()
    return own + sum(_size_bytes(shards, subscription) for subscription in below)


def _topic_counts(entity: Entity) -> dict[str, str]:
    filters = [
        rule.description.filter
        for subscription in entity.subscriptions.values()
        for rule in subscription.rules.values()
    ]
    sql = sum(map(admin_rules.counts_as_sql, filters))
    return {
        "SubscriptionCount": str(len(entity.subscriptions)),
        "SqlFilterCount": str(sql),
        "CorrelationFilterCount": str(len(filters) - sql),
    }
