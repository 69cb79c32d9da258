"""What one task receives: chunks of locked messages, within the task's limits.

Owns how many to ask for. The first receive asks for one message and the next for more,
as the largest one so far allows, so that a chunk stays within some megabytes whatever
the size of messages. A task ends when the entity has nothing more, when it has its
share of the batch, or when its time is over. Sessions are taken one after the other,
each on a link that is held until its chunk is settled. Settles nothing itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

from twinbus import limits
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.sync.connection import Connection
from twinbus.client.sync.receiver import Receiver
from twinbus.errors import RemoteError, SessionCannotBeLocked, SessionLockLost
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.retry import is_transient

_log = logging.getLogger(__name__)


class Share(NamedTuple):
    """A task's part of a micro-batch."""

    epoch: int
    slice: int
    messages_max: int
    # The sessions to take; None for an entity that has none.
    sessions: tuple[str, ...] | None


class Chunk(NamedTuple):
    """Messages that are locked on a link."""

    receiver: Receiver
    messages: list[Message]


class Intake:
    """Receives a task's share."""

    def __init__(
        self, connection: Connection, path: str, share: Share, chunk: int, seconds: int
    ) -> None:
        self._connection = connection
        self._path = path
        self._share = share
        self._chunk = chunk
        self._until = time.monotonic() + seconds
        self._left = share.messages_max
        self._ask = 1
        self._largest = 1

    def have(self, count: int) -> None:
        """So many of the share are there already."""
        self._left -= count

    def chunks(self, *, kept: bool) -> Iterator[Chunk]:
        """Chunks as they come. `kept`: they stay locked, so each needs a new link.

        Should the namespace go away, the share ends here: a task that fails for that
        would be tried again at once, and a few times only. The driver waits instead.
        """
        try:
            yield from self._chunks(kept)
        except RemoteError as error:
            if not is_transient(error):
                raise
            _log.warning("The share ends early: %s", error)

    def _chunks(self, kept: bool) -> Iterator[Chunk]:
        if self._share.sessions is not None:
            for session_id in self._share.sessions:
                yield from self._session(session_id)
            return
        while not self._over():
            with self._connection.receiver(self._path) as receiver:
                for chunk in self._link(receiver):
                    yield chunk
                    if kept:
                        break
                else:
                    return

    def _session(self, session_id: str) -> Iterator[Chunk]:
        if self._over():
            return
        options = ReceiveOptions(session_id=session_id)
        with self._connection.receiver(self._path, options) as receiver:
            try:
                receiver.open()
                if receiver.peek(1):
                    yield from self._link(receiver)
            except RemoteError as error:
                # Another receiver has the session, or it was lost: its messages stay.
                if not _is_of_session(error):
                    raise

    def _link(self, receiver: Receiver) -> Iterator[Chunk]:
        while not self._over():
            messages = self._gather(receiver)
            if not messages:
                return
            self._left -= len(messages)
            yield Chunk(receiver, messages)

    def _gather(self, receiver: Receiver) -> list[Message]:
        """One chunk: receives until it has its size, or there is nothing more."""
        most = min(self._chunk, self._left)
        found: list[Message] = []
        size_bytes = 0
        while len(found) < most and size_bytes < limits.SOURCE_BATCH_BYTES:
            room = (limits.SOURCE_BATCH_BYTES - size_bytes) // self._largest
            ask = min(self._ask, most - len(found), max(room, 1))
            # It does not wait: the driver has seen that there is something.
            some = receiver.receive(ask, 0.0)
            found += some
            size_bytes += sum(len(each.payload) for each in some)
            if len(some) < ask:
                break
            self._learn(some)
        return found

    def _learn(self, messages: list[Message]) -> None:
        largest = max(len(each.payload) for each in messages)
        self._largest = max(self._largest, largest)
        fitting = max(1, limits.SOURCE_BATCH_BYTES // self._largest)
        ask = self._ask * limits.SOURCE_CHUNK_GROWTH
        self._ask = min(ask, fitting, self._chunk)

    def _over(self) -> bool:
        return self._left <= 0 or time.monotonic() >= self._until


def _is_of_session(error: RemoteError) -> bool:
    lost = (SessionCannotBeLocked.condition, SessionLockLost.condition)
    return error.condition in lost or kind_of(error) is Failure.TIMEOUT
