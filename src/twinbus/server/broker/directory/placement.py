"""Which host runs which entity.

Owns the way from an entity to its host. Surfaces know the host that was chosen for a
namespace, ask here for the host of an entity, and never take that one for granted.
A namespace has one host, so every answer is that one; with more, the choice is made in
this file and not in each surface.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.core.names import EntityPath
from twinbus.core.rights import AuthorizationRule
from twinbus.server.broker.directory.entities import Entity
from twinbus.server.broker.host import ClaimHolder, Host


def hosts_of(namespace: Host) -> tuple[Host, ...]:
    """All hosts of a namespace; the first keeps its name and its own rules."""
    return (namespace,)


def host_of(namespace: Host, key: str) -> Host:
    """The host of the entity with that lower-case key, whether or not it exists."""
    del key
    return namespace


def find_entity(namespace: Host, key: str) -> Entity | None:
    """The entity with that lower-case key."""
    return host_of(namespace, key).namespace.entities.find(key)


def get_entity(namespace: Host, path: EntityPath) -> Entity:
    """The entity at that path; refuses what does not exist."""
    return host_of(namespace, path.key).namespace.entities.get(path)


def rules_of(namespace: Host, scope_key: str) -> Sequence[AuthorizationRule]:
    """The rules of a scope: the namespace for the empty key, else an entity."""
    return host_of(namespace, scope_key).namespace.rules_of(scope_key)


def watch_rules(namespace: Host, holder: ClaimHolder) -> None:
    """Tell the holder of claims when rules of the namespace or an entity change."""
    for host in hosts_of(namespace):
        host.claim_holders.add(holder)


def unwatch_rules(namespace: Host, holder: ClaimHolder) -> None:
    """The holder is gone."""
    for host in hosts_of(namespace):
        host.claim_holders.discard(holder)
