"""`twinbus syphon --dry-run`: what would move where, and what it would cost.

Browses the backlog queues and asks the syphon's own rules about every message. Changes
nothing. An operation is a message of up to 64 KB that is received or sent; a larger one
counts as several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinbus.cli.backlog_queues import browse
from twinbus.clock import SystemClock
from twinbus.pairing.syphon_rules import DeadLetter, SendHome, decide
from twinbus.spark.syphon_backlog import Backlog, is_active

if TYPE_CHECKING:
    from twinbus.client.message import Message
    from twinbus.spark.syphon_source import SyphonJob

OPERATION_BYTES = 64 * 1024


@dataclass(slots=True)
class Forecast:
    """What would happen to the messages of one backlog queue for one entity."""

    index: int
    destination: str
    messages: int = 0
    bytes: int = 0
    operations: int = 0
    # What the rules say: `move`, `drop`, or why it would be dead-lettered.
    fate: str = "move"


@dataclass(slots=True)
class _Forecasts:
    by_kind: dict[tuple[int, str, str], Forecast] = field(default_factory=dict)

    def add(self, index: int, message: Message, now_ms: int, ttl_rule: str) -> None:
        """Count one message."""
        outcome = decide(message.payload, now_ms, ttl_rule)
        destination, fate, operations = "-", "drop", _operations(message.payload)
        if isinstance(outcome, SendHome):
            destination, fate = outcome.path, "move"
            operations += _operations(outcome.payload)
        elif isinstance(outcome, DeadLetter):
            fate = f"dead-letter: {outcome.reason}"
        key = index, destination, fate
        found = self.by_kind.setdefault(key, Forecast(index, destination, fate=fate))
        found.messages += 1
        found.bytes += len(message.payload)
        found.operations += operations


def _operations(payload: bytes) -> int:
    return max(-(-len(payload) // OPERATION_BYTES), 1)


async def forecast(
    job: SyphonJob, indexes: list[int], advance: Callable[[int], None]
) -> list[Forecast]:
    """Look at every message of these backlog queues."""
    settings = job.settings
    now_ms = SystemClock().now_ms()
    found = _Forecasts()
    async with job.secondary.connection() as connection:
        backlog = Backlog(connection, settings.primary)
        for index in indexes:
            async for message in browse(connection, backlog.path(index)):
                if is_active(message):
                    found.add(index, message, now_ms, settings.ttl_rule)
                    advance(1)
    return [found.by_kind[key] for key in sorted(found.by_kind)]


def summary(forecasts: list[Forecast]) -> dict[str, Any]:
    """All of it in a few numbers."""
    moving = [each for each in forecasts if each.fate == "move"]
    return {
        "messages": sum(each.messages for each in forecasts),
        "would_move": sum(each.messages for each in moving),
        "would_be_dead_lettered": sum(
            each.messages for each in forecasts if each.fate.startswith("dead")
        ),
        "bytes": sum(each.bytes for each in forecasts),
        "operations": sum(each.operations for each in forecasts),
    }
