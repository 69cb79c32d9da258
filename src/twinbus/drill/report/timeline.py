"""What happened when: a drill's history as a few series over time.

Owns the counting. Times are seconds since the drill began. Pure: events and samples in,
numbers out. How they are drawn is `picture.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from twinbus.drill.plan import ENTITIES
from twinbus.drill.scene import Scene
from twinbus.drill.sightings import WAYS, Stretch, merged, stretches_of
from twinbus.drill.states import HEALTHY, STATE_AFTER, WORST_FIRST
from twinbus.pairing.events import EventKind
from twinbus.testing.events import Event


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
    # When an entity was not healthy, for at least one sender.
    entities: dict[str, list[Stretch]] = field(default_factory=dict)
    # When it relapsed.
    relapses: dict[str, list[float]] = field(default_factory=dict)
    # When a way to use the primary was slow, busy or closed without a pair.
    ways: dict[str, list[Stretch]] = field(default_factory=dict)

    @property
    def backlog_max(self) -> int:
        return max((depth for _, depth in self.backlog), default=0)


def timeline_of(events: Sequence[Event], scene: Scene, begun_ms: float) -> Timeline:
    """Count everything."""
    phases = scene.phases
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
    found.outage = scene.fault
    found.backlog = [(each.at, sum(each.backlog.values())) for each in scene.samples]
    found.entities, found.relapses = _lanes(events, at, found.seconds)
    found.ways = {way: stretches_of(scene.sightings, way) for way in WAYS}
    return found


def _lanes(
    events: Iterable[Event], at: Callable[[float], float], end: float
) -> tuple[dict[str, list[Stretch]], dict[str, list[float]]]:
    """The states of each entity over time, and its relapses."""
    raw: dict[str, list[Stretch]] = {path: [] for path in ENTITIES}
    relapses: dict[str, list[float]] = {path: [] for path in ENTITIES}
    # The state that an entity is in for a sender, and since when.
    now: dict[tuple[str, str], tuple[str, float]] = {}
    told = [event for event in events if event.state in STATE_AFTER]
    for event in sorted(told, key=lambda event: event.invoke_at):
        if event.queue not in raw:
            continue
        time, name = at(event.invoke_at), (event.process, event.queue)
        state, since = now.get(name, (HEALTHY, 0.0))
        now[name] = (STATE_AFTER[event.state], time)
        raw[event.queue].append(Stretch(since, time, state))
        if event.state == EventKind.RELAPSED.value:
            relapses[event.queue].append(time)
    for (_, path), (state, since) in now.items():
        raw[path].append(Stretch(since, end, state))
    # The worst is drawn last.
    drawn = [state for state in reversed(WORST_FIRST) if state != HEALTHY]
    return {path: merged(lane, drawn) for path, lane in raw.items()}, relapses
