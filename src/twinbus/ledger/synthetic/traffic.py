"""The usual rows of a made-up ledger: what entities do while all is well.

Owns the plan of a made-up ledger, its names, and the rows of a day outside outages:
sends, receives and settlements, and now and then an empty poll, a send that is denied
or fails once, and a gap. None of it is an outage. Rows are made with numpy, because a
year has a hundred million.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from twinbus.ledger.schema import OPERATION_COLUMNS

if TYPE_CHECKING:
    from twinbus.ledger.synthetic.outages import SyntheticOutage

MINUTES = 1440
# Each of a pair with its secondary; the first has more of the entities.
PRIMARIES = ("contoso", "fabrikam")
SECONDARIES = ("contoso-backup", "fabrikam-backup")
QUEUES = 10
WRITERS = 20
# A send, a receive and a settlement.
ROWS_PER_ACTIVE = 3
# One of so many rows is something else, which is harmless.
_POLL_EVERY, _BUSY_EVERY, _FAILED_EVERY, _GAP_EVERY = 50, 400, 4000, 100_000
_SEND, _RECEIVE, _SETTLE, _POLL, _GAP = range(5)
_OPERATIONS = ("send", "receive", "settle", "poll", "gap")
_OUTCOMES = ("accepted", "busy", "failed")
_KEYS = ("", "sender", "listener")
_CONNECTIONS = ("amqp", "amqp-ws")


@dataclass(frozen=True, slots=True)
class SyntheticPlan:
    """What is made: so many rows of so many entities in so many days."""

    rows: int
    days: int = 365
    entities: int = 1000
    outages: int = 20
    seed: int = 1
    start: date = date(2026, 1, 1)

    def day(self, number: int) -> date:
        return self.start + timedelta(days=number)

    def day_number(self, at: datetime) -> int:
        return (at.date() - self.start).days

    @property
    def begun(self) -> datetime:
        return datetime.combine(self.start, datetime.min.time(), UTC)

    def random(self, *numbers: int) -> np.random.Generator:
        """Chance of its own for each part, so that no order of work matters."""
        return np.random.default_rng([self.seed, *numbers])

    def name(self, entity: int) -> str:
        return f"queue-{entity:04d}"

    def primary_of(self, entity: int) -> int:
        return int(entity * 5 >= self.entities * 3)


def traffic_of(
    plan: SyntheticPlan, number: int, rows: int, outages: Sequence[SyntheticOutage]
) -> pa.Table:
    """The usual rows of one day, sorted by minute."""
    random = plan.random(1, number)
    minute, entity = _active(plan, random, -(-rows // ROWS_PER_ACTIVE))
    operation = np.tile(np.array([_SEND, _RECEIVE, _SETTLE], np.int8), len(minute))
    minute, entity = (
        np.repeat(each, ROWS_PER_ACTIVE)[:rows] for each in (minute, entity)
    )
    operation = operation[:rows]
    other = random.random(rows)
    operation[other < 1 / _POLL_EVERY] = _POLL
    operation[other > 1 - 1 / _GAP_EVERY] = _GAP
    outcome = np.zeros(rows, np.int8)
    sends, chance = operation == _SEND, random.random(rows)
    outcome[sends & (chance < 1 / _BUSY_EVERY)] = 1
    outcome[sends & (chance > 1 - 1 / _FAILED_EVERY)] = 2
    # Entities in an outage do what `outages.py` says, and no send of theirs fails.
    away = np.zeros(rows, bool)
    for outage in outages:
        away |= outage.covers(number, minute, entity)
    operation[away & (operation != _GAP)] = _POLL
    outcome[away] = 0
    return _table(plan, number, (minute, entity, operation, outcome), random)


def _active(
    plan: SyntheticPlan, random: np.random.Generator, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """So many active minutes of a day: more in its middle, and each only once."""
    hours = np.arange(MINUTES) / MINUTES
    bounds = np.cumsum(1.2 - np.cos(hours * 2 * np.pi))
    found = np.empty(0, np.int64)
    while len(found) < count:
        missing = int((count - len(found)) * 1.2) + 16
        minute = np.searchsorted(bounds, random.random(missing) * bounds[-1])
        drawn = minute * plan.entities + random.integers(0, plan.entities, missing)
        found = np.unique(np.concatenate([found, drawn]))
    surplus = random.choice(len(found), len(found) - count, replace=False)
    found = np.delete(found, surplus)
    return found // plan.entities, found % plan.entities


def _table(
    plan: SyntheticPlan,
    number: int,
    columns: tuple[np.ndarray, ...],
    random: np.random.Generator,
) -> pa.Table:
    minute, entity, operation, outcome = columns
    rows = len(minute)
    begun = np.datetime64(plan.day(number).isoformat(), "us")
    has_message = (operation == _SEND) | (operation == _RECEIVE)
    counts = random.integers(1, 60, rows)
    # An entity has messages of one size.
    sizes = 200 + entity * 7919 % 3000 + np.where(entity % 50 == 0, 100_000, 0)
    size_class = np.where(has_message, -(-sizes // 65_536), 0)
    messages = np.where(has_message, counts, 0)
    gap = operation == _GAP
    calls = np.where(operation == _SETTLE, counts, 1)
    operations = np.where(has_message, messages * size_class, calls)
    accepted = outcome == 0
    primary = np.where(entity * 5 >= plan.entities * 3, 1, 0)
    key = np.where(operation == _SEND, 1, 2)
    arrays = [
        pa.array(begun + minute.astype("timedelta64[m]"), pa.timestamp("us", "UTC")),
        _coded(primary, PRIMARIES),
        _coded(entity % WRITERS, [f"app-{each:02d}" for each in range(WRITERS)]),
        _coded(np.zeros(rows, np.int8), ("client",)),
        _coded(
            np.where(gap, plan.entities, entity),
            [*map(plan.name, range(plan.entities)), ""],
        ),
        _coded(operation, _OPERATIONS),
        _coded(outcome, _OUTCOMES),
        _coded(np.where(gap, 0, key), _KEYS),
        _coded(entity % 5 == 0, _CONNECTIONS),
        pa.array(size_class, pa.int32()),
        pa.array(np.where(gap, 0, operations), pa.int64()),
        pa.array(messages, pa.int64()),
        pa.array(np.where((operation == _SEND) & accepted, messages * sizes, 0)),
        pa.array(np.where(operation == _RECEIVE, messages * sizes, 0)),
        pa.array(np.where(gap, 2, 0), pa.int32()),
    ]
    return pa.table(arrays, names=[name for name, _ in OPERATION_COLUMNS])


def _coded(codes: np.ndarray, names: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), list(names))
