"""Paired namespaces in memory that can be broken on purpose.

Owns the defects that the rules of paired histories must see. Three senders, a syphon
and a receiver work while the primary and the secondary go away and come back, and all
of it is written down as processes and a tap on the wire would. Without a defect every
promise is kept, and no seed may be convicted. The same seed gives the same history; all
time is counted, none passes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from twinbus.pairing.rules.naming import backlog_path
from twinbus.testing.history import Event, QueueRules, Rules
from twinbus.testing.history_paired import PairedRules

INTERVAL_MS = 200.0
WINDOW_MS = 100_000.0
TTL_MS = 500_000.0
ENTITIES = ("orders", "baskets", "unique", "news")
ROUTES = {"news": ("news/a", "news/b")}
BACKLOG = [backlog_path("contoso", index) for index in range(2)]

_QUEUE = QueueRules(strict_locks=True)
RULES = PairedRules(
    "contoso",
    Rules(
        default=_QUEUE,
        queues={"unique": replace(_QUEUE, duplicate_window_ms=WINDOW_MS)},
        routes=ROUTES,
    ),
    failover_interval_ms=INTERVAL_MS,
    witnessed=True,
    restored_recorded=True,
)
WITHOUT_TAP = replace(RULES, witnessed=False)


@dataclass(slots=True)
class Sent:
    """A message, wherever it is."""

    key: str
    path: str
    process: str
    session: str = ""
    digest: str = ""
    ttl_ms: float = 0
    sequence: int = 0
    enqueued_at: float = 0
    diverted_at: float = 0
    backlog: str = ""
    content_type: str = ""


@dataclass(slots=True)
class Away:
    """A time in which a namespace does not answer, and how it does not."""

    start_at: float
    end_at: float
    # "refuse": nothing arrives. "swallow": things arrive, the answers do not.
    how: str


@dataclass(slots=True)
class World:
    """Two namespaces. Each `has` is a place where something can be broken."""

    defect: str
    random: random.Random
    now: float = 0
    events: list[Event] = field(default_factory=list)
    primary: dict[str, list[Sent]] = field(default_factory=dict)
    backlog: dict[str, list[Sent]] = field(default_factory=dict)
    away: dict[str, list[Away]] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    sequence: int = 0

    def has(self, defect: str, chance: float = 1) -> bool:
        return self.defect == defect and self.random.random() < chance

    def event(self, process: str, op: str, known: Sent | None = None) -> Event:
        """An event of one message that begins now."""
        event = Event(process, op, invoke_at=self.now, link=f"{process}/0")
        if known:
            event.key, event.session, event.digest = (
                known.key,
                known.session,
                known.digest,
            )
            event.path, event.ttl_ms = known.path, known.ttl_ms
            event.enqueued_at, event.diverted_at = known.enqueued_at, known.diverted_at
            event.content_type = known.content_type
        return event

    def finish(self, event: Event, result: str = "ok") -> Event:
        """The event ends, some time later."""
        self.now += self.random.uniform(1, 9)
        event.end_at = self.now
        event.result = result  # type: ignore[assignment]
        self.events.append(event)
        return event

    def tell(self, process: str, path: str, kind: str) -> None:
        """A pair tells its application something."""
        event = Event(process, "pairing", "", self.now, self.now, queue=path)
        event.state = kind
        self.events.append(event)

    def mode(self, namespace: str) -> str:
        for away in self.away[namespace]:
            if away.start_at <= self.now < away.end_at:
                return away.how
        return ""

    # -- the primary ---------------------------------------------------------------

    def attempt(self, process: str, message: Sent) -> str:
        """Send to the primary; the answer is what the sender learns."""
        event = self.event(process, "attempt", message)
        event.queue = message.path
        mode = self.mode("primary")
        if mode == "refuse":
            return self.finish(event, "fail").result
        if not mode or self.random.random() < 0.5:
            self.store(message)
        return self.finish(event, "unknown" if mode else "ok").result

    def store(self, message: Sent) -> None:
        if message.path == "unique":
            if message.key in self.ids and self.defect != "window forgotten":
                return
            self.ids.add(message.key)
        copies = 2 if self.has("stored twice", 0.05) else 1
        for _ in range(copies):
            for queue in ROUTES.get(message.path, (message.path,)):
                self.sequence += 1
                number = self.sequence
                stored = replace(message, sequence=number, enqueued_at=self.now)
                lane = self.primary.setdefault(queue, [])
                if self.has("overtaken", 0.2) and lane:
                    # It gets the number of the one before, and that one this number.
                    stored.sequence, lane[-1].sequence = lane[-1].sequence, number
                lane.append(stored)

    # -- the backlog ---------------------------------------------------------------

    def divert(self, process: str, message: Sent, queue: str) -> str:
        """Send to a backlog queue."""
        diverted = replace(message, diverted_at=self.now, backlog=queue)
        event = self.event(process, "divert", diverted)
        event.queue = queue
        mode = self.mode("secondary")
        if mode == "refuse":
            return self.finish(event, "fail").result
        if not mode or self.random.random() < 0.5:
            lost = self.has("backlog forgets", 0.2)
            diverted.enqueued_at = self.now
            if not lost:
                self.backlog.setdefault(queue, []).append(diverted)
        return self.finish(event, "unknown" if mode else "ok").result
