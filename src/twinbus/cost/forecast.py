"""How much a pair will use and cost, phase by phase.

Owns the arithmetic of paired namespaces:

    healthy       a message is sent to the primary and received from it; every syphon
                  waits at every backlog queue, and each wait that ends empty is a poll
    failed over   a message is sent to a backlog queue instead; every factory pings
                  every entity at once, then once in each interval until one is
                  accepted
    draining      a diverted message is received from the backlog, sent to the primary
                  and received from it; new ones go as when healthy

and idle: the pair is there, and nothing is sent. An outage lasts from the first failed
send to the failback, and all that is sent meanwhile is diverted. While it lasts and is
drained, backlog queues have messages, so that no poll is empty. The backlog is drained
at the given rate, from the failback on.

A day and a month have one outage (if there are any), a year has as many as the plan
says. What a phase costs is what it adds to the bill of the phases before it.
Knows nothing about options, terminals or how usage is measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from math import ceil

from twinbus import limits
from twinbus.cost.prices import MONTH_DAYS, PriceBook
from twinbus.cost.usage import Usage
from twinbus.errors import ConfigError
from twinbus.ledger import schema

YEAR_DAYS = 365
MS_PER_DAY = 86_400_000
MEGABYTE = 1024**2

IDLE, HEALTHY = "idle", "healthy"
FAILED_OVER, DRAINING = "failed over", "draining"
PHASES = (IDLE, HEALTHY, FAILED_OVER, DRAINING)

TO_PRIMARY, FROM_PRIMARY = "send to primary", "receive from primary"
TO_BACKLOG, FROM_BACKLOG = "send to backlog", "receive from backlog"
PINGS, POLLS, SETTLEMENTS = "pings", "empty polls", "settlements"
STAGES = (
    *(TO_PRIMARY, FROM_PRIMARY, TO_BACKLOG, FROM_BACKLOG),
    *(PINGS, POLLS, SETTLEMENTS),
)

StageUses = dict[str, Usage]


@dataclass(frozen=True, slots=True)
class PairPlan:
    """A pair, and what is asked of it."""

    entities: int = 1
    # Messages in a second, to all entities together.
    rate: Fraction = Fraction(1)
    size_bytes: int = 1024
    backlog_queues: int = limits.BACKLOG_QUEUES_DEFAULT
    # Processes whose pair has a syphon that waits all the time.
    syphons: int = 1
    # Factories, each of which sends to every entity.
    senders: int = 1
    ping_interval_ms: int = limits.PAIR_INTERVAL_MS_DEFAULT
    failover_interval_ms: int = 0
    poll_ms: int = int(limits.SYPHON_POLL_SECONDS * 1_000)
    outage_ms: int = 3_600_000
    outages_per_year: int = 1
    # Messages in a second, of all syphons together.
    drain_rate: Fraction = Fraction(1_000)

    def messages(self, time_ms: int) -> int:
        """How many messages are sent in a time."""
        return int(self.rate * time_ms / 1_000)

    @property
    def fails_over(self) -> bool:
        """Whether an outage lasts long enough; without sends it is not noticed."""
        lasts = 0 < self.outage_ms >= self.failover_interval_ms
        return lasts and self.diverted > 0

    @property
    def diverted(self) -> int:
        """How many messages of one outage go to the backlog."""
        return self.messages(self.outage_ms)

    @property
    def pings(self) -> int:
        """How many pings one factory sends to one entity in one outage."""
        if not self.fails_over:
            return 0
        failed_over_ms = self.outage_ms - self.failover_interval_ms
        return 1 + failed_over_ms // self.ping_interval_ms

    @property
    def received_again(self) -> int:
        """About how often waiting syphons receive a message that they received before.

        At most, in one outage, and not in the figures of the phases. A syphon leaves
        what it cannot deliver locked, up to a bound for each queue, and receives it
        again when the locks end.
        """
        if not self.fails_over or not self.syphons:
            return 0
        lock_ms = limits.BACKLOG_LOCK_SECONDS * 1_000
        locks = (self.outage_ms - self.failover_interval_ms) // lock_ms
        # In each queue, while a lock lasts: what is added to it, and what is locked.
        added = self.rate * limits.BACKLOG_LOCK_SECONDS / self.backlog_queues
        most = self.syphons * limits.PARKED_MESSAGES_MAX
        growing = min(locks, int(most / added))
        again = added * growing * (growing + 1) / 2 + (locks - growing) * most
        return int(again * self.backlog_queues) * schema.size_class(self.size_bytes)

    @property
    def drain_ms(self) -> int:
        """How long the backlog of one outage is drained."""
        if not self.fails_over:
            return 0
        return ceil(self.diverted / self.drain_rate * 1_000)

    @property
    def backlog_bytes(self) -> int:
        """What all backlog queues together hold."""
        return self.backlog_queues * limits.BACKLOG_QUEUE_MEGABYTES * MEGABYTE

    @property
    def backlog_holds_ms(self) -> int | None:
        """The longest outage that fits into the backlog; None if nothing is sent."""
        bytes_per_second = self.rate * self.size_bytes
        if not bytes_per_second:
            return None
        return int(self.backlog_bytes / bytes_per_second * 1_000)

    def polls(self, quiet_ms: int) -> int:
        """How many empty polls there are in a time without a backlog."""
        return quiet_ms // self.poll_ms * self.backlog_queues * self.syphons


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """What is charged for a phase in some time."""

    # By stage; only those that the price book charges and that are not 0.
    stages: dict[str, int]
    money: Decimal

    @property
    def operations(self) -> int:
        return sum(self.stages.values())


@dataclass(frozen=True, slots=True)
class PeriodForecast:
    """A day, a month or a year."""

    name: str
    days: int
    outages: int
    # By phase. An outage that is longer than the period has none here.
    phases: dict[str, PhaseFigures]
    # All phases but idle.
    total: PhaseFigures
    # The same messages without a pair.
    unpaired: PhaseFigures

    @property
    def added_operations(self) -> int:
        """The part of it that pairing adds."""
        return self.total.operations - self.unpaired.operations

    @property
    def added_money(self) -> Decimal:
        return self.total.money - self.unpaired.money


@dataclass(frozen=True, slots=True)
class CostForecast:
    """All about one plan."""

    plan: PairPlan
    book: PriceBook
    periods: tuple[PeriodForecast, ...]

    def period(self, name: str) -> PeriodForecast:
        return next(period for period in self.periods if period.name == name)


def forecast(plan: PairPlan, book: PriceBook) -> CostForecast:
    """What a pair will need; `ConfigError` if its outages are longer than a year."""
    once = min(plan.outages_per_year, 1)
    return CostForecast(
        plan,
        book,
        (
            _period(plan, book, "day", 1, once),
            _period(plan, book, "month", MONTH_DAYS, once),
            _period(plan, book, "year", YEAR_DAYS, plan.outages_per_year),
        ),
    )


def _period(
    plan: PairPlan, book: PriceBook, name: str, days: int, outages: int
) -> PeriodForecast:
    count = outages if plan.fails_over else 0
    fits = count * (plan.outage_ms + plan.drain_ms) <= days * MS_PER_DAY
    if not fits and name == "year":
        raise ConfigError(
            f"{outages} outages and the time to drain them are longer than a year. "
            "Give a shorter --outage, fewer --outages-per-year or a higher "
            "--drain-rate."
        )
    count = count if fits else 0
    uses = PhaseUses(plan, days, count)
    time = Fraction(days)
    links = 2 * (plan.senders + plan.syphons)
    paired = Usage(time, namespaces=2, connections=links)
    phases = {IDLE: _figures(book, paired, uses.idle)}
    parts = {HEALTHY: uses.healthy}
    if fits:
        parts |= {FAILED_OVER: uses.failed_over, DRAINING: uses.draining}
    before: list[StageUses] = []
    for phase, part in parts.items():
        phases[phase] = _figures(book, paired, part, before)
        before.append(part)
    alone = Usage(time, connections=plan.senders)
    return PeriodForecast(
        name,
        days,
        count,
        phases,
        _together([phases[phase] for phase in parts]),
        _figures(book, alone, uses.unpaired),
    )


def _figures(
    book: PriceBook, frame: Usage, part: StageUses, before: Sequence[StageUses] = ()
) -> PhaseFigures:
    """What a part adds to those before it; the first one has what time costs."""
    counted = {stage: book.counted(use) for stage, use in part.items()}
    below = reduce(Usage.plus, (use for each in before for use in each.values()), frame)
    all_of_it = reduce(Usage.plus, part.values(), below)
    money = book.bill(all_of_it).total
    if before:
        money -= book.bill(below).total
    return PhaseFigures({s: counted[s] for s in STAGES if counted.get(s)}, money)


def _together(figures: Sequence[PhaseFigures]) -> PhaseFigures:
    stages = Counter[str]()
    for each in figures:
        stages.update(each.stages)
    money = sum((each.money for each in figures), Decimal(0))
    return PhaseFigures({s: stages[s] for s in STAGES if stages[s]}, money)


# -- usage by stage --------------------------------------------------------------------


class PhaseUses:
    """What each phase uses, by stage, in some days with so many outages."""

    def __init__(self, plan: PairPlan, days: int, outages: int) -> None:
        self._plan = plan
        self._days = Fraction(days)
        self._time_ms = days * MS_PER_DAY
        self._outages = outages
        self._units = schema.size_class(plan.size_bytes)
        self._all = plan.messages(self._time_ms)
        self._diverted = outages * plan.diverted
        # Sent while the backlog is drained.
        self._meanwhile = outages * plan.messages(plan.drain_ms)

    @property
    def idle(self) -> StageUses:
        """Nothing is sent at all."""
        return {POLLS: self._polls(self._time_ms)}

    @property
    def healthy(self) -> StageUses:
        """The time without an outage."""
        plan = self._plan
        quiet_ms = self._time_ms - self._outages * (plan.outage_ms + plan.drain_ms)
        count = self._all - self._diverted - self._meanwhile
        return self._direct(count) | {POLLS: self._polls(quiet_ms)}

    @property
    def failed_over(self) -> StageUses:
        """The outages themselves."""
        return {TO_BACKLOG: self._sends(self._diverted), PINGS: self._pings()}

    @property
    def draining(self) -> StageUses:
        """The backlog on its way home, and new messages beside it."""
        return self._direct(self._diverted + self._meanwhile) | {
            FROM_BACKLOG: self._receives(self._diverted),
            SETTLEMENTS: self._settlements(2 * self._diverted + self._meanwhile),
        }

    @property
    def unpaired(self) -> StageUses:
        """The same messages, each sent once and received once."""
        return self._direct(self._all)

    def _direct(self, messages: int) -> StageUses:
        return {
            TO_PRIMARY: self._sends(messages),
            FROM_PRIMARY: self._receives(messages),
            SETTLEMENTS: self._settlements(messages),
        }

    def _sends(self, messages: int) -> Usage:
        charges = {(schema.SEND, schema.ACCEPTED): messages * self._units}
        return Usage(self._days, charges, bytes_in=messages * self._plan.size_bytes)

    def _receives(self, messages: int) -> Usage:
        charges = {(schema.RECEIVE, schema.ACCEPTED): messages * self._units}
        return Usage(self._days, charges, bytes_out=messages * self._plan.size_bytes)

    def _settlements(self, messages: int) -> Usage:
        return Usage(self._days, {(schema.SETTLE, schema.ACCEPTED): messages})

    def _pings(self) -> Usage:
        plan = self._plan
        if not self._outages:
            return Usage(self._days)
        pinging = self._outages * plan.entities * plan.senders
        charges = {
            (schema.PING, schema.FAILED): pinging * (plan.pings - 1),
            # The last one of each is accepted and ends the outage.
            (schema.PING, schema.ACCEPTED): pinging,
        }
        return Usage(self._days, charges)

    def _polls(self, quiet_ms: int) -> Usage:
        charges = {(schema.POLL, schema.ACCEPTED): self._plan.polls(quiet_ms)}
        return Usage(self._days, charges)
