"""A receive over HTTP: one message, waited for.

Owns the wait: the container is looked at once at least, then until the timeout ends or
the client disconnects. A message is locked in a turn and answered after its commit, as
on a link. A message that was locked for a client that has disconnected is unlocked
without counting the delivery; in receive-and-delete mode it is lost, as that mode says.
Knows nothing about HTTP: the result is a message, None, or an error.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from twinbus import limits
from twinbus.errors import BusyError, TwinbusError
from twinbus.server.broker.commands import MessageWant, TakenMessages, Unlock
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.submissions import UNHEARD
from twinbus.server.broker.turn import Room
from twinbus.store.base import Lock, Stored

# One message has room; a request reads no more than that.
_ROOM = Room()


class TakenMessage(NamedTuple):
    """A message that was received; without a lock it is deleted."""

    stored: Stored
    lock: Lock | None
    until_ms: int


class PendingReceive:
    """A receiver of one message (`host.Consumer`)."""

    def __init__(self, host: Host, entity: Entity, container: int, lock: bool) -> None:
        self.done: asyncio.Future[TakenMessage | None] = asyncio.Future()
        self._host = host
        self._entity = entity
        self._container = container
        self._locks = lock
        self._key: int | None = None
        self._looked = False
        self._late = False
        self._timer: asyncio.TimerHandle | None = None

    def open(self, wait_seconds: float) -> None:
        """Start to wait; `done` gets the result."""
        if self._host.fault is not None:
            self.refuse(self._host.fault)
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_seconds, self._give_up)
        self._key = self._host.add_consumer(self._container, self)
        # The timeout may end before the first look, which then decides.
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
        """Stop waiting; a message that a turn is taking for it is unlocked."""
        if self._timer is not None:
            self._timer.cancel()
        key, self._key = self._key, None
        if key is not None:
            self._host.remove_consumer(self._container, key)
        if not self.done.done():
            self.done.cancel()

    def give_back(self, taken: TakenMessage) -> None:
        """Unlock a message whose client has disconnected before the answer."""
        if taken.lock is not None:
            self._host.submit(Unlock([taken.lock]), UNHEARD)

    def deliver(self, want: MessageWant, taken: TakenMessages) -> None:
        """A turn that looked for a message is committed."""
        del want
        self._looked = True
        if self.done.done():
            self._host.give_back(taken)
        elif taken.error is not None:
            self.refuse(taken.error)
        elif taken.messages:
            stored = taken.messages[0]
            lock = None if taken.nonce is None else Lock(stored.id, taken.nonce)
            self.done.set_result(TakenMessage(stored, lock, taken.until_ms))
        elif self._late:
            self.done.set_result(None)
        else:
            self._want(answer_empty=False)

    def store_failed(self, error: TwinbusError) -> None:
        """The store has stopped."""
        self.refuse(error)

    def refuse(self, error: TwinbusError) -> None:
        """End with an error; a message that a turn is taking for it is unlocked."""
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
            # The turn that runs may have taken a message.
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
