"""Locks of one backlog queue: those that the pump holds, and those that others hold.

Owns reading a delivery, lock times on the pump's own clock, and the search for messages
that another receiver has locked. The two clocks are never compared: the message that
came fastest tells how far the broker's "locked until" is ahead of ours, and all others
are measured by it.

A link that breaks leaves messages locked that never arrived, and so does a pump that
was killed, or one that left messages parked. They return when their locks end; until
then later ones must not overtake them. They show as gaps in the sequence numbers, and
only for one lock time after a new link; those gaps are browsed.

Knows nothing about what becomes of a message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from twinbus import limits
from twinbus.client.message import Message
from twinbus.client.receiver import Receiver
from twinbus.clock import Now
from twinbus.errors import RemoteError
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.syphon_rules import (
    DestinationStates,
    Held,
    SendToPrimary,
    decide,
)
from twinbus.wire.message.fast_delivery import Stamp, read_stamp


class Item:
    """A message in hand (`syphon_rules.Locked`)."""

    __slots__ = (
        "deliveries",
        "enqueued_ms",
        "locked_ms",
        "locked_until_ms",
        "message",
        "sequence",
        "to_send",
    )

    def __init__(self, message: Message, stamp: Stamp) -> None:
        self.message = message
        self.sequence, self.enqueued_ms, _, self.deliveries = stamp
        # By the pump's clock: when it was locked, or its lock renewed, and when that
        # lock ends at the latest.
        self.locked_ms = 0
        self.locked_until_ms = 0
        # What is sent, and where to.
        self.to_send: SendToPrimary

    def lock(self, locked_ms: int, lock_ms: int) -> None:
        """It is locked since then."""
        self.locked_ms = locked_ms
        self.locked_until_ms = locked_ms + lock_ms

    def lose(self) -> None:
        """The lock is gone; the message comes again by itself."""
        self.locked_ms = 0


class LockTimes:
    """What is known about the locks of one backlog queue."""

    def __init__(self, lock_seconds: float) -> None:
        # What the queue should have, or what its messages say if that is more.
        self.longest_ms = self._usual_ms = int(lock_seconds * 1000)
        # How far the ends of new locks are ahead of our clock: the lock's time and the
        # difference of the two clocks, less the shortest time on the way.
        self._ahead_ms: int | None = None

    @property
    def shortest_ms(self) -> int:
        """How long a lock holds at least, if the clocks agree; never too much."""
        ahead_ms = self._ahead_ms or 0
        return min(max(ahead_ms, limits.LOCK_MS_MIN), self._usual_ms)

    def item(self, message: Message, now_ms: int) -> Item:
        """A message that just came, as an item."""
        stamp = read_stamp(message.payload) or _stamp(message, now_ms)
        until_ms = stamp.locked_until_ms
        ahead_ms = until_ms - now_ms
        if self._ahead_ms is None or ahead_ms > self._ahead_ms:
            self._ahead_ms = ahead_ms
            # No queue has more, whatever the clocks say.
            said_ms = min(ahead_ms, limits.LOCK_MS_MAX)
            self.longest_ms = max(self._usual_ms, said_ms)
        item = Item(message, stamp)
        oldest_ms = now_ms - self.longest_ms
        locked_ms = until_ms - self._ahead_ms
        if locked_ms < oldest_ms:
            # Older than its lock it cannot be: the server's clock was set back. This
            # one may be as old, and those after it are measured anew.
            locked_ms, self._ahead_ms = oldest_ms, ahead_ms
        item.lock(locked_ms, self.longest_ms)
        return item

    def holding_since_ms(self, now_ms: int) -> int:
        """Locks that are younger than this hold, and for a moment more."""
        return now_ms - self.shortest_ms + limits.LOCK_MARGIN_MS

    @property
    def renew_ms(self) -> int:
        """After how long a lock is renewed."""
        return self.shortest_ms // 3


def _stamp(message: Message, now_ms: int) -> Stamp:
    """What another kind of broker wrote. One without a lock time has locked it now."""
    return Stamp(
        message.sequence_number,
        message.enqueued_ms or 0,
        message.locked_until_ms or now_ms,
        message.delivery_count,
    )


# A service that does not let one browse cannot be asked at all.
_NOT_HERE = frozenset((Failure.REFUSED, Failure.MESSAGE))


class Gaps:
    """Looks for messages of one backlog queue that are away."""

    def __init__(
        self,
        receiver: Receiver,
        states: DestinationStates,
        locks: LockTimes,
        hand: Collection[Item],
        ttl_rule: str,
    ) -> None:
        self._receiver = receiver
        self._ttl_rule = ttl_rule
        # What is locked by the pump itself.
        self._hand = hand
        self._states = states
        self._locks = locks
        # The link that brought the last message, and until when locks of others than
        # that link may hold.
        self._link: object = None
        self._until_ms = 0
        # The highest number that came on that link.
        self._last = 0

    async def look(self, items: Sequence[Item], now: Now) -> None:
        """Note what is missing among these, which just came in this order."""
        now_ms = now.steady_ms
        link = items[-1].message.link
        if link is not self._link:
            self._link = link
            self._until_ms = now_ms + self._locks.longest_ms
            # What was on its way on the old link may be as old as can be.
            self._last = 0
        if now_ms >= self._until_ms:
            return
        for item in items:
            if item.sequence > self._last:
                if item.sequence > self._last + 1:
                    await self._browse(self._last + 1, item.sequence, now.wall_ms)
                self._last = item.sequence

    async def _browse(self, first: int, end: int, wall_ms: int) -> None:
        # Mostly there is nothing, and the first message that is shown is our own.
        count = 1
        while first < end:
            try:
                found = await self._receiver.peek(count, first)
            except RemoteError as error:
                if kind_of(error) in _NOT_HERE:
                    return
                raise
            ours = {item.sequence for item in self._hand}
            for message in found:
                number = message.sequence_number
                if number >= end:
                    return
                # It may return at any moment, so it is waited for if it is alive now.
                outcome = decide(message.payload, wall_ms, self._ttl_rule)
                if isinstance(outcome, SendToPrimary) and number not in ours:
                    self._states.away(outcome.key, Held(number, self._until_ms))
                first = number + 1
            if not found:
                return
            count = limits.PEEK_MESSAGES_MAX
