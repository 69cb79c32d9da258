"""What a pair shows of itself, for dashboards and reports: plain data.

Owns the form of a status: entities, backlog queues, the outbox, and the counters of
pumps with their sums. Events say what has happened (`events.py`), a status says how
things stand. Numbers and texts only, so that a status can cross processes and be
printed as it is. Knows nothing about how messages are sent or moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

# -- entities and backlog queues -----------------------------------------------------


@dataclass(slots=True)
class EntityStatus:
    """What a dashboard shows of one entity."""

    path: str
    state: str = "healthy"
    # A ping is deciding whether the suspicion holds.
    deciding: bool = False
    since_ms: int | None = None
    timer_due_ms: int | None = None
    next_ping_ms: int | None = None
    held: int = 0
    counted_failures: int = 0
    failovers: int = 0
    # Failed over again on probation, before a send was accepted.
    relapses: int = 0
    diverted: int = 0
    pings: int = 0
    last_cause: str | None = None
    last_cause_ms: int | None = None

    @property
    def is_failed_over(self) -> bool:
        """Whether the entity has failed over, and no send was accepted since."""
        return self.state in ("failed over", "refused", "probation")


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What a dashboard shows of one backlog queue."""

    path: str
    index: int
    usable: bool
    probe_ms: int | None
    accepted: int
    last_cause: str | None


# -- pumps and the syphon ------------------------------------------------------------


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
    # Sent, and it is unknown whether they were accepted: they are sent again.
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


@dataclass(frozen=True, slots=True)
class SyphonStatus:
    """What a syphon is doing, for a dashboard."""

    running: bool
    # By the path of the backlog queue; grows from the start of the syphon.
    queues: dict[str, PumpCounts] = field(default_factory=dict)

    @property
    def total(self) -> PumpCounts:
        """All queues together."""
        return total(self.queues.values())


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """What a dashboard shows of the local outbox of a pair."""

    folder: str
    # Messages in it, and for how long the oldest has been there.
    messages: int
    oldest_seconds: float
    # Set aside in its dead-letter queue: their entity will never take them.
    dead_lettered: int
    # Since the pair was made: taken in, and moved to the primary or the backlog.
    accepted: int
    moved: int


# -- a pair --------------------------------------------------------------------------


@dataclass(slots=True)
class PairingStatus:
    """What a dashboard shows of a pair."""

    entities: list[EntityStatus] = field(default_factory=list)
    held: int = 0
    held_bytes: int = 0
    backlog_queues: list[QueueStatus] = field(default_factory=list)
    # What the syphon of this process is doing; None if it runs none.
    syphon: SyphonStatus | None = None
    # The local outbox; None if the pair has none.
    outbox: OutboxStatus | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return asdict(self)
