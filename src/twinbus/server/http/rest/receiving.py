"""A receiver that wants one message over HTTP, and waits for it.

Owns the wait: at least one look, then until the client's time is over or the client is
gone. A message is locked in a turn and answered after its commit, as on a link. What
was locked for a client that is gone by then goes back uncounted; what it wanted deleted
is gone, as receive and delete has it.
Knows nothing about HTTP: who waits gets a message, nothing, or an error.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from twinbus.errors import BusyError, EntityDisabled, EntityNotFound, TwinbusError
from twinbus.server.amqp.settling import Release
from twinbus.server.broker.entities import Entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.store.base import Lock, Stored

# How long the first look may take when the time is over: a slow commit, not a hung one.
_LOOK_SECONDS_MAX = 10.0


class Caught(NamedTuple):
    """A message that was received; without a lock it is deleted."""

    stored: Stored
    lock: Lock | None
    until_ms: int


class Catch:
    """One receiver, for one message (`host.Consumer`)."""

    def __init__(self, host: Host, entity: Entity, container: int, lock: bool) -> None:
        self.done: asyncio.Future[Caught | None] = asyncio.Future()
        self._host = host
        self._entity = entity
        self._container = container
        self._locks = lock
        self._caught: Caught | None = None
        self._refused: TwinbusError | None = None
        self._looked = False
        self._late = False
        self._timer: asyncio.TimerHandle | None = None

    def open(self, wait_seconds: float) -> None:
        """Start to wait; `done` says how it ends."""
        if self._host.fault is not None:
            self._finish(self._host.fault)
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_seconds, self._give_up)
        self._host.add_consumer(self._container, self)
        self._host.hungry(self._container)

    def close(self) -> None:
        """Nobody waits any more; a message that is on its way goes back."""
        if self._timer is not None:
            self._timer.cancel()
        self._host.remove_consumer(self._container, self)
        if not self.done.done():
            self.done.cancel()

    def give_back(self, caught: Caught) -> None:
        """The client went away before it was told."""
        if caught.lock is not None:
            self._host.submit(Release([caught.lock]))

    # -- a turn of the host ------------------------------------------------------------

    def stage(self, namespace: Namespace, now_ms: int, share: int) -> bool:
        """Lock a message, or take it out."""
        del share
        if self.done.done():
            return False
        entity = self._entity
        if namespace.entities.find(entity.key) is not entity:
            self._refused = EntityNotFound(entity.name)
            return True
        if not entity.description.status.can_receive:
            self._refused = EntityDisabled(f"'{entity.name}' is disabled.")
            return True
        self._caught = self._catch(namespace, now_ms)
        if self._caught is not None:
            namespace.store.touch(self._container, now_ms)
        # After the first look somebody may have to be told that there was nothing.
        return self._caught is not None or not self._looked

    def _catch(self, namespace: Namespace, now_ms: int) -> Caught | None:
        store = namespace.store
        if not self._locks:
            taken = store.take(self._container, 1, now_ms)
            return Caught(taken[0], None, 0) if taken else None
        until_ms = now_ms + self._entity.lock_ms
        nonce, locked = store.lock(self._container, 1, until_ms, now_ms)
        if not locked:
            return None
        return Caught(locked[0], Lock(locked[0].id, nonce), until_ms)

    def release(self) -> None:
        """What was staged is on disk."""
        self._looked = True
        caught, self._caught = self._caught, None
        if self.done.done():
            if caught is not None:
                self.give_back(caught)
        elif self._refused is not None:
            self._finish(self._refused)
        elif caught is not None:
            self._entity.delivered += 1
            self.done.set_result(caught)
        elif self._late:
            self.done.set_result(None)

    def fail(self, error: TwinbusError) -> None:
        """The turn did not happen: nothing was locked."""
        self._caught = None
        self._finish(error)

    def refuse(self, error: TwinbusError) -> None:
        """Nothing more for this one; a message that is on its way goes back."""
        self._finish(error)

    # -- time ------------------------------------------------------------------------

    def _give_up(self) -> None:
        if self.done.done() or self._caught is not None:
            # What is on its way to the disk is answered when it is there.
            return
        if self._host.fault is not None:
            self._finish(self._host.fault)
        elif self._looked:
            self.done.set_result(None)
        elif self._late:
            self._finish(BusyError())
        else:
            self._late = True
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LOOK_SECONDS_MAX, self._give_up)

    def _finish(self, error: TwinbusError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
