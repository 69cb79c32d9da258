"""A receive over HTTP: one message, waited for.

Owns the wait: the container is looked at once at least, then until the timeout ends or
the client disconnects. A message is locked in a turn and answered after its commit, as
on a link. A message that was locked for a client that has disconnected is unlocked
without counting the delivery; in receive-and-delete mode it is lost, as that mode says.
At a partitioned entity it waits at all fragments, and the first that gives a message
wins. What others have locked meanwhile is unlocked; so that nothing is lost, messages
are locked there in receive-and-delete mode too, and the winner is deleted then.
Knows nothing about HTTP: the result is a message, None, or an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twinbus import limits
from twinbus.errors import BusyError, LockLost, TwinbusError
from twinbus.server.broker.commands import MessageWant, TakenMessages, Unlock
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.submissions import UNHEARD
from twinbus.server.broker.turn import Room, Turn
from twinbus.store.base import Lock, Stored

# One message has room; a request reads no more than that.
_ROOM = Room()


class TakenMessage(NamedTuple):
    """A message that was received; without a lock it is deleted."""

    stored: Stored
    lock: Lock | None
    until_ms: int
    # Of the fragment that it comes from (`Entity.number_base`).
    number_base: int


@dataclass(slots=True, eq=False)
class ReceivePlace:
    """Where a receive waits: an entity, or a fragment of a partitioned one."""

    host: Host
    entity: Entity
    container: int
    key: int | None = None
    # Whether a turn has looked for a message.
    looked: bool = False


class PendingReceive:
    """A receiver of one message (`host.Consumer`)."""

    def __init__(self, places: Sequence[ReceivePlace], lock: bool) -> None:
        self.done: asyncio.Future[TakenMessage | None] = asyncio.Future()
        self._places = places
        self._locks = lock
        self._late = False
        # Whether a message is being deleted for it.
        self._won = False
        # Turns that may still bring a message after the timeout.
        self._ending: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _accepting(self) -> list[ReceivePlace]:
        return [place for place in self._places if place.host.fault is None]

    def open(self, wait_seconds: float) -> None:
        """Start to wait; `done` gets the result."""
        if self._refuse_stopped():
            return
        self._start_timer(wait_seconds)
        for place in self._places:
            place.key = place.host.add_consumer(place.container, self)
            # The timeout may end before the first look, which then decides.
            self._want(place, answer_empty=True)

    def _want(self, place: ReceivePlace, *, answer_empty: bool) -> None:
        if place.key is not None:
            alone = len(self._places) == 1
            place.host.want(
                MessageWant(
                    place.key,
                    place.container,
                    place.entity,
                    _ROOM,
                    1,
                    deletes=alone and not self._locks,
                    answer_empty=answer_empty,
                )
            )

    def close(self) -> None:
        """Stop waiting; a message that a turn is taking for it is unlocked."""
        if self._timer is not None:
            self._timer.cancel()
        self._leave()
        if not self.done.done():
            self.done.cancel()

    def _leave(self) -> None:
        """Let nothing more be taken at any place."""
        for place in self._places:
            key, place.key = place.key, None
            if key is not None:
                place.host.remove_consumer(place.container, key)

    def give_back(self, taken: TakenMessage) -> None:
        """Unlock a message whose client has disconnected before the answer."""
        if taken.lock is not None:
            for place in self._places:
                if place.entity.number_base == taken.number_base:
                    place.host.submit(Unlock([taken.lock]), UNHEARD)

    def deliver(self, want: MessageWant, taken: TakenMessages) -> None:
        """A turn that looked for a message is committed."""
        place = next(each for each in self._places if each.entity is want.entity)
        place.looked = True
        if self.done.done():
            place.host.give_back(taken)
        elif taken.error is not None:
            self.refuse(taken.error)
        elif taken.messages:
            self._take(place, taken)
        elif self._late and all(each.looked for each in self._accepting):
            self.done.set_result(None)
        elif not self._late:
            self._want(place, answer_empty=False)

    def _take(self, place: ReceivePlace, taken: TakenMessages) -> None:
        stored = taken.messages[0]
        lock = None if taken.nonce is None else Lock(stored.id, taken.nonce)
        base = place.entity.number_base
        found = TakenMessage(stored, lock, taken.until_ms, base)
        if lock is None or self._locks:
            self.done.set_result(found)
            return
        self._won = True
        self._leave()
        deleted = _Deleted(self.done, found._replace(lock=None))
        place.host.submit(_Delete(lock), deleted)

    def store_failed(self, error: TwinbusError) -> None:
        """A store has stopped; others may go on."""
        del error
        self._refuse_stopped()

    def _refuse_stopped(self) -> bool:
        """End if no place accepts anything; the others go on when they accept again."""
        fault = self._places[0].host.fault
        if fault is None or self._accepting:
            return False
        self.refuse(fault)
        return True

    def refuse(self, error: TwinbusError) -> None:
        """End with an error; a message that a turn is taking for it is unlocked."""
        if not self.done.done():
            self.done.set_exception(error)

    # -- time ------------------------------------------------------------------------

    def _start_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self.done.done() or self._won or self._refuse_stopped():
            return
        accepting = self._accepting
        if self._ending is None and all(place.looked for place in accepting):
            self._ending = len(accepting)
            for place in accepting:
                if place.key is not None:
                    place.host.unwant(place.container, place.key)
                # The turn that runs may have taken a message.
                place.host.after_turn(self._end)
            if len(self._places) == 1:
                return
        elif self._late:
            self._give_up_late()
            return
        self._late = True
        self._start_timer(limits.REST_LOOK_SECONDS_MAX)

    def _give_up_late(self) -> None:
        """A turn takes too long; what it takes is unlocked."""
        if any(place.looked for place in self._places):
            self.done.set_result(None)
        else:
            self.refuse(BusyError())

    def _end(self) -> None:
        assert self._ending is not None
        self._ending -= 1
        if not self._ending and not self.done.done() and not self._won:
            self.done.set_result(None)


class _Delete:
    """Delete a message that was locked for a receiver (`turn.Command`)."""

    __slots__ = ("_lock",)

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __call__(self, namespace: Namespace, turn: Turn) -> None:
        if not all(namespace.store.complete([self._lock], turn.now)):
            raise LockLost


class _Deleted:
    """Ends a receive when its message is deleted (`host.Reply`)."""

    __slots__ = ("_done", "_taken")

    def __init__(
        self, done: asyncio.Future[TakenMessage | None], taken: TakenMessage
    ) -> None:
        self._done = done
        self._taken = taken

    def done(self, result: None) -> None:
        """It is gone: only this receiver has it."""
        del result
        if not self._done.done():
            self._done.set_result(self._taken)

    def failed(self, error: TwinbusError) -> None:
        """It is there still, and is unlocked when its lock ends."""
        if not self._done.done():
            self._done.set_exception(error)
