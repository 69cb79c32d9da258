"""A receiver that wants one message over HTTP, and waits for it.

Owns the wait: at least one look, then until the client's time is over or the client is
gone. A message is locked in a turn and answered after its commit, as on a link. What
was locked for a client that is gone by then goes back uncounted; what it wanted deleted
is gone, as receive and delete has it.
Knows nothing about HTTP: the request gets a message, nothing, or an error.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from twinbus import limits
from twinbus.errors import BusyError, TwinbusError
from twinbus.server.broker.commands import Messages, MessageWant, Unlock
from twinbus.server.broker.entities import Entity
from twinbus.server.broker.host import UNHEARD, Host
from twinbus.server.broker.turn import Room
from twinbus.store.base import Lock, Stored

# One message has room; a request reads no more than that.
_ROOM = Room()


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
        self._key: int | None = None
        self._looked = False
        self._late = False
        self._timer: asyncio.TimerHandle | None = None

    def open(self, wait_seconds: float) -> None:
        """Start to wait; `done` says how it ends."""
        if self._host.fault is not None:
            self.refuse(self._host.fault)
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_seconds, self._give_up)
        self._key = self._host.add_consumer(self._container, self)
        # After the first look the client may have to be told that there is nothing.
        self._want(answer_empty=True)

    def _want(self, *, answer_empty: bool) -> None:
        if self._key is not None:
            self._host.want(
                MessageWant(
                    self._key,
                    self._container,
                    self._entity,
                    _ROOM,
                    1,
                    deletes=not self._locks,
                    answer_empty=answer_empty,
                )
            )

    def close(self) -> None:
        """The client waits no more; a message that is being taken goes back."""
        if self._timer is not None:
            self._timer.cancel()
        key, self._key = self._key, None
        if key is not None:
            self._host.remove_consumer(self._container, key)
        if not self.done.done():
            self.done.cancel()

    def give_back(self, caught: Caught) -> None:
        """The client went away before it was told."""
        if caught.lock is not None:
            self._host.submit(Unlock([caught.lock]), UNHEARD)

    def deliver(self, want: MessageWant, taken: Messages) -> None:
        """What was taken is on disk."""
        del want
        self._looked = True
        if self.done.done():
            self._host.give_back(taken)
        elif taken.error is not None:
            self.refuse(taken.error)
        elif taken.messages:
            stored = taken.messages[0]
            lock = None if taken.nonce is None else Lock(stored.id, taken.nonce)
            self.done.set_result(Caught(stored, lock, taken.until_ms))
        elif self._late:
            self.done.set_result(None)
        else:
            self._want(answer_empty=False)

    def store_failed(self, error: TwinbusError) -> None:
        """The store has stopped."""
        self.refuse(error)

    def refuse(self, error: TwinbusError) -> None:
        """Nothing more for this one; a message that is being taken goes back."""
        if not self.done.done():
            self.done.set_exception(error)

    # -- time ------------------------------------------------------------------------

    def _give_up(self) -> None:
        if self.done.done():
            return
        if self._host.fault is not None:
            self.refuse(self._host.fault)
        elif self._looked:
            assert self._key is not None
            self._host.unwant(self._container, self._key)
            # The turn in hand may have taken a message.
            self._host.after_turn(self._end)
        elif self._late:
            self.refuse(BusyError())
        else:
            self._late = True
            loop = asyncio.get_running_loop()
            seconds = limits.REST_LOOK_SECONDS_MAX
            self._timer = loop.call_later(seconds, self._give_up)

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
