"""What a pair tells the application that it belongs to.

Owns the kinds of events and the form of one. An event is a fact that has happened: it
says what, to which entity or queue, when and why, and never asks for anything. Knows
nothing about who listens, or about metrics and logs; `level` and `text` serve both.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any


class EventKind(enum.Enum):
    """What happened; the value is the word in logs and metrics."""

    SUSPECT = "suspect"
    RECOVERED = "recovered"
    FAILED_OVER = "failed over"
    PING_FAILED = "ping failed"
    PING_ACCEPTED = "ping accepted"
    FAILED_BACK = "failed back"
    RELAPSED = "relapsed"
    REFUSED = "refused"
    BACKLOG_QUEUE_OUT = "backlog queue out"
    BACKLOG_QUEUE_IN = "backlog queue in"
    BACKLOG_QUEUE_MISSING = "backlog queue missing"
    MESSAGE_TOO_LARGE = "message too large for the backlog"
    BACKLOG_STAYS = "backlog stays"
    SYPHON_PROGRESS = "syphon progress"
    SYPHON_BACKS_OFF = "syphon backs off"
    SECONDARY_AWAY = "secondary away"
    SECONDARY_BACK = "secondary back"
    OUTBOX_IN = "outbox in"
    OUTBOX_OUT = "outbox out"
    OUTBOX_BACKS_OFF = "outbox backs off"
    OUTBOX_CLOSED = "outbox closed"
    FAULTED = "faulted"


# What a person should look at. Everything else is information.
_WARNINGS = frozenset(
    {
        EventKind.SUSPECT,
        EventKind.FAILED_OVER,
        EventKind.PING_FAILED,
        EventKind.RELAPSED,
        EventKind.REFUSED,
        EventKind.BACKLOG_QUEUE_OUT,
        EventKind.BACKLOG_QUEUE_MISSING,
        EventKind.MESSAGE_TOO_LARGE,
        EventKind.BACKLOG_STAYS,
        EventKind.SYPHON_BACKS_OFF,
        EventKind.SECONDARY_AWAY,
        EventKind.OUTBOX_IN,
        EventKind.OUTBOX_BACKS_OFF,
    }
)


@dataclass(frozen=True, slots=True)
class PairingEvent:
    """One fact. `path` is an entity of the primary, or a backlog queue."""

    kind: EventKind
    path: str
    at_ms: int
    cause: BaseException | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def level(self) -> str:
        """The name of the log level that fits."""
        if self.kind is EventKind.FAULTED:
            return "ERROR"
        return "WARNING" if self.kind in _WARNINGS else "INFO"

    @property
    def text(self) -> str:
        """One line for a log. The cause is named, and says itself what was wrong."""
        line = f"{self.path}: {self.kind.value}"
        line += "".join(f" {name}={value}" for name, value in self.details.items())
        if self.cause is not None:
            line += f" ({type(self.cause).__name__}: {self.cause})"
        return line
