"""Thirty days of a pair in simulated time, as rows of a ledger.

Owns a small shell of the pairing rules: factories that send evenly, a primary that is
away for a time, pings, backlog queues and syphons. Failover, pings, what a call does
next and where a message goes home to are decided by `pairing/rules`; nothing of them is
repeated here. The rows are those that clients and syphons write.

Answers come at once, so that every count is exact. Senders begin some seconds apart.
The syphons wait at every queue, and take up the backlog when the last entity has
failed back; queues with a backlog have no empty polls. `ledger_rows` is the entry.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from itertools import count
from math import ceil
from typing import Any

from twinbus.cost.forecast import PairPlan
from twinbus.ledger.schema import (
    ACCEPTED,
    AMQP,
    CLIENT,
    FAILED,
    PING,
    POLL,
    RECEIVE,
    SEND,
    SETTLE,
    SYPHON,
    size_class,
)
from twinbus.pairing.rules import envelope
from twinbus.pairing.rules.classification import verdict_of
from twinbus.pairing.rules.decisions import (
    Decision,
    Divert,
    StartPing,
    StartTimer,
    Wake,
)
from twinbus.pairing.rules.policy import EntityPolicy, PairingPolicy, PolicySettings
from twinbus.pairing.rules.rotation import Rotation, SenderChoice
from twinbus.pairing.rules.send_call import (
    Done,
    NextStep,
    SendCall,
    SendRules,
    TryBacklog,
    TryPrimary,
    Wait,
)
from twinbus.pairing.rules.syphon_rules import SendToPrimary, decide
from twinbus.wire.message.sections import encode_message

START = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 30
MONTH_MS = DAYS * 86_400_000
PRIMARY, SECONDARY = "contoso", "fabrikam"
_AWAY = ConnectionRefusedError("away")
_START_MS = int(START.timestamp() * 1_000)

# Minute, namespace, writer, source, entity, operation, outcome, size class.
_Key = tuple[int, str, str, str, str, str, str, int]


@dataclass(frozen=True, slots=True)
class Party:
    """Who writes a row, and about what."""

    namespace: str
    writer: str
    source: str
    entity: str


class Ledger:
    """Counts operations by minute."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._counts: Counter[_Key] = Counter()

    def add(
        self, at_ms: int, party: Party, operation: str, outcome: str = ACCEPTED
    ) -> None:
        is_message = operation in (SEND, RECEIVE)
        units = size_class(self._size_bytes) if is_message else 0
        minute = at_ms // 60_000
        place = (party.namespace, party.writer, party.source, party.entity)
        self._counts[(minute, *place, operation, outcome, units)] += 1

    def rows(self) -> list[dict[str, Any]]:
        """The rows, with the columns of the ledger."""
        return [self._row(key, number) for key, number in sorted(self._counts.items())]

    def _row(self, key: _Key, number: int) -> dict[str, Any]:
        minute, namespace, writer, source, entity, operation, outcome, units = key
        moved = number * self._size_bytes if outcome == ACCEPTED else 0
        return {
            "minute": datetime.fromtimestamp(_START_MS / 1_000 + minute * 60, UTC),
            "namespace": namespace,
            "writer": writer,
            "source": source,
            "entity": entity,
            "operation": operation,
            "outcome": outcome,
            "key": "",
            "connection": AMQP,
            "size_class": units,
            "operations": number * max(units, 1),
            "messages": number if units else 0,
            "bytes_in": moved if operation == SEND else 0,
            "bytes_out": moved if operation == RECEIVE else 0,
            "gap_minutes": 0,
        }


