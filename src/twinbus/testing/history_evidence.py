"""What a paired run left to judge it by: the words of its pairs, and the wire.

Owns two views of a history. `PairHealth` has the spans in which an entity was not
healthy, for each process, since each factory decides for itself. `Wire` groups the
transfers that a tap saw by message: attempts on the primary, diverts into backlog
queues, and the syphon's way from a backlog queue home. Paths compare without regard to
case. Judges nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.testing.copies import NEVER, Losses
from twinbus.testing.events import SETTLEMENTS, Event, Recorder

_SUSPECT = EventKind.SUSPECT.value
_FAILED_OVER = EventKind.FAILED_OVER.value
_RELAPSED = EventKind.RELAPSED.value
_RECOVERED = EventKind.RECOVERED.value
_FAILED_BACK = EventKind.FAILED_BACK.value


# -- what the pairs said -------------------------------------------------------------


def record_pairing(recorder: Recorder, process: str, event: PairingEvent) -> None:
    """Write an event of a pair; `partial` of this and a process is an `on_event`."""
    at = float(event.at_ms)
    cause = "" if event.cause is None else f"{type(event.cause).__name__}"
    line = Event(process, "pairing", "", at, at, queue=event.path, error=cause)
    line.state = event.kind.value
    recorder.record(line)


@dataclass(slots=True)
class Span:
    """From the first counted failure to the moment when all was well again."""

    start_at: float
    # When it failed over, if it came to that.
    failed_over_at: float = NEVER
    end_at: float = NEVER
    # It began with a failure on probation. Until a send is accepted, probation sends
    # one message at a time to the primary, and the others to the backlog.
    relapsed: bool = False

    @property
    def failed_over(self) -> bool:
        return self.failed_over_at < NEVER


class PairHealth:
    """All spans, by process and path. Asked in O(log n)."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._spans: dict[tuple[str, str], list[Span]] = defaultdict(list)
        for event in sorted(events, key=lambda event: event.invoke_at):
            self._add(event)
        self._starts = {
            name: [span.start_at for span in spans]
            for name, spans in self._spans.items()
        }

    def _add(self, event: Event) -> None:
        spans = self._spans[event.process, event.queue.lower()]
        last = spans[-1] if spans and spans[-1].end_at == NEVER else None
        begins = event.state in (_SUSPECT, _FAILED_OVER, _RELAPSED)
        if begins and last is None:
            last = Span(event.invoke_at, relapsed=event.state == _RELAPSED)
            spans.append(last)
        if last is None:
            return
        if event.state in (_FAILED_OVER, _RELAPSED):
            last.failed_over_at = min(last.failed_over_at, event.invoke_at)
        elif event.state == _RECOVERED or (
            event.state == _FAILED_BACK and not last.relapsed
        ):
            last.end_at = event.invoke_at

    def spans(self) -> Iterator[tuple[str, str, Span]]:
        """Everything, as process, path and span."""
        for (process, path), spans in self._spans.items():
            for span in spans:
                yield process, path, span

    def between(
        self, process: str, path: str, start_at: float, end_at: float
    ) -> list[Span]:
        """The spans that touch a time."""
        name = (process, path.lower())
        spans = self._spans.get(name)
        if not spans:
            return []
        place = bisect_right(self._starts[name], end_at)
        found = []
        # Spans do not overlap each other, so their ends rise as well.
        while place and spans[place - 1].end_at >= start_at:
            place -= 1
            found.append(spans[place])
        return found

    def failed_over(self, process: str, path: str, at: float, slack: float) -> bool:
        """Whether the entity had failed over at a time, give or take the slack."""
        return any(
            span.failed_over_at <= at + slack
            for span in self.between(process, path, at - slack, at + slack)
        )


# -- what the tap saw ----------------------------------------------------------------


class Trail:
    """All transfers of one message id for one entity, in the order of their begin.

    An attempt of a process that had fetched the message from a backlog queue before is
    one home.
    """

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
