"""The outages of a made-up ledger: their truth, their rows and their events.

Owns when a primary is away, and what its clients and the syphon write then: sends that
fail, pings, diverted messages, and the way home afterwards. An outage has events, or
none ("rates"), or is seen at the backlog queues alone ("backlog").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from twinbus.ledger.synthetic.traffic import (
    MINUTES,
    PRIMARIES,
    QUEUES,
    SECONDARIES,
    WRITERS,
    SyntheticPlan,
)

EVENTS, RATES, BACKLOG = "events", "rates", "backlog"
# How the outages are told, in turn.
_KINDS = (EVENTS, RATES, EVENTS, BACKLOG, EVENTS, RATES)
_SIZE = 1500
_MINUTE = timedelta(minutes=1)

# The time comes first.
Row = tuple[Any, ...]


@dataclass(slots=True)
class OutageTruth:
    """What a report has to find, in the words of its table of outages."""

    primary: str
    told_by: str
    start: str
    end: str
    entities: list[str]
    senders: int
    diverted_messages: int = 0
    diverted_bytes: int = 0
    duplicates: int = 0
    drain_minutes: int = 0


@dataclass(slots=True)
class SyntheticOutage:
    """One outage: its truth, and what its rows are made of."""

    number: int
    primary: int
    start: datetime
    end: datetime
    entities: list[int]
    kind: str
    truth: OutageTruth = field(init=False)
    # The minutes of the year that it and its drain take.
    first: int = 0
    last: int = 0

    def covers(
        self, day: int, minute: np.ndarray, entity: np.ndarray
    ) -> np.ndarray | bool:
        """Which of these rows of a day belong to an entity that is away."""
        first, last = self.first - day * MINUTES, self.last - day * MINUTES
        if last < 0 or first >= MINUTES:
            return False
        inside = (minute >= first) & (minute <= last)
        return inside & np.isin(entity, self.entities)


def draw_outages(plan: SyntheticPlan) -> list[SyntheticOutage]:
    """Draw them, one in each part of the time, so that none touches another."""
    found = []
    span = plan.days * MINUTES // max(plan.outages, 1)
    for number in range(plan.outages):
        random = plan.random(2, number)
        length = int(random.integers(5, min(120, span // 4)))
        first = number * span + int(random.integers(30, span // 2))
        start = plan.begun + timedelta(
            minutes=first, seconds=float(random.random()) * 59
        )
        end = start + timedelta(minutes=length, seconds=float(random.random()) * 59)
        primary = number % len(PRIMARIES)
        of_primary = [e for e in range(plan.entities) if plan.primary_of(e) == primary]
        count = min(int(random.integers(2, 25)), len(of_primary))
        entities = sorted(random.choice(of_primary, count, replace=False).tolist())
        outage = SyntheticOutage(
            number, primary, start, end, entities, _KINDS[number % 6]
        )
        outage.first, outage.last = first, first + length + 2
        # A server knows only the one key that all of them use.
        writers = {entity % WRITERS * (outage.kind != BACKLOG) for entity in entities}
        outage.truth = OutageTruth(
            PRIMARIES[primary],
            outage.kind,
            start.isoformat(timespec="seconds"),
            end.isoformat(timespec="seconds"),
            [plan.name(entity) for entity in entities],
            len(writers),
        )
        found.append(outage)
    return found


def rows_of(
    plan: SyntheticPlan, outage: SyntheticOutage
) -> tuple[list[Row], list[Row]]:
    """All rows and all events of an outage; completes its truth."""
    random = plan.random(3, outage.number)
    # A send fails at once; pings and diverted messages follow the failover.
    over = outage.start + timedelta(seconds=float(random.uniform(10, 55)))
    back = outage.end + timedelta(seconds=float(random.uniform(1, 55)))
    diverted = _diverted(outage, random, (over, back))
    rows = list(_backlog_rows(outage, diverted))
    if outage.kind != BACKLOG:
        rows += _failing(plan, outage, (over, back))
    rows += _way_home(plan, outage, diverted, back)
    told = _events(plan, outage, diverted, (over, back))
    events = list(told) if outage.kind == EVENTS else []
    outage.truth.diverted_messages = sum(diverted.values())
    outage.truth.diverted_bytes = sum(diverted.values()) * _SIZE
    return rows, events


def _floor(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _minutes(start: datetime, end: datetime) -> Iterator[datetime]:
    at = _floor(start)
    while at <= end:
        yield at
        at += _MINUTE


Diverted = dict[tuple[datetime, int], int]


def _diverted(
    outage: SyntheticOutage,
    random: np.random.Generator,
    stretch: tuple[datetime, datetime],
) -> Diverted:
    """How many messages of which entity were diverted in which minute."""
    return {
        (minute, entity): int(random.integers(1, 40))
        for minute in _minutes(*stretch)
        for entity in outage.entities
    }


def _row(
    at: datetime,
    who: tuple[str, str, str],
    what: tuple[str, str, str],
    count: int,
) -> Row:
    """One row: (namespace, writer, source), (entity, operation, outcome), a count."""
    _, operation, outcome = what
    has_message = operation in ("send", "receive")
    accepted = outcome == "accepted"
    size = count * _SIZE if has_message and accepted else 0
    into, out = (size, 0) if operation == "send" else (0, size)
    key = "listener" if operation == "receive" else "sender"
    there = count if has_message else 0
    tail = (key, "amqp", int(has_message), count, there, into, out, 0)
    return (at, *who, *what, *tail)


def _queue(outage: SyntheticOutage, entity: int) -> str:
    return f"{PRIMARIES[outage.primary]}/x-servicebus-transfer/{entity % QUEUES}"


def _writer(entity: int) -> str:
    return f"app-{entity % WRITERS:02d}"


def _backlog_rows(outage: SyntheticOutage, diverted: Diverted) -> Iterator[Row]:
    """Sends to backlog queues: one row for each minute, writer and queue."""
    counts: dict[tuple[datetime, str, str], int] = {}
    for (minute, entity), messages in diverted.items():
        key = (minute, _writer(entity), _queue(outage, entity))
        counts[key] = counts.get(key, 0) + messages
    for (minute, writer, queue), messages in counts.items():
        who = (SECONDARIES[outage.primary], writer, "client")
        if outage.kind == BACKLOG:
            who = (SECONDARIES[outage.primary], "node-1", "server")
        yield _row(minute, who, (queue, "send", "accepted"), messages)


def _failing(
    plan: SyntheticPlan, outage: SyntheticOutage, stretch: tuple[datetime, datetime]
) -> Iterator[Row]:
    """Sends that fail before the failover, and a ping each minute after it."""
    over, back = stretch
    primary = PRIMARIES[outage.primary]
    for entity in outage.entities:
        who, name = (primary, _writer(entity), "client"), plan.name(entity)
        for minute in _minutes(outage.start, over):
            yield _row(minute, who, (name, "send", "failed"), 3)
        for minute in _minutes(over, back):
            outcome = "accepted" if minute == _floor(back) else "failed"
            yield _row(minute, who, (name, "ping", outcome), 1)


def _way_home(
    plan: SyntheticPlan, outage: SyntheticOutage, diverted: Diverted, back: datetime
) -> Iterator[Row]:
    """The syphon: receives, settlements and sends; one in 200 is sent twice."""
    random = plan.random(4, outage.number)
    totals: dict[int, int] = {}
    for (_, entity), messages in diverted.items():
        totals[entity] = totals.get(entity, 0) + messages
    begun = _floor(back) + int(random.integers(1, 4)) * _MINUTE
    minutes = int(random.integers(2, 15))
    primary, secondary = PRIMARIES[outage.primary], SECONDARIES[outage.primary]
    for entity, total in totals.items():
        shares = np.diff(np.linspace(0, total, minutes + 1).astype(int))
        copies = int(random.integers(0, 2))
        outage.truth.duplicates += copies
        for step, count in enumerate(map(int, shares)):
            at, again = begun + step * _MINUTE, copies if step == minutes - 1 else 0
            source = "syphon" if outage.kind != BACKLOG else "server"
            who = (secondary, "syphon" if source == "syphon" else "node-1", source)
            queue, name = _queue(outage, entity), plan.name(entity)
            yield _row(at, who, (queue, "receive", "accepted"), count)
            yield _row(at, who, (queue, "settle", "accepted"), count)
            home = (primary, "syphon", "syphon")
            yield _row(at, home, (name, "send", "accepted"), count + again)
    outage.truth.drain_minutes = int(
        (begun + minutes * _MINUTE - _floor(outage.end)) / _MINUTE
    )


def _events(
    plan: SyntheticPlan,
    outage: SyntheticOutage,
    diverted: Diverted,
    stretch: tuple[datetime, datetime],
) -> Iterator[Row]:
    over, back = stretch
    pair = (PRIMARIES[outage.primary], SECONDARIES[outage.primary])
    for entity in outage.entities:
        writer, name = _writer(entity), plan.name(entity)
        for at, event in (
            (outage.start, "suspect"),
            (over, "failed over"),
            (back, "failed back"),
        ):
            yield (at, writer, *pair, name, event, 0, 0, "")
    for (minute, entity), messages in diverted.items():
        at = min(max(minute + timedelta(seconds=59), over), back)
        counted = ("diverted", messages, messages * _SIZE, "")
        yield (at, _writer(entity), *pair, plan.name(entity), *counted)
