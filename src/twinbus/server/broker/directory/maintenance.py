"""Purge and reset: an entity without its messages, a namespace as on its first day.

Owns what "empty" means: active, locked, deferred, scheduled and dead-lettered messages,
session states and the memory of message ids are gone. Entities stay at a purge; at a
reset only those of the configuration do, made anew. Clients are told what they have
lost. A purge of a running namespace takes as many turns as it needs (`purge_some`);
messages that come meanwhile stay.
"""

from __future__ import annotations

from twinbus import limits
from twinbus.core.names import EntityPath, SubQueue
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.provision import provision
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.store.base import Purged

# Containers that are being purged, with the number of the last message that is.
Left = dict[int, int]


def containers_at(namespace: Namespace, path: EntityPath) -> list[int]:
    """The containers that a path means: all of an entity, or one sub-queue of it.

    Those of a topic include its subscriptions', and those of the namespace are all.
    """
    if path.is_namespace:
        every = list(namespace.entities)
        return [one.container(sub_queue) for one in every for sub_queue in SubQueue]
    entity = namespace.entities.get(path)
    if path.sub_queue is not SubQueue.NONE:
        return [entity.container(path.sub_queue)]
    return [
        each.container(sub_queue)
        for each in (entity, *entity.subscriptions.values())
        for sub_queue in SubQueue
    ]


def purge(namespace: Namespace, path: EntityPath, turn: Turn) -> int:
    """Forget all messages at a path; returns how many there were."""
    containers = containers_at(namespace, path)
    namespace.undo_log.extend(turn.emptied, containers)
    return sum(map(namespace.store.purge, containers))


def purge_some(
    path: EntityPath, left: Left | None, namespace: Namespace, turn: Turn
) -> tuple[int, Left]:
    """Forget messages at a path, as many as fit into a turn.

    Returns how many, and what is left to be purged: containers, each with the number
    of the last message in it. The first time nothing is given for it, and what is there
    then is what will be purged.
    """
    store = namespace.store
    if left is None:
        containers = containers_at(namespace, path)
        namespace.undo_log.extend(turn.emptied, containers)
        for container in containers:
            store.end_session_locks(container, turn.now)
        left = {each: store.counts(each).last_sequence for each in containers}
    purged = 0
    left = dict(left)
    while left and not turn.is_full:
        container = next(iter(left))
        found = Purged(0, done=True)
        # An entity may have been deleted meanwhile.
        if namespace.entities.of_container(container) is not None:
            found = store.purge_some(container, left[container], limits.PURGE_STEP)
        turn.left -= 1 + found.messages
        purged += found.messages
        if found.done:
            del left[container]
    return purged, left


def reset(namespace: Namespace, config: NamespaceConfig, turn: Turn) -> int:
    """Forget all entities with everything in them, and make the configured ones.

    Returns how many were there. Changes all shards in one turn, so with several of them
    no host may run.
    """
    deleted = sum(delete_all(shard, turn) for shard in namespace.shards)
    provision(namespace, config, turn)
    return deleted


def delete_all(namespace: Namespace, turn: Turn) -> int:
    """Forget all entities of a shard with everything in them.

    Returns how many; a partitioned one counts where its home is.
    """
    deleted = sum(entity.is_home for entity in namespace.entities)
    for entity in namespace.entities:
        # A subscription may have gone with its topic.
        if namespace.entities.find(entity.key) is entity:
            namespace.delete(entity.path, turn)
    return deleted
