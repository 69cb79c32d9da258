"""What a pump tells the backlog queue: complete, dead-letter, abandon, renew.

Owns the form of the journal, the order of receipt and complete, and what happens when
the queue does not answer. A complete without an answer is repeated by lock token for as
long as the lock holds, because each one that fails is a message that is sent twice.
Requests by token succeed for all or for none, so one that fails for a lost lock is
halved until that lock is alone. Knows nothing about destinations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from twinbus import limits
from twinbus.client.message import Message
from twinbus.client.receiver import Receiver
from twinbus.errors import RemoteError, SettleRefused
from twinbus.pairing.pump.locks import Item, LockTimes
from twinbus.pairing.rules.retry import SEND_BACKOFF, halves, is_transient
from twinbus.pairing.rules.syphon_rules import DeadLetter
from twinbus.pairing.status import PumpCounts

if TYPE_CHECKING:
    from twinbus.pairing.pump.pump import PumpSettings


class Receipt(NamedTuple):
    """A message that its destination has accepted.

    Number and time name the message for good, also if the queue is deleted and made
    again, which starts its numbers anew.
    """

    # Its number in the backlog queue, and when that took it.
    sequence: int
    enqueued_ms: int
    # The entity that it went to.
    path: str
    # Its size there.
    size_bytes: int


class Journal(Protocol):
    """Remembers what was sent, over the end of a process. One for each queue."""

    def sent_before(self, sequence: int, enqueued_ms: int) -> bool:
        """Whether there is a receipt for this message of the queue.

        Asked only for messages that were delivered before. True: it is completed and
        not sent again.
        """

    async def record(self, receipts: Sequence[Receipt]) -> None:
        """Keep these; durable when it returns.

        Called between "accepted by the primary" and "complete in the backlog". What it
        raises ends the pump: nothing is completed without a receipt.
        """


class Settler:
    """Settles the messages of one backlog queue, as many at once as there are."""

    def __init__(
        self,
        receiver: Receiver,
        locks: LockTimes,
        settings: PumpSettings,
        counts: PumpCounts,
        gone: Callable[[Sequence[Item]], None],
    ) -> None:
        self._receiver = receiver
        self._locks = locks
        self._settings = settings
        self._counts = counts
        # Called with what is no longer in hand.
        self._gone = gone
        self._accepted: list[Item] = []
        self._done: list[Item] = []
        self._dead: dict[DeadLetter, list[Item]] = {}
        self._back: list[Item] = []

    # -- what there is to settle -------------------------------------------------------

    def accepted(self, items: Sequence[Item]) -> None:
        """Their destination has them: write receipts, then complete."""
        self._accepted.extend(items)

    def done(self, items: Sequence[Item]) -> None:
        """There is nothing to send: complete."""
        self._done.extend(items)

    def dead(self, items: Sequence[Item], verdict: DeadLetter) -> None:
        """They can never be sent: dead-letter."""
        self._dead.setdefault(verdict, []).extend(items)

    def back(self, items: Sequence[Item]) -> None:
        """They go to the next receiver: abandon."""
        self._back.extend(items)

    @property
    def has_work(self) -> bool:
        """Whether anything is left to settle."""
        return bool(self._accepted or self._done or self._dead or self._back)

    async def work(self, journal: Journal | None) -> None:
        """Settle until nothing is left. Raises only what the journal raises."""
        while self.has_work:
            accepted, self._accepted = self._accepted, []
            done, self._done = self._done, []
            dead, self._dead = self._dead, {}
            back, self._back = self._back, []
            if accepted and journal is not None:
                await journal.record([_receipt(item) for item in accepted])
            await self._complete([*accepted, *done])
            for verdict, items in dead.items():
                await self._dead_letter(items, verdict)
            await self.abandon(back)

    # -- how ---------------------------------------------------------------------------

    async def _complete(self, items: list[Item]) -> None:
        attempts = 0
        while items:
            # Neighbours are settled with one frame.
            items.sort(key=_delivery_id)
            failures = await self._settle(items, self._receiver.complete)
            since_ms = self._locks.holding_since_ms(self._now)
            again = [
                item
                for item, error in failures.items()
                if is_transient(error) and item.locked_ms > since_ms
            ]
            self._counts.late += len(failures) - len(again)
            kept = set(again)
            self._gone([item for item in items if item not in kept])
            items = again
            if items:
                attempts += 1
                await self._settings.sleep(SEND_BACKOFF.pause_ms(attempts) / 1000)

    async def _dead_letter(self, items: list[Item], verdict: DeadLetter) -> None:
        async def dead_letter(messages: Sequence[Message]) -> None:
            await self._receiver.dead_letter(
                messages, verdict.reason, verdict.description
            )

        failures = await self._settle(items, dead_letter)
        # The others are delivered again, and dead-lettered then.
        moved = len(items) - len(failures)
        if moved:
            found = self._counts.dead_lettered
            found[verdict.reason] = found.get(verdict.reason, 0) + moved
        self._gone(items)

    async def abandon(self, items: list[Item]) -> None:
        """Give these back at once; what fails returns when its lock ends."""
        await self._settle(items, self._receiver.abandon)
        self._gone(items)

    async def renew(self, items: Sequence[Item]) -> None:
        """Move the ends of these locks, and note which are lost."""
        asked_ms = self._now

        async def renew(messages: Sequence[Message]) -> None:
            await self._receiver.renew(messages, self._locks.renew_ms / 1000)

        for first in range(0, len(items), limits.SYPHON_SETTLE_TOKENS_MAX):
            part = list(items[first : first + limits.SYPHON_SETTLE_TOKENS_MAX])
            failures = await self._halving(part, renew)
            for item in part:
                error = failures.get(item)
                if error is None:
                    item.lock(asked_ms, self._locks.longest_ms)
                elif not is_transient(error):
                    item.lose()

    async def _settle(
        self,
        items: list[Item],
        call: Callable[[Sequence[Message]], Awaitable[None]],
    ) -> dict[Item, BaseException]:
        """Settle on the link that brought them, or by token if that is gone."""
        direct: list[Item] = []
        by_token: list[Item] = []
        for item in items:
            link = item.message.link
            is_there = link is not None and link.failure is None
            (direct if is_there else by_token).append(item)
        failures: dict[Item, BaseException] = {}
        if direct:
            failures = await _call(direct, call)
        for first in range(0, len(by_token), limits.SYPHON_SETTLE_TOKENS_MAX):
            part = by_token[first : first + limits.SYPHON_SETTLE_TOKENS_MAX]
            failures.update(await self._halving(part, call))
        return failures

    async def _halving(
        self,
        items: list[Item],
        call: Callable[[Sequence[Message]], Awaitable[None]],
    ) -> dict[Item, BaseException]:
        """A request that does all or nothing, until each has its own answer."""
        failures = await _call(items, call)
        errors = failures.values()
        if len(items) == 1 or any(map(is_transient, errors)):
            return failures
        if not failures:
            return {}
        first, second = await asyncio.gather(
            *(self._halving(part, call) for part in halves(items))
        )
        return first | second

    @property
    def _now(self) -> int:
        return self._settings.clock.now_ms()


async def _call(
    items: list[Item], call: Callable[[Sequence[Message]], Awaitable[None]]
) -> dict[Item, BaseException]:
    """Ask once for all; returns what failed."""
    try:
        await call([item.message for item in items])
    except SettleRefused as error:
        return {items[at]: failure for at, failure in error.failures.items()}
    except RemoteError as error:
        return dict.fromkeys(items, error)
    return {}


def _delivery_id(item: Item) -> int:
    return item.message.delivery_id


def _receipt(item: Item) -> Receipt:
    to_send = item.to_send
    size_bytes = len(to_send.payload)
    return Receipt(item.sequence, item.enqueued_ms, to_send.path, size_bytes)
