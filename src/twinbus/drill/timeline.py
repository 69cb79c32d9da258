"""What happened when: a drill's history as a few series over time.

Owns the counting. Times are seconds since the drill began. Pure: events and samples in,
numbers out. How they are drawn is `picture.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from twinbus.drill.plan import ENTITIES
from twinbus.drill.scene import Phase, Sample
from twinbus.testing.events import Event
from twinbus.testing.history_evidence import PairHealth

SUSPECT = "suspect"
FAILED_OVER = "failed over"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which an entity was not healthy, for at least one sender."""

    start: float
    end: float
    state: str


@dataclass(slots=True)
class Timeline:
    """All series of a drill."""

    # How long it took, and how long one step of a rate is.
    seconds: float
    step_seconds: float = 1.0
    phases: list[tuple[str, float, float]] = field(default_factory=list)
    outage: tuple[float, float] | None = None
    # Messages in each step.
    accepted: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    # When, and how many messages were in all backlog queues.
    backlog: list[tuple[float, int]] = field(default_factory=list)
    entities: dict[str, list[Stretch]] = field(default_factory=dict)

    @property
    def backlog_max(self) -> int:
        return max((depth for _, depth in self.backlog), default=0)


def timeline_of(
    events: Sequence[Event],
    samples: Iterable[Sample],
    phases: Sequence[Phase],
    begun_ms: float,
) -> Timeline:
    """Count everything."""
    seconds = max((phase.ended or phase.begun for phase in phases), default=0.0)
    found = Timeline(max(seconds, 1.0))
    found.phases = [
        (phase.name, phase.begun, seconds if phase.ended is None else phase.ended)
        for phase in phases
    ]
    steps = int(found.seconds / found.step_seconds) + 1
    found.accepted, found.received = [0] * steps, [0] * steps

    def at(time_ms: float) -> float:
        return min(max((time_ms - begun_ms) / 1000, 0.0), found.seconds)

    for event in events:
        if event.result != "ok":
            continue
        step = int(at(event.end_at) / found.step_seconds)
        if event.op == "send":
            found.accepted[step] += 1
        elif event.op == "receive" and event.key:
            found.received[step] += 1
        elif event.op == "fault":
            found.outage = (at(event.invoke_at), at(event.end_at))
    found.backlog = [(each.at, sum(each.backlog.values())) for each in samples]
    found.entities = _stretches(events, at)
    return found


def _stretches(
    events: Iterable[Event], at: Callable[[float], float]
) -> dict[str, list[Stretch]]:
    health = PairHealth(event for event in events if event.op == "pairing")
    raw: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _, path, span in health.spans():
        over = min(span.failed_over_at, span.end_at)
        raw.setdefault((path, SUSPECT), []).append((at(span.start_at), at(over)))
        if span.failed_over:
            times = (at(span.failed_over_at), at(span.end_at))
            raw.setdefault((path, FAILED_OVER), []).append(times)
    return {
        path: [
            Stretch(start, end, state)
            for state in (SUSPECT, FAILED_OVER)
            for start, end in union(raw.get((path, state), ()))
        ]
        for path in ENTITIES
    }


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same times, without overlaps, in their order."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
