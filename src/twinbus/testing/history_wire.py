"""What was really sent for each message, as a tap on the wire saw it.

Owns the grouping of transfers by message: attempts on the primary, diverts into backlog
queues, and the syphon's way from a backlog queue home. An attempt of a process that had
fetched the message from a backlog before is one home. Judges nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from twinbus.testing.copies import NEVER, Losses
from twinbus.testing.events import SETTLEMENTS, Event


class Trail:
    """All transfers of one message id for one entity, in the order of their begin."""

    __slots__ = ("attempts", "diverts", "fetches", "homes", "settles")

    def __init__(self) -> None:
        self.attempts: list[Event] = []
        self.diverts: list[Event] = []
        self.fetches: list[Event] = []
        self.homes: list[Event] = []
        self.settles: list[Event] = []

    @property
    def sends(self) -> list[Event]:
        """What the sender did, on either side."""
        both = self.attempts + self.diverts
        both.sort(key=_begun)
        return both


def _begun(event: Event) -> float:
    return event.invoke_at


class Wire:
    """Every trail, by path and key."""

    def __init__(self, events: Iterable[Event], slack_ms: float) -> None:
        self._slack = slack_ms
        self._losses = Losses()
        self._trails: dict[tuple[str, str], Trail] = defaultdict(Trail)
        # A settlement names its delivery; the delivery knows the path.
        self._fetched: dict[tuple[str, str], Event] = {}
        attempts = []
        for event in sorted(events, key=_begun):
            if event.op == "attempt":
                attempts.append(event)
            else:
                self._add(event)
        for event in attempts:
            self._add_attempt(event)
        self._losses.sort()

    def trail(self, path: str, key: str) -> Trail | None:
        return self._trails.get((path.lower(), key))

    def trails(self) -> dict[tuple[str, str], Trail]:
        return self._trails

    def _add(self, event: Event) -> None:
        op = event.op
        if op == "divert":
            self._trails[event.path.lower(), event.key].diverts.append(event)
        elif op == "receive" and event.key:
            self._trails[event.path.lower(), event.key].fetches.append(event)
            self._fetched[event.process, event.token] = event
        elif op in SETTLEMENTS:
            fetch = self._fetched.get((event.process, event.token))
            if fetch:
                trail = self._trails[fetch.path.lower(), fetch.key]
                trail.settles.append(event)
        elif op == "detach":
            self._losses.add(event.process, event.link, event.invoke_at)

    def _add_attempt(self, event: Event) -> None:
        trail = self._trails[event.queue.lower(), event.key]
        fetched = any(
            fetch.process == event.process and fetch.end_at <= event.invoke_at
            for fetch in trail.fetches
        )
        (trail.homes if fetched else trail.attempts).append(event)

    def known_at(self, transfer: Event) -> float:
        """When its sender has known that it was accepted; never, if it may not.

        The tap sees an answer on its way. If the connection ended just then, the
        answer may never have arrived.
        """
        if transfer.result != "ok":
            return NEVER
        known_at = transfer.end_at + self._slack
        lost_at = self._losses.first_after(
            transfer.process, transfer.link, transfer.end_at
        )
        return NEVER if lost_at <= known_at else known_at
