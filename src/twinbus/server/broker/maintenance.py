"""Purge and reset: an entity without its messages, a namespace as on its first day.

Owns what "empty" means: active, locked, deferred, scheduled and dead-lettered messages,
session states and the memory of message ids are gone. Entities stay at a purge; at a
reset only those of the configuration do, made anew. Each runs as one command of the
host, so it happens whole or not at all, and clients are told what they have lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from twinbus.core.names import EntityPath, SubQueue
from twinbus.errors import TwinbusError
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.provision import provision
from twinbus.server.setup.config import NamespaceConfig

T = TypeVar("T")


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


def purge(namespace: Namespace, path: EntityPath) -> int:
    """Forget all messages at a path; returns how many there were."""
    return sum(map(namespace.store.purge, containers_at(namespace, path)))


def reset(namespace: Namespace, config: NamespaceConfig, now_ms: int) -> int:
    """Forget all entities with everything in them, and make the configured ones.

    Returns how many were there.
    """
    deleted = len(namespace.entities)
    for entity in namespace.entities:
        # A subscription may have gone with its topic.
        if namespace.entities.find(entity.key) is entity:
            namespace.delete(entity.path)
    provision(namespace, config, now_ms)
    return deleted


async def purge_in_turn(host: Host, path: EntityPath) -> int:
    """Purge while clients are there; who held a session there has lost it."""
    gone: set[int] = set()

    def work(namespace: Namespace, now_ms: int) -> int:
        del now_ms
        gone.update(containers_at(namespace, path))
        return purge(namespace, path)

    purged = await in_turn(host, work)
    for (container, nonce), holder in list(host.session_holders.items()):
        if container in gone:
            del host.session_holders[container, nonce]
            holder.session_lost()
    return purged


async def reset_in_turn(host: Host, config: NamespaceConfig) -> int:
    """Reset while clients are there; links to what is gone are detached."""
    return await in_turn(
        host, lambda namespace, now_ms: reset(namespace, config, now_ms)
    )


async def in_turn(host: Host, work: Callable[[Namespace, int], T]) -> T:
    """Do something in a turn of the host; returns when it is on disk."""
    command = _Work(work)
    host.submit(command)
    return await command.done


class _Work(Generic[T]):
    """Something to be done in a turn (`host.Command`)."""

    size_bytes = 0

    def __init__(self, work: Callable[[Namespace, int], T]) -> None:
        self.done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._work = work
        self._results: list[T] = []

    def apply(self, namespace: Namespace, now_ms: int) -> None:
        """Do it."""
        self._results.append(self._work(namespace, now_ms))

    def release(self) -> None:
        """It is on disk."""
        if not self.done.done():
            self.done.set_result(self._results[0])

    def fail(self, error: TwinbusError) -> None:
        """It did not happen."""
        if not self.done.done():
            self.done.set_exception(error)
