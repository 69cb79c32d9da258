"""`twinbus syphon --dry-run`: what would move where, and what it would cost.

Browses the backlog queues, asks the syphon's own rules about every message, and links
to every destination to learn whether it would take one. Changes nothing. An operation
is a message of up to 64 KB that is received or sent; a larger one counts as several.
What they cost at most is what a price book says for its dearest tiers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from twinbus import limits
from twinbus.cli.pair.backlog_queues import browse
from twinbus.clock import SystemClock
from twinbus.core.names import check_entity_path, strip_uri
from twinbus.cost.prices import PriceBook
from twinbus.cost.usage import Usage
from twinbus.errors import CallerError, RemoteError
from twinbus.ledger.schema import ACCEPTED, RECEIVE, SEND, SETTLE, size_class
from twinbus.pairing.rules.envelope import REASON_ALIAS
from twinbus.pairing.rules.syphon_rules import (
    DeadLetter,
    SendToPrimary,
    after_failure,
    decide,
)
from twinbus.spark.syphon_job.backlog import Backlog, is_active

if TYPE_CHECKING:
    from twinbus.client.connection import Connection
    from twinbus.client.message import Message
    from twinbus.spark.syphon_job.driver import SyphonJob

MOVE = "move"
_DEAD = "dead-letter: "
_WAIT = "wait: "


@dataclass(slots=True)
class Forecast:
    """What would happen to the messages of one backlog queue for one entity."""

    index: int
    destination: str
    messages: int = 0
    bytes: int = 0
    operations: int = 0
    # The part of the operations that are sends to the primary, and their bytes.
    sends: int = 0
    sent_bytes: int = 0
    # What the rules say: `move`, `drop`, why it would be dead-lettered, or why it
    # would have to wait.
    fate: str = MOVE


@dataclass(slots=True)
class _Forecasts:
    by_kind: dict[tuple[int, str, str], Forecast] = field(default_factory=dict)

    def add(self, index: int, message: Message, now_ms: int, ttl_rule: str) -> None:
        """Count one message."""
        outcome = decide(message.payload, now_ms, ttl_rule)
        destination, fate, sent = "-", "drop", b""
        if isinstance(outcome, SendToPrimary):
            destination, fate, sent = outcome.path, MOVE, outcome.payload
        elif isinstance(outcome, DeadLetter):
            fate = f"{_DEAD}{outcome.reason}"
        key = index, destination, fate
        found = self.by_kind.setdefault(key, Forecast(index, destination, fate=fate))
        found.messages += 1
        found.bytes += len(message.payload)
        found.sent_bytes += len(sent)
        sends = size_class(len(sent)) if sent else 0
        found.sends += sends
        found.operations += size_class(len(message.payload)) + sends


async def forecast(
    job: SyphonJob, indexes: list[int], advance: Callable[[int], None]
) -> list[Forecast]:
    """Look at every message of these backlog queues."""
    settings = job.settings
    now_ms = SystemClock().now().wall_ms
    found = _Forecasts()
    async with job.secondary.connection() as connection:
        backlog = Backlog(connection, settings.primary)
        for index in indexes:
            async for message in browse(connection, backlog.path(index)):
                if is_active(message):
                    found.add(index, message, now_ms, settings.ttl_rule)
                    advance(1)
    forecasts = [found.by_kind[key] for key in sorted(found.by_kind)]
    moving = [each for each in forecasts if each.fate == MOVE]
    async with job.primary.connection() as primary:
        for path in {each.destination for each in moving}:
            fate = await _fate_at(primary, path)
            for each in moving:
                if each.destination == path:
                    each.fate = fate
    return forecasts


async def _fate_at(primary: Connection, path: str) -> str:
    """What would become of a message for this entity."""
    try:
        check_entity_path(strip_uri(path), "x-ms-path")
        async with primary.sender(path) as sender:
            await sender.open(limits.CLI_NAMESPACE_SECONDS)
    except CallerError:
        return f"{_DEAD}{REASON_ALIAS}"
    except RemoteError as error:
        verdict = after_failure(path, error)
        if isinstance(verdict, DeadLetter):
            return f"{_DEAD}{verdict.reason}"
        return f"{_WAIT}{verdict.value}"
    return MOVE


def summary(forecasts: list[Forecast], book: PriceBook) -> dict[str, Any]:
    """All of it in a few numbers."""

    def count(fate: str) -> int:
        return sum(each.messages for each in forecasts if each.fate.startswith(fate))

    return {
        "messages": sum(each.messages for each in forecasts),
        "would_move": count(MOVE),
        "would_wait": count(_WAIT),
        "would_be_dead_lettered": count(_DEAD),
        "bytes": sum(each.bytes for each in forecasts),
        "operations": sum(each.operations for each in forecasts),
        "money_at_most": str(book.at_most(_usage(forecasts))),
        "currency": book.currency,
        "prices": book.name,
    }


def _usage(forecasts: list[Forecast]) -> Usage:
    """What it takes to move these: each is received, sent and completed."""
    sends = sum(each.sends for each in forecasts)
    receives = sum(each.operations for each in forecasts) - sends
    charges = {
        (RECEIVE, ACCEPTED): receives,
        (SEND, ACCEPTED): sends,
        (SETTLE, ACCEPTED): sum(each.messages for each in forecasts),
    }
    return Usage(
        Fraction(0),
        charges,
        bytes_in=sum(each.sent_bytes for each in forecasts),
        bytes_out=sum(each.bytes for each in forecasts),
    )
