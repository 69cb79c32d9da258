"""Messages that somebody else holds: order is kept around them.

A link that breaks leaves messages locked that never arrived, and so does a pump that
was killed, or one that left messages parked. They return when their locks end; until
then later ones must not overtake them. They show as gaps in the numbers of what comes,
and only for one lock time after a new link; those gaps are looked into, by browsing.
Owns that look. Knows nothing about links beyond whether it is still the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from twinbus import limits
from twinbus.client.receiver import Receiver
from twinbus.errors import RemoteError
from twinbus.pairing.pump.item import Item, LockTimes
from twinbus.pairing.rules.classification import Kind, kind_of
from twinbus.pairing.rules.syphon_rules import Held, Lanes, SendHome, decide

# A service that does not let one browse cannot be asked at all.
_NOT_HERE = frozenset((Kind.REFUSED, Kind.MESSAGE))


class Gaps:
    """Looks for messages of one backlog queue that are away."""

    def __init__(
        self,
        receiver: Receiver,
        lanes: Lanes,
        locks: LockTimes,
        hand: Collection[Item],
    ) -> None:
        self._receiver = receiver
        # What is locked by the pump itself.
        self._hand = hand
        self._lanes = lanes
        self._locks = locks
        # The link that brought the last message, and until when locks of others than
        # that link may hold.
        self._link: object = None
        self._until_ms = 0
        # The highest number that came on that link.
        self._last = 0

    async def look(self, items: Sequence[Item], now_ms: int) -> None:
        """Note what is missing among these, which just came in this order."""
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
                    await self._browse(self._last + 1, item.sequence)
                self._last = item.sequence

    async def _browse(self, first: int, end: int) -> None:
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
                outcome = decide(message.payload, self._until_ms)
                if isinstance(outcome, SendHome) and number not in ours:
                    self._lanes.away(outcome.key, Held(number, self._until_ms))
                first = number + 1
            if not found:
                return
            count = limits.PEEK_MESSAGES_MAX