class World:
    """Simulated time, the primary, the backlog queues and the ledger."""

    def __init__(self, plan: PairPlan, outages_ms: Sequence[int]) -> None:
        self.plan = plan
        self.ledger = Ledger(plan.size_bytes)
        self.now_ms = 0
        self._outages_ms = outages_ms
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        # By index: what was diverted and is not home, and since when.
        self.backlog: dict[int, list[bytes]] = {}
        self._busy_since_ms: dict[int, int] = {}
        # When each backlog queue had messages.
        self._busy: dict[int, list[tuple[int, int]]] = {}

    def at(self, time_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(
            self._events, (max(time_ms, self.now_ms), next(self._numbers), call)
        )

    def run_to(self, time_ms: int) -> None:
        """Let everything happen until then, and at that moment."""
        while self._events and self._events[0][0] <= time_ms:
            self.now_ms, _, call = heapq.heappop(self._events)
            call()
        self.now_ms = time_ms

    @property
    def away(self) -> bool:
        """Whether the primary answers nothing now."""
        return any(
            start_ms <= self.now_ms < start_ms + self.plan.outage_ms
            for start_ms in self._outages_ms
        )

    # -- the primary and the backlog ---------------------------------------------------

    def arrive(self, path: str) -> None:
        """The primary has a message, which an application receives and completes."""
        party = Party(PRIMARY, "receiver", CLIENT, path)
        self.ledger.add(self.now_ms, party, RECEIVE)
        self.ledger.add(self.now_ms, party, SETTLE)

    def keep(self, index: int, payload: bytes) -> None:
        """A backlog queue has a message."""
        self.backlog.setdefault(index, []).append(payload)
        self._busy_since_ms.setdefault(index, self.now_ms)

    def drain(self) -> None:
        """Move the backlog home, one message after the other."""
        start_ms = self.now_ms
        waiting = [(i, each) for i in sorted(self.backlog) for each in self.backlog[i]]
        for number, (index, payload) in enumerate(waiting):
            due_ms = start_ms + int(number / self.plan.drain_rate * 1_000)
            self.at(due_ms, partial(self._bring_home, index, payload, number))
        end_ms = start_ms + ceil(len(waiting) / self.plan.drain_rate * 1_000)
        for index, since_ms in self._busy_since_ms.items():
            self._busy.setdefault(index, []).append((since_ms, end_ms))
        self._busy_since_ms, self.backlog = {}, {}

    def _bring_home(self, index: int, payload: bytes, number: int) -> None:
        writer = f"syphon-{number % max(self.plan.syphons, 1)}"
        queue = Party(SECONDARY, writer, SYPHON, backlog_entity(index))
        self.ledger.add(self.now_ms, queue, RECEIVE)
        outcome = decide(payload, _START_MS + self.now_ms)
        assert isinstance(outcome, SendToPrimary)
        home = Party(PRIMARY, writer, SYPHON, outcome.path)
        self.ledger.add(self.now_ms, home, SEND)
        self.ledger.add(self.now_ms, queue, SETTLE)
        self.arrive(outcome.path)

    def poll(self) -> None:
        """Add the empty polls of the month: each syphon waits at each queue."""
        for index in range(self.plan.backlog_queues):
            quiet_ms = 0
            for since_ms, until_ms in [*self._busy.get(index, []), (MONTH_MS, 0)]:
                self._poll_queue(index, quiet_ms, since_ms)
                quiet_ms = until_ms

    def _poll_queue(self, index: int, start_ms: int, stop_ms: int) -> None:
        poll_ms = self.plan.poll_ms
        for number in range(self.plan.syphons):
            writer = f"syphon-{number}"
            party = Party(SECONDARY, writer, SYPHON, backlog_entity(index))
            for end_ms in range(start_ms + poll_ms, stop_ms + 1, poll_ms):
                # In the minute that ends with it, so that the last is in the month.
                self.ledger.add(end_ms - 1, party, POLL)


def backlog_entity(index: int) -> str:
    return f"{PRIMARY}/x-servicebus-transfer/{index}"


class Factory:
    """One process that sends: the state of the entities, and its pings."""

    def __init__(self, world: World, name: str, chance: Callable[[int], int]) -> None:
        plan = world.plan
        self.world = world
        self.name = name
        self.policy = PairingPolicy(
            PolicySettings(plan.failover_interval_ms, plan.ping_interval_ms)
        )
        self.rotation = Rotation(PRIMARY, range(plan.backlog_queues), chance)
        self.rules = SendRules(self.rotation, lambda: 0.5)
        self.open_calls: list[Call] = []

    def party(self, path: str) -> Party:
        return Party(PRIMARY, self.name, CLIENT, path)

    def apply(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, StartTimer):
                self.world.at(decision.due_ms, partial(self._fire, decision))
            elif isinstance(decision, StartPing):
                self.world.at(decision.at_ms, partial(self._ping, decision))
            elif isinstance(decision, Wake):
                self.world.at(self.world.now_ms, decision.call.wake)
            elif isinstance(decision, Divert):
                for call in self.open_calls:
                    self.world.at(self.world.now_ms, call.wake)

    def _fire(self, decision: StartTimer) -> None:
        entity = self.policy.entity(decision.key)
        self.apply(entity.timer_fired(decision.timer_id, self.world.now_ms))

    def _ping(self, decision: StartPing) -> None:
        entity = self.policy.entity(decision.key)
        error = _AWAY if self.world.away else None
        outcome, verdict = ACCEPTED, None
        if error is not None:
            outcome, verdict = FAILED, verdict_of(error)
        now_ms = self.world.now_ms
        self.world.ledger.add(now_ms, self.party(entity.path), PING, outcome)
        self.apply(entity.ping_ended(decision.ping_id, verdict, error, now_ms))


class Sender:
    """What one factory sends to one entity."""

    def __init__(self, factory: Factory, path: str) -> None:
        self.factory = factory
        self.entity: EntityPolicy = factory.policy.entity(path)
        self.choice = SenderChoice(factory.rotation)

    def send(self) -> None:
        world = self.factory.world
        if self.entity.direct and not world.away:
            # The fast path of the shell, which asks the rules nothing.
            party = self.factory.party(self.entity.path)
            world.ledger.add(world.now_ms, party, SEND)
            world.arrive(self.entity.path)
            return
        Call(self).start()


class Call:
    """One call of send that is not on the fast path, or fails there."""

    def __init__(self, sender: Sender) -> None:
        self.factory = sender.factory
        self.world = sender.factory.world
        self.entity = sender.entity
        size = self.world.plan.size_bytes
        rules = sender.factory.rules
        self.call = SendCall(rules, sender.entity, sender.choice, size, None)
        self.call.on_wake = self.wake
        self.is_open = True
        self._waits = 0

    def start(self) -> None:
        self.factory.open_calls.append(self)
        if self.entity.direct:
            self._try_primary(fast=True)
        else:
            self._do(self.call.start(self.world.now_ms))

    def wake(self) -> None:
        if self.is_open:
            self._do(self.call.woken(self.world.now_ms))

    def _do(self, turn: NextStep) -> None:
        self._waits += 1
        self.factory.apply(turn.decisions)
        step = turn.step
        if isinstance(step, Wait):
            if step.until_ms is not None:
                self.world.at(step.until_ms, partial(self._waited, self._waits))
        elif isinstance(step, TryPrimary):
            self._try_primary(fast=False)
        elif isinstance(step, TryBacklog):
            self._divert(step.index)
        else:
            assert isinstance(step, Done), step
            self.is_open = False
            self.factory.open_calls.remove(self)

    def _waited(self, number: int) -> None:
        if number == self._waits:
            self.wake()

    def _try_primary(self, *, fast: bool) -> None:
        world, now_ms = self.world, self.world.now_ms
        away = world.away
        party = self.factory.party(self.entity.path)
        world.ledger.add(now_ms, party, SEND, FAILED if away else ACCEPTED)
        if not away:
            world.arrive(self.entity.path)
            self._do(self.call.primary_accepted(now_ms))
        elif fast:
            attempt_ms = self.factory.rules.attempt_ms
            self._do(self.call.fast_path_failed(_AWAY, now_ms, attempt_ms))
        else:
            self._do(self.call.primary_failed(_AWAY, now_ms))

    def _divert(self, index: int) -> None:
        now_ms = self.world.now_ms
        message = encode_message(b"order", {0: "id"}, None)
        payload = envelope.divert(message, self.entity.path, _START_MS + now_ms)
        self.world.keep(index, payload)
        path = self.factory.rotation.path(index)
        party = Party(SECONDARY, self.factory.name, CLIENT, path)
        self.world.ledger.add(now_ms, party, SEND)
        self._do(self.call.backlog_accepted(now_ms))


def ledger_rows(plan: PairPlan, outages_ms: Sequence[int] = ()) -> list[dict[str, Any]]:
    """The rows of 30 days from `START`, in which the primary is away from these times.

    `plan.outages_per_year` is not looked at. Messages are sent evenly, so a sender has
    to have a whole number of milliseconds from one message to the next.
    """
    world = World(plan, outages_ms)
    chance = count()
    senders = [
        Sender(factory, f"orders-{number}")
        for factory in (
            Factory(world, f"sender-{each}", lambda most: next(chance) % most)
            for each in range(plan.senders)
        )
        for number in range(plan.entities)
    ]
    pace_ms = Fraction(1_000 * len(senders)) / plan.rate
    assert pace_ms.denominator == 1, "a sender has no even pace"
    apart_ms = min(int(pace_ms), plan.ping_interval_ms) // len(senders)
    for begin_ms in range(0, MONTH_MS, int(pace_ms)):
        for number, sender in enumerate(senders):
            world.run_to(begin_ms + number * apart_ms)
            sender.send()
        is_home = all(sender.entity.direct for sender in senders)
        if world.backlog and is_home and not world.away:
            world.drain()
    world.run_to(MONTH_MS)
    world.poll()
    return world.ledger.rows()
