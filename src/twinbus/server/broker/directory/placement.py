"""Which host runs which entity.

Owns the way from an entity to its host. Surfaces know the host of the namespace's first
shard, ask here for the host of an entity, and never take that one for granted. Runs on
the event loop; inside a turn it is `shards.py` that is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from twinbus.core.names import EntityPath
from twinbus.core.rights import AuthorizationRule
from twinbus.errors import EntityNotFound
from twinbus.server.broker.clients import ClaimHolder
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host


def hosts_of(namespace: Host) -> Sequence[Host]:
    """All hosts of a namespace; the first keeps its name and its own rules."""
    return namespace.hosts


def host_of(namespace: Host, path: EntityPath) -> Host:
    """The host of the entity at that path, whether or not it exists.

    A subscription is where its topic is. What does not exist belongs to the first host,
    which says so.
    """
    if len(namespace.hosts) == 1:
        return namespace
    shards = namespace.namespace.shards
    entity = shards.find(path.key) or shards.find(path.entity_key)
    return namespace if entity is None else namespace.hosts[entity.shard]


def hosts_at(namespace: Host, path: EntityPath) -> Sequence[Host]:
    """The hosts of all fragments of the entity at that path, or its only one."""
    entity = namespace.namespace.shards.find(path.key)
    if entity is None or not entity.fragments:
        return (host_of(namespace, path),)
    return [namespace.hosts[shard] for shard in entity.fragments]


@contextmanager
def host_for_new(namespace: Host, path: EntityPath) -> Iterator[Host]:
    """The host where the entity at that path is to be made.

    It stays the same for all who ask before the first of them is done, so that a name
    is not taken in two shards.
    """
    shards = namespace.namespace.shards
    key = path.entity_key
    shards.check_known(key)
    if len(shards) == 1 or shards.find(key) is not None:
        yield host_of(namespace, path)
        return
    making = namespace.hosts[0].making
    number, count = making.get(key) or (shards.place(key), 0)
    making[key] = (number, count + 1)
    try:
        yield namespace.hosts[number]
    finally:
        number, count = making.pop(key)
        if count > 1:
            making[key] = (number, count - 1)


def find_entity(namespace: Host, key: str) -> Entity | None:
    """The entity with that lower-case key."""
    return namespace.namespace.shards.find(key)


def get_entity(namespace: Host, path: EntityPath) -> Entity:
    """The entity at that path; refuses what does not exist.

    Among nodes also one whose fragments are not all known here yet: a look at what
    other nodes made finds them.
    """
    shards = namespace.namespace.shards
    entity = shards.get(path)
    has_all = len(shards.fragments(entity)) >= len(entity.fragments)
    if not has_all and shards.home_of(path.entity_key) is not None:
        raise EntityNotFound(path.text)
    return entity


def rules_of(namespace: Host, scope_key: str) -> Sequence[AuthorizationRule]:
    """The rules of a scope: the namespace for the empty key, else an entity."""
    entity = find_entity(namespace, scope_key) if scope_key else None
    host = namespace if entity is None else namespace.hosts[entity.shard]
    return host.namespace.rules_of(scope_key)


def watch_rules(namespace: Host, holder: ClaimHolder) -> None:
    """Tell the holder of claims when rules of the namespace or an entity change."""
    for host in hosts_of(namespace):
        host.claim_holders.add(holder)


def unwatch_rules(namespace: Host, holder: ClaimHolder) -> None:
    """The holder is gone."""
    for host in hosts_of(namespace):
        host.claim_holders.discard(holder)
