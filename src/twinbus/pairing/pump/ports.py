"""What goes into a pump: its settings, and a journal if there is one.

Owns the forms of both; what a pump counts is in `pairing/status.py`. Knows nothing
about how a pump works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from twinbus import limits
from twinbus.clock import Clock, SystemClock
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.rules.syphon_rules import TTL_REMAINING


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


@dataclass(frozen=True, slots=True)
class PumpSettings:
    """How to pump; one object serves all pumps of a process."""

    # Messages of one receive. Twice as many may be in hand.
    chunk: int = limits.SYPHON_CHUNK_MESSAGES
    # What happens to a time to live: `remaining` or `restart`.
    ttl_rule: str = TTL_REMAINING
    # Wait for messages that another receiver has locked, if others for the same entity
    # are behind them. False where several pumps share a queue on purpose.
    keeps_order: bool = True
    # The lock time of the queue, or more.
    lock_seconds: float = limits.BACKLOG_LOCK_SECONDS
    # What one send may take.
    send_seconds: float = limits.ATTEMPT_MS_MAX / 1000
    # What a pump that stops waits for answers.
    stop_seconds: float = limits.SYPHON_STOP_SECONDS
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    # Called with every event. What it raises is the caller's own fault.
    on_event: Callable[[PairingEvent], object] = lambda _event: None
