"""What the pairs of a history said about their entities, and when.

Owns the spans in which an entity was not healthy, for each process, since each factory
decides for itself. Paths compare without regard to case. Judges nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.testing.copies import NEVER
from twinbus.testing.events import Event, Recorder

_SUSPECT = EventKind.SUSPECT.value
_FAILED_OVER = EventKind.FAILED_OVER.value
_ENDS = (EventKind.RECOVERED.value, EventKind.FAILED_BACK.value)


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
        if event.state in (_SUSPECT, _FAILED_OVER) and last is None:
            last = Span(event.invoke_at)
            spans.append(last)
        if event.state == _FAILED_OVER and last:
            last.failed_over_at = min(last.failed_over_at, event.invoke_at)
        elif event.state in _ENDS and last:
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
