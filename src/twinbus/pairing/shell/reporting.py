"""Events of a pair, reported to its secondary for the console there.

Owns the form of a report: a small JSON message in a queue beside the backlog queues,
which keeps it for some days. Only clients know the states of their entities, so this is
how people see them. Reports are a courtesy: one that cannot be sent is dropped, and no
send waits for one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket

from twinbus import limits
from twinbus.client.outcome import Outcome
from twinbus.client.sender import Sender
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules.policy import PairingPolicy
from twinbus.wire.message import sections
from twinbus.wire.types import Symbol

_LOGGER = logging.getLogger("twinbus.pairing")

# Pings are too many to be reported, and their outcomes follow in other events.
_LEFT_OUT = frozenset((EventKind.PING_FAILED, EventKind.PING_ACCEPTED))
# What happens to an entity: these say what was diverted, and how many pings there were,
# since the pair was made.
_OF_ENTITIES = frozenset(
    {
        EventKind.SUSPECT,
        EventKind.RECOVERED,
        EventKind.FAILED_OVER,
        EventKind.FAILED_BACK,
        EventKind.RELAPSED,
        EventKind.REFUSED,
    }
)


class EventReporter:
    """Sends events of one pair to a queue of the secondary."""

    def __init__(self, sender: Sender, policy: PairingPolicy) -> None:
        self._sender = sender
        self._policy = policy
        self._client = f"{socket.gethostname()}-{os.getpid()}"
        self._waiting: set[Outcome] = set()

    def tell(self, event: PairingEvent) -> None:
        """Report an event, if there is room for one more."""
        too_many = len(self._waiting) >= limits.REPORTS_WAITING_MAX
        if event.kind in _LEFT_OUT or too_many:
            return
        cause, details = event.cause, dict(event.details)
        if event.kind in _OF_ENTITIES:
            status = self._policy.entity(event.path).status()
            details |= {"diverted": status.diverted, "pings": status.pings}
        report = {
            "event": event.kind.value,
            "path": event.path,
            "client": self._client,
            "cause": None if cause is None else f"{type(cause).__name__}: {cause}",
            "details": {name: str(value) for name, value in details.items()},
        }
        fields = {
            sections.SUBJECT: event.kind.value,
            sections.CONTENT_TYPE: Symbol("application/json"),
        }
        message = sections.encode_message(json.dumps(report).encode(), fields)
        outcome = self._sender.submit(message, limits.REPORT_SECONDS_MAX)
        self._waiting.add(outcome)
        outcome.future.add_done_callback(lambda done: self._ended(outcome, done))

    def _ended(self, outcome: Outcome, done: asyncio.Future[None]) -> None:
        self._waiting.discard(outcome)
        if not done.cancelled() and (error := done.exception()) is not None:
            _LOGGER.debug("An event could not be reported: %s", error)
