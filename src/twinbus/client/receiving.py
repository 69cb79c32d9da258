"""Receiving on one link: credit, what has come, and the answers to settlements.

Rule: the server never holds more credit than the caller asked for, and `drain` takes
back what it did not use. So nothing is locked for a caller that has stopped waiting,
unless it asked for a prefetch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from twinbus.client.link import LiveLink
from twinbus.client.live import LiveConnection, remote_error
from twinbus.client.message import Message
from twinbus.client.transport.deadline import Deadline, answer
from twinbus.errors import DeadlineExceeded, OutcomeUnknown, RemoteError
from twinbus.wire.events import Answered, Delivered
from twinbus.wire.performatives import RELEASED, Rejected

_TOKEN_BYTES = 16


class Settling:
    """Deliveries that are settled together."""

    __slots__ = ("failures", "future", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.failures: dict[int, RemoteError] = {}
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = loop.create_future()

    def decide(self, place: int, failure: RemoteError | None) -> None:
        """One of them has its answer."""
        if failure is not None:
            self.failures[place] = failure
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)


class ReceiveLink(LiveLink):
    """A link on which messages come."""

    def __init__(self, live: LiveConnection) -> None:
        super().__init__(live)
        self.buffer: deque[Message] = deque()
        # Deliveries whose settlement has no answer yet: who waits, and for which.
        self._settling: dict[int, tuple[Settling, int]] = {}
        # Of those who wait for a change: a receive, and a close while it waits.
        self._waiters: set[asyncio.Future[None]] = set()
        # Credit that was taken back. So many messages may still be on their way.
        self.revoked = 0

    # -- messages ----------------------------------------------------------------------

    async def arrival(self, deadline: Deadline) -> bool:
        """Wait until something has come; False if nothing did in time."""
        while not self.buffer:
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            try:
                await self._change(deadline, "message")
            except DeadlineExceeded:
                return False
        return True

    def grant(self, credit: int) -> None:
        """Let the server send so many from now on."""
        self.link.grant(credit)
        self.live.flush_soon()

    def revoke(self) -> None:
        """Take the credit back; what is on its way still comes."""
        if self.failure is None and self.link.credit > 0:
            self.revoked = max(self.revoked, self.link.credit)
            self.grant(0)

    async def drain(self, deadline: Deadline) -> None:
        """Have the server send what it has now, and give back the rest of the credit.

        One that does not answer loses the link: its credit could not be trusted.
        """
        link = self.link
        link.drain = True
        self.grant(link.credit)
        try:
            while link.credit > 0 and self.failure is None:
                await self._change(deadline, "drain")
        except DeadlineExceeded:
            self.live.missed()
            self.drop("No drain in time.")
        finally:
            link.drain = False

    def take(self, count_max: int) -> list[Message]:
        """What has come, in order."""
        count = min(count_max, len(self.buffer))
        return [self.buffer.popleft() for _ in range(count)]

    async def _change(self, deadline: Deadline, stage: str) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await answer(waiter, deadline, stage)
        finally:
            self._waiters.discard(waiter)

    def _tell(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        # Each is told once, also if much comes before its task runs.
        self._waiters.clear()

    # -- settling ----------------------------------------------------------------------

    async def settle(
        self, messages: Sequence[Message], state: Any, deadline: Deadline
    ) -> dict[int, RemoteError]:
        """Settle messages of this link; returns the failures by their place."""
        settling = Settling(len({message.delivery_id for message in messages}))
        for place, message in enumerate(messages):
            self._settling[message.delivery_id] = (settling, place)
            # A link answers once. Who settles again asks `$management`.
            message.link = None
        session = self.link.session
        for first, last in _ranges(messages):
            session.dispose(first, last, False, state)
        self.live.flush_soon()
        try:
            await answer(settling.future, deadline, "settlement")
        except DeadlineExceeded as error:
            self.live.missed()
            for message in messages:
                held = self._settling.pop(message.delivery_id, None)
                if held is not None:
                    settling.failures[held[1]] = OutcomeUnknown(error)
        return settling.failures

    def release(self, messages: Sequence[Message]) -> None:
        """Give messages back uncounted; the server does not answer this."""
        session = self.link.session
        for first, last in _ranges(messages):
            session.dispose(first, last, True, RELEASED)
        self.live.flush_soon()

    # -- events ------------------------------------------------------------------------

    def on_delivered(self, delivery: Delivered) -> None:
        """A message came."""
        if delivery.settled:
            message = Message(delivery.payload)
        else:
            tag = delivery.tag
            lock = tag if len(tag) == _TOKEN_BYTES else None
            message = Message(delivery.payload, lock)
            message.link = self
            message.delivery_id = delivery.delivery_id
        self.buffer.append(message)
        if self._waiters:
            self._tell()

    def on_flow(self) -> None:
        """The server gave credit back."""
        self._tell()

    def on_answered(self, event: Answered) -> None:
        """The server has done what we said, or says why not."""
        failure: RemoteError | None = None
        state = event.state
        if isinstance(state, Rejected) and state.error is not None:
            failure = remote_error(state.error, "a settlement")
        for number in range(event.first, event.last + 1):
            held = self._settling.pop(number, None)
            if held is not None:
                held[0].decide(held[1], failure)

    def on_ended(self, failure: RemoteError) -> None:
        """Nothing more will come."""
        super().on_ended(failure)
        settling, self._settling = self._settling, {}
        for held, place in settling.values():
            held.decide(place, OutcomeUnknown(failure))
        self._tell()


def _ranges(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Delivery ids, neighbours together."""
    first = last = -1
    for message in messages:
        number = message.delivery_id
        if first >= 0 and number == last + 1:
            last = number
            continue
        if first >= 0:
            yield first, last
        first = last = number
    if first >= 0:
        yield first, last
