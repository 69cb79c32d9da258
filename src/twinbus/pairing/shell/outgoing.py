"""What one call of send has to bring across, and what of it is still to be accepted.

Owns the two ways: to the entity of the primary, and, with aliases, to a backlog queue.
Several messages may be accepted in part, and then only the rest is tried again. Knows
nothing about states, nor about which way is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from twinbus.client.management import Management
from twinbus.client.outcome import Outcome
from twinbus.client.sender import Sender
from twinbus.errors import SendRefused
from twinbus.pairing.rules import envelope
from twinbus.pairing.rules.packing import check_size, with_scheduled_time


class Outgoing:
    """Encoded messages on their way: one, or several."""

    __slots__ = ("largest_bytes", "messages")

    def __init__(self, messages: bytes | list[bytes]) -> None:
        self.messages = messages
        # The size of the largest.
        self.largest_bytes = (
            len(messages) if isinstance(messages, bytes) else max(map(len, messages))
        )

    @property
    def size_bytes(self) -> int:
        """What they need while they wait."""
        if isinstance(self.messages, bytes):
            return len(self.messages)
        return sum(map(len, self.messages))

    def each(self) -> Sequence[bytes]:
        """One by one."""
        return (self.messages,) if isinstance(self.messages, bytes) else self.messages

    def submit(self, sender: Sender, seconds: float) -> Outcome:
        """Put them on their way to the primary."""
        return sender.submit(self.messages, seconds)

    def failed(self, error: BaseException) -> None:
        """They were not accepted, or not all of them."""
        if isinstance(error, SendRefused):
            self.messages = [self.each()[place] for place in sorted(error.failures)]

    def diverted(self, path: str, now_ms: int, limit_bytes: int) -> list[bytes]:
        """As a backlog queue takes them; raises `MessageTooLargeForBacklog`."""
        diverted = [envelope.divert(each, path, now_ms) for each in self.each()]
        for message in diverted:
            check_size(message, path, limit_bytes)
        return diverted


class Scheduled(Outgoing):
    """Messages for a later time. The primary alone gives numbers to cancel them by."""

    __slots__ = ("_management", "numbers")

    def __init__(
        self, messages: Sequence[bytes], time_ms: int, management: Management
    ) -> None:
        super().__init__([with_scheduled_time(each, time_ms) for each in messages])
        self._management = management
        self.numbers: list[int | None] = [None] * len(messages)

    def submit(self, sender: Sender, seconds: float) -> Outcome:
        del sender
        outcome = Outcome()
        task = asyncio.ensure_future(self._schedule(seconds))

        def take_back(future: asyncio.Future[None]) -> None:
            if future.cancelled():
                task.cancel()

        def end(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                outcome.end(task.exception())

        task.add_done_callback(end)
        outcome.future.add_done_callback(take_back)
        return outcome

    async def _schedule(self, seconds: float) -> None:
        self.numbers[:] = await self._management.schedule(self.each(), seconds)
