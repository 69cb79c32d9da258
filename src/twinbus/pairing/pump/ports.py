"""What goes into a pump and what comes out: settings, journal and counts.

Owns the form of the settings, of a journal, and of the counters of one pump and of one
destination with their sum over several pumps. Counters are plain numbers and texts, so
that they can cross processes and be printed as they are. Knows nothing about how a pump
works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

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
    # Wait for messages that somebody else has locked, if others for the same entity are
    # behind them. False where several pumps share a queue on purpose.
    keeps_order: bool = True
    # The lock time of the queue, or more.
    lock_seconds: float = 60.0
    # What one send may take.
    send_seconds: float = limits.ATTEMPT_MS_MAX / 1000
    # What a pump that stops waits for answers.
    stop_seconds: float = limits.SYPHON_STOP_SECONDS
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    # Called with every event. What it raises is the caller's own fault.
    on_event: Callable[[PairingEvent], object] = lambda _event: None


# A destination that takes messages. One that rests says why instead.
TAKES = "ok"


@dataclass(slots=True)
class DestinationCounts:
    """One entity of the primary."""

    moved: int = 0
    moved_bytes: int = 0
    # `ok`, or why it rests: `away`, `busy`, `full`, `no access`.
    state: str = TAKES


@dataclass(slots=True)
class PumpCounts:
    """One backlog queue, or several added up."""

    # Receives that were asked for, empty ones included: what the service charges.
    receives: int = 0
    # Messages that came, and how many of them had come before.
    received: int = 0
    redelivered: int = 0
    # Accepted by their destinations.
    moved: int = 0
    moved_bytes: int = 0
    # Completed without a send: the journal knew them.
    skipped: int = 0
    # Pings that were dropped.
    pings: int = 0
    # How often a message was left locked for a destination that rests; `resting` is how
    # many are left locked now.
    parked: int = 0
    resting: int = 0
    # Sent, and nobody knows whether they were accepted: they are sent again.
    unknown: int = 0
    # Moved, but not completed as far as is known: they may be delivered once more.
    late: int = 0
    # By reason.
    dead_lettered: dict[str, int] = field(default_factory=dict)
    # By path, as it was first spelt.
    destinations: dict[str, DestinationCounts] = field(default_factory=dict)

    def add(self, other: PumpCounts) -> None:
        """Add what another pump has done."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.dead_lettered.items():
            self.dead_lettered[reason] = self.dead_lettered.get(reason, 0) + count
        for path, theirs in other.destinations.items():
            ours = self.destinations.setdefault(path, DestinationCounts())
            ours.moved += theirs.moved
            ours.moved_bytes += theirs.moved_bytes
            if theirs.state != TAKES:
                ours.state = theirs.state

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


_NUMBERS = (
    "receives",
    "received",
    "redelivered",
    "moved",
    "moved_bytes",
    "skipped",
    "pings",
    "parked",
    "resting",
    "unknown",
    "late",
)


def total(counts: Iterable[PumpCounts]) -> PumpCounts:
    """The sum of several pumps."""
    result = PumpCounts()
    for each in counts:
        result.add(each)
    return result
