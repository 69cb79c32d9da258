"""How a drill stands at one moment: what is shown while it runs.

Owns the numbers and how they are added up from what the children say. Times are seconds
since the drill began. Knows nothing about terminals, nor about processes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twinbus import limits
from twinbus.drill.plan import ENTITIES, PLACES, TOPIC, Plan
from twinbus.drill.sightings import Sighting
from twinbus.drill.states import HEALTHY, PROBATION, WORST_FIRST

# In their order, and as people are told.
PHASES = {
    "start": "servers, senders and receivers start",
    "healthy": "all is well",
    "outage": "the primary has its fault",
    "back": "the fault is over",
    "home": "the backlog comes home",
    "settle": "receivers take the rest",
    "judge": "the history is judged",
}


@dataclass(slots=True)
class Phase:
    """One part of the drill."""

    name: str
    begun: float
    ended: float | None = None

    def seconds(self, now: float) -> float:
        """How long it took, or has taken so far."""
        return (now if self.ended is None else self.ended) - self.begun


@dataclass(frozen=True, slots=True)
class Sample:
    """Some numbers at one moment, for the picture."""

    at: float
    accepted: int
    received: int
    backlog: dict[int, int]


@dataclass(slots=True)
class EntityLine:
    """One entity, all senders together."""

    path: str
    accepted: int
    # Deliveries; a topic has as many as it has subscriptions.
    received: int
    state: str


class Scene:
    """Everything at one moment."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now = 0.0
        self.phases: list[Phase] = []
        self.spark = ""
        # How long Spark took to start; its first batch takes about as long again.
        self.spark_seconds: float | None = None
        self.moved = 0
        self.backlog: dict[int, int] = {}
        self.samples: list[Sample] = []
        self.notes: list[str] = []
        # What an application without a pair saw.
        self.sightings: list[Sighting] = []
        # Whether the primary was started again.
        self.restarted = False
        # From the begin of the fault to its end.
        self.fault: tuple[float, float] | None = None
        # When the traffic began.
        self.traffic_at: float | None = None
        self._senders: dict[str, dict[str, Any]] = {}
        self._receivers: dict[str, dict[str, Any]] = {}
        self._past: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    # -- what happens ------------------------------------------------------------------

    def begin(self, phase: str) -> None:
        """Another part begins."""
        if self.phases:
            self.phases[-1].ended = self.now
        self.phases.append(Phase(phase, self.now))

    def end(self) -> None:
        """It is over."""
        if self.phases and self.phases[-1].ended is None:
            self.phases[-1].ended = self.now

    def sender_says(self, name: str, line: dict[str, Any]) -> None:
        """A sender has told how it goes."""
        self._senders[name] = line

    def receiver_says(self, name: str, line: dict[str, Any]) -> None:
        """A receiver has."""
        self._receivers[name] = line

    def witness_says(self, line: dict[str, Any], begun_ms: float) -> None:
        """The witness has tried something; the drill began at that time."""
        at = (line["at_ms"] - begun_ms) / 1000
        self.sightings.append(
            Sighting(line["way"], at, line["took"], line["answer"], line["why"])
        )

    def forget_sender(self, name: str) -> None:
        """A sender is gone; what it has sent is still counted."""
        self._senders[name]["states"] = {}

    def sample(self, backlog: dict[int, int]) -> None:
        """Keep the numbers of now."""
        self.backlog = backlog
        self.samples.append(Sample(self.now, self.accepted, self.received, backlog))
        self._past.append((self.now, self.accepted, self.received))
        while (
            len(self._past) > 2
            and self.now - self._past[0][0] > limits.DRILL_RATE_SECONDS
        ):
            self._past.popleft()

    # -- numbers -----------------------------------------------------------------------

    @property
    def phase(self) -> str:
        return self.phases[-1].name if self.phases else "start"

    @property
    def accepted(self) -> int:
        return sum(sum(each["accepted"].values()) for each in self._senders.values())

    @property
    def received(self) -> int:
        return sum(sum(each["received"].values()) for each in self._receivers.values())

    @property
    def pings(self) -> int:
        """Pings that a receiver has seen."""
        return sum(each["pings"] for each in self._receivers.values())

    @property
    def held(self) -> int:
        """Sends that have no answer yet."""
        return sum(each["held"] for each in self._senders.values())

    @property
    def failed(self) -> int:
        """Sends that raised an error."""
        return sum(each["failed"] for each in self._senders.values())

    @property
    def depth(self) -> int:
        return sum(self.backlog.values())

    def states(self, path: str) -> Counter[str]:
        """In how many senders an entity is in which state."""
        found = (each["states"].get(path) for each in self._senders.values())
        return Counter(state for state in found if state)

    def not_yet_back(self) -> list[str]:
        """The entities that do not take sends again in every sender.

        Probation ends with an accepted send; a sender without traffic has none.
        """
        return self._missing(
            lambda line, path: (
                line["states"][path]
                in ((HEALTHY, PROBATION) if line["done"] else (HEALTHY,))
            )
        )

    def not_yet_over(self) -> list[str]:
        """The entities that have not failed over yet in every sender."""
        return self._missing(lambda line, path: path in line["over"])

    def _missing(self, has: Callable[[dict[str, Any], str], bool]) -> list[str]:
        lines = self._senders.values()
        return [
            path
            for path in ENTITIES
            if not lines
            or any(path in line["states"] and not has(line, path) for line in lines)
        ]

    def traffic_is_over(self) -> bool:
        """Whether every sender has sent everything; those that died do not count."""
        lines = [line for line in self._senders.values() if line["states"]]
        return all(line["done"] for line in lines)

    def rates(self) -> tuple[float, float]:
        """Messages accepted and received a second, lately."""
        then, accepted, received = self._past[0]
        last, accepted_now, received_now = self._past[-1]
        seconds = last - then
        if seconds <= 0:
            return 0.0, 0.0
        return (accepted_now - accepted) / seconds, (received_now - received) / seconds

    def entities(self) -> list[EntityLine]:
        """One line for each."""
        accepted: Counter[str] = Counter()
        received: Counter[str] = Counter()
        for sender in self._senders.values():
            accepted.update(sender["accepted"])
        for receiver in self._receivers.values():
            received.update(receiver["received"])
        lines = []
        for path in ENTITIES:
            places = [path]
            if path == TOPIC:
                places = [place for place in PLACES if place.startswith(f"{path}/")]
            count = sum(received[place] for place in places)
            lines.append(EntityLine(path, accepted[path], count, self._told(path)))
        return lines

    def _told(self, path: str) -> str:
        """The state; where senders disagree, the worst one and how many have it."""
        states = self.states(path)
        for state in WORST_FIRST:
            if state in states:
                if len(states) == 1:
                    return state
                return f"{state} {states[state]}/{states.total()}"
        return ""

    def eta_seconds(self) -> float | None:
        """How long the drill will still take; None while it is unknown."""
        if self.phase == "judge":
            return limits.DRILL_JUDGE_SECONDS
        traffic = self.plan.traffic_ms / 1000
        begun = self.now if self.traffic_at is None else self.traffic_at
        left = max(begun + traffic - self.now, 0.0)
        if self.phase not in ("home", "settle"):
            return left + limits.DRILL_TAIL_SECONDS
        if self.plan.syphon == "spark" and self.phase == "home":
            if self.spark_seconds is None:
                return None
            warm = self.spark_seconds - self.phases[-1].seconds(self.now)
            left = max(left, warm)
        return left + self.depth / limits.DRILL_HOME_RATE + limits.DRILL_JUDGE_SECONDS

    def as_dict(self) -> dict[str, Any]:
        """As plain values: a progress line for machines."""
        sent, received = self.rates()
        eta = self.eta_seconds()
        return {
            "at": round(self.now, 1),
            "phase": self.phase,
            "accepted": self.accepted,
            "received": self.received,
            "held": self.held,
            "failed": self.failed,
            "sent_per_second": round(sent),
            "received_per_second": round(received),
            "states": {line.path: line.state for line in self.entities()},
            "backlog": {str(index): depth for index, depth in self.backlog.items()},
            "moved": self.moved,
            "spark": self.spark,
            "eta_seconds": None if eta is None else round(eta),
        }
