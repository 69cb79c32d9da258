"""Seeded runs of the rules against a world in which everything fails.

Owns a shell of the rules in simulated time (senders, timers, pings, probes, syphons)
and the invariants that hold whatever happens. One seed is one run, always the same.

  * lost: 0. What a send reported as accepted is in the primary when all is well again.
  * duplicates only where an outcome was unknown, and with the same id.
  * no healthy entity is diverted: no failover before the interval is over without a
    success, and none at all without a counted failure.
  * an entity that works again has failed back within one ping interval, or within the
    pause after its relapses.
  * no flapping: from a failback to the next failover a send was accepted, or the entity
    relapsed; after a relapse it fails back no sooner than its pause, which doubles, and
    one send at a time is on trial.
  * a send that is slower than `slow_send` is counted; one that the primary refuses is
    not diverted; one whose timeout has room for it reaches a backlog that is well.
  * every call ends, and by its deadline; nothing stays held.
  * what one backlog queue or the outbox holds for one entity leaves it in order, unless
    a syphon died.
  * with an outbox that is well, a send without a timeout never raises because both
    namespaces are away.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from tests.pairing.pump.pump import OUTBOX, OutboxPump, Pump, id_of
from tests.pairing.rules.flaps import Flaps
from tests.pairing.world import (
    COUNTED_MODES,
    Answer,
    BacklogQueue,
    Clock,
    Entity,
    Fault,
    Target,
    make_entity,
    make_queue,
    take_away,
)
from twinbus.errors import Disconnected
from twinbus.pairing.events import EventKind
from twinbus.pairing.rules import envelope
from twinbus.pairing.rules.classification import verdict_of
from twinbus.pairing.rules.decisions import (
    Decision,
    Divert,
    ProbeQueue,
    StartPing,
    StartTimer,
    Tell,
    Wake,
)
from twinbus.pairing.rules.policy import (
    EntityPolicy,
    EntityState,
    PairingPolicy,
    PolicySettings,
)
from twinbus.pairing.rules.rotation import Rotation, SenderChoice
from twinbus.pairing.rules.send_call import (
    Done,
    GiveUp,
    NextStep,
    SendCall,
    SendRules,
    TryBacklog,
    TryOutbox,
    TryPrimary,
    Wait,
)
from twinbus.pairing.rules.syphon_rules import SendToPrimary
from twinbus.wire.message.sections import encode_message

HOUR_MS = 3_600_000
# A ping and its answer, and all calls of the same moment.
SLACK_MS = 100


class Simulation:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.clock = Clock()
        self.start_ms = self.clock.now_ms
        chance = self.chance
        self.ping_ms = chance.choice([1_000, 10_000, 60_000])
        self.interval_ms = chance.choice([0, 0, 1_000, 10_000, 60_000])
        self.slow_ms = chance.choice([0, 0, 2_000])
        hold = chance.random() < 0.85
        settings = PolicySettings(self.interval_ms, self.ping_ms, hold, self.slow_ms)
        self.policy = PairingPolicy(settings)
        names = ["a", "b", "c"][: chance.randint(1, 3)]
        self.entities = {name: make_entity(self.clock, chance) for name in names}
        self.queues = [
            make_queue(self.clock, chance) for _ in range(chance.randint(1, 3))
        ]
        self.rotation = Rotation("contoso", range(len(self.queues)), chance.randrange)
        # A third place, on the disk of the senders' process; not all of them have one.
        self.outbox = make_queue(self.clock, chance) if chance.random() < 0.5 else None
        has_outbox = self.outbox is not None
        if has_outbox:
            take_away(chance, self.queues)
        self.rules = SendRules(self.rotation, chance.random, outbox=has_outbox)
        self._movers: dict[str, Mover] = {}
        self.runs: list[Run] = []
        # Sends that have not ended, or not begun.
        self.sends_left = 0
        self.syphons_die = chance.random() < 0.4
        faults = [each for target in self._targets() for each in target.faults]
        self.calm_ms = max((fault.end_ms for fault in faults), default=0)
        self.unknown: Counter[str] = Counter()
        self.last_accepted: dict[str, int] = {}
        self.suspect_since: dict[str, int] = {}
        self.flaps = {
            name: Flaps(self.ping_ms, self._backlog_takes) for name in self.entities
        }
        # In a dead-letter queue: too late, or the entity was missing.
        self.dead_lettered: set[str] = set()
        self.figures: Counter[str] = Counter()

    def _backlog_takes(self) -> bool:
        return any(map(self.rotation.is_in, range(len(self.queues))))

    def _targets(self) -> list[Target]:
        outbox = [] if self.outbox is None else [self.outbox]
        return [*self.entities.values(), *self.queues, *outbox]

    def run(self) -> None:
        """Let senders work through all faults, then look at what is left."""
        for queue in self.queues:
            Pump(self, queue).start()
        if self.outbox is not None:
            OutboxPump(self, self.outbox).start()
        for number in range(self.chance.randint(1, 5)):
            Sender(self, number).start()
        for name, entity in self.entities.items():
            for fault in entity.faults:
                self._watch_fail_back(name, entity, fault)
        self.clock.run(self.start_ms + 24 * HOUR_MS)
        self._check_end()

    def is_over(self) -> bool:
        """Whether faults are over, no send is under way and the outbox is empty."""
        moved = self.outbox is None or not self.outbox.messages
        return moved and not self.sends_left and self.clock.now_ms >= self.calm_ms

    def move(self, to_send: SendToPrimary, number: int, ended: Answer) -> None:
        """Bring a message of the outbox to the primary or to a backlog queue."""
        mover = self._movers.get(to_send.key)
        if mover is None:
            choice = SenderChoice(self.rotation)
            mover = self._movers[to_send.key] = Mover(self, to_send.key, choice)
        run = Move(mover, to_send, number, ended)
        self.runs.append(run)
        run.start()

    # -- carrying out decisions ----------------------------------------------------

    def apply(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, StartTimer):
                self._start_timer(decision)
            elif isinstance(decision, StartPing):
                self.clock.at(decision.at_ms, partial(self._ping, decision))
            elif isinstance(decision, ProbeQueue):
                self.clock.at(decision.at_ms, partial(self._probe, decision.index))
            elif isinstance(decision, Wake):
                self.clock.after(0, decision.call.wake)
            elif isinstance(decision, Divert):
                for run in self.runs:
                    if run.entity.key == decision.key and run.is_outside_the_line:
                        self.clock.after(0, run.wake)
            elif isinstance(decision, Tell):
                self._check_event(decision)

    def _start_timer(self, decision: StartTimer) -> None:
        # Cancelled timers fire here all the same: the rules must not mind.
        entity = self.policy.entity(decision.key)

        def fire() -> None:
            self.apply(entity.timer_fired(decision.timer_id, self.clock.now_ms))

        self.clock.at(decision.due_ms, fire)

    def _ping(self, decision: StartPing) -> None:
        policy = self.policy.entity(decision.key)
        ended: list[bool] = []

        def end(error: BaseException | None) -> None:
            if ended:
                return
            ended.append(True)
            verdict = None if error is None else verdict_of(error)
            now_ms = self.clock.now_ms
            self.apply(policy.ping_ended(decision.ping_id, verdict, error, now_ms))

        self.figures["pings"] += 1
        self.entities[decision.key].ping(end)
        self.clock.after(decision.timeout_ms, lambda: end(TimeoutError()))

    def _probe(self, index: int) -> None:
        bad = self.queues[index].mode() is not None
        cause = ConnectionRefusedError() if bad else None
        self.apply(self.rotation.probe_ended(index, cause, self.clock.now_ms))

    # -- invariants ----------------------------------------------------------------

    def note_accepted(self, key: str) -> None:
        self.last_accepted[key] = self.clock.now_ms

    def _check_event(self, decision: Tell) -> None:
        event = decision.event
        if event.path in self.flaps:
            self.flaps[event.path].note(event)
        self.figures[event.kind.value] += 1
        if event.kind is EventKind.SUSPECT:
            self.suspect_since[event.path] = event.at_ms
        elif event.kind is EventKind.FAILED_OVER:
            since_ms = self.suspect_since.get(event.path, event.at_ms)
            if self.interval_ms:
                assert event.at_ms - since_ms >= self.interval_ms, "too early"
                accepted_ms = self.last_accepted.get(event.path, 0)
                assert accepted_ms <= since_ms, "there was a success"
            modes = {fault.mode for fault in self.entities[event.path].faults}
            assert modes & set(COUNTED_MODES), "diverted, and nothing was wrong"

    def _watch_fail_back(self, name: str, entity: Entity, fault: Fault) -> None:
        check_ms = fault.end_ms + self.ping_ms + SLACK_MS
        if not entity.is_calm(fault.end_ms, check_ms):
            return

        def check() -> None:
            policy = self.policy.entity(name)
            since_ms = policy.status().since_ms or 0
            stuck = policy.state is EntityState.FAILED_OVER and since_ms <= fault.end_ms
            pause_ms = self.flaps[name].pause_ms
            if stuck and pause_ms > self.ping_ms:
                # The first ping after a relapse is the one that waits longer.
                stuck = self.clock.now_ms > since_ms + pause_ms + self.ping_ms
            assert not stuck, "did not fail back within one ping interval"

        self.clock.at(check_ms, check)

    def must_succeed(self, run: Run) -> bool:
        """Whether a send ends well, in the primary, the backlog or the outbox."""
        modes = {fault.mode for fault in run.primary.faults}
        if not self.policy.settings.hold or not modes <= set(COUNTED_MODES):
            return False
        if self.outbox is not None and not self.outbox.faults and not run.timeout_ms:
            return True
        return (
            run.timeout_ms >= 3_000
            and self.interval_ms == 0
            and not any(queue.faults for queue in self.queues)
        )

    def _check_end(self) -> None:
        assert self.sends_left == 0, "a call never ended"
        assert self.policy.budget.held == 0, "something is still held"
        assert self.policy.budget.held_bytes == 0
        for queue in self.queues:
            assert not queue.messages, "the backlog is not home"
        assert self.outbox is None or not self.outbox.messages, (
            "the outbox is not empty"
        )
        for run in self.runs:
            if isinstance(run, Move):
                continue
            copies = run.primary.copies.get(run.message_id, 0)
            if run.result == "done" and run.message_id not in self.dead_lettered:
                assert copies, f"{run.message_id} is lost"
            allowed = 1 + self.unknown[run.message_id]
            assert copies <= allowed, f"{run.message_id}: {copies} copies"
            if self.must_succeed(run):
                assert run.result != "raised", "raised, and there was a place for it"
            self.figures[run.result] += 1
            self.figures["duplicates"] += max(copies - 1, 0)
        if not self.syphons_die:
            lines = [line for e in self.entities.values() for line in e.home.values()]
            lines += [line for queue in self.queues for line in queue.moved.values()]
            for numbers in lines:
                assert numbers == sorted(numbers), "out of order"


class Sender:
    """An application's sender: some sends, one after the other or together."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation = simulation
        self.number = number
        chance = simulation.chance
        self.name = chance.choice(list(simulation.entities))
        self.choice = SenderChoice(simulation.rotation)
        self.rules = simulation.rules
        self.left = chance.randint(2, 16)
        simulation.sends_left += self.left
        self.pace_ms = chance.choice([500, 4_000, 12_000])

    def start(self) -> None:
        clock, chance = self.simulation.clock, self.simulation.chance
        self.left -= 1
        message_id = f"{self.number}-{self.left}"
        run = Run(self, message_id)
        self.simulation.runs.append(run)
        if chance.random() < 0.15:
            clock.after(int(chance.expovariate(1 / 3_000)), run.cancel)
        run.start()
        if self.left:
            clock.after(int(chance.expovariate(1 / self.pace_ms)), self.start)


def is_unknown(error: BaseException) -> bool:
    """Whether the message may be stored although its send failed."""
    return isinstance(error, TimeoutError | Disconnected)


class _Attempt:
    """A send to the primary or to a queue that may be answered more than once."""

    def __init__(self, token: int, now_ms: int) -> None:
        self.token = token
        self.begun_ms = now_ms
        self.answered = False


class Run:
    """One call of send, as a shell runs it."""

    def __init__(self, sender: Sender | Mover, message_id: str) -> None:
        self.simulation = sender.simulation
        self.message_id = message_id
        self.primary = self.simulation.entities[sender.name]
        self.entity: EntityPolicy = self.simulation.policy.entity(sender.name)
        self.payload, self.timeout_ms = self._plan()
        self.deadline_ms: int | None = None
        if self.timeout_ms:
            self.deadline_ms = self.clock.now_ms + self.timeout_ms
        self.call = SendCall(
            sender.rules,
            self.entity,
            sender.choice,
            len(self.payload),
            self.deadline_ms,
        )
        self.call.on_wake = self.wake
        self.on_fast_path = False
        # Its message has gone to a backlog queue.
        self.diverted = False
        self.attempt: _Attempt | None = None
        self.generation = 0
        self.result = ""
        # What it raised.
        self.error: BaseException | None = None

    def _plan(self) -> tuple[bytes, int]:
        """What is sent, and the caller's timeout; 0 for none."""
        chance = self.simulation.chance
        ttl_ms = chance.choice([None, None, None, 200_000])
        payload = encode_message(b"body", {0: self.message_id}, ttl_ms)
        limited = chance.random() < 0.3
        return payload, chance.choice([100, 600, 3_000, 15_000, 100_000]) * limited

    @property
    def clock(self) -> Clock:
        return self.simulation.clock

    @property
    def flaps(self) -> Flaps:
        return self.simulation.flaps[self.entity.key]

    @property
    def is_outside_the_line(self) -> bool:
        place = self.call._place
        return not self.result and not (place is not None and place.standing)

    def start(self) -> None:
        careful = self.entity.slow_send_ms or (
            self.deadline_ms and self.entity.fails_over_at_once
        )
        if self.entity.direct and not careful:
            self.on_fast_path = True
            end_ms = self.clock.now_ms + self.simulation.rules.attempt_ms
            self._try_primary(min(end_ms, self.deadline_ms or end_ms))
        else:
            self._do(self.call.start(self.clock.now_ms))

    def wake(self) -> None:
        if self.result:
            return
        if self.on_fast_path:
            self.on_fast_path = False
            self._do(self.call.adopt(self.clock.now_ms))
        else:
            self._do(self.call.woken(self.clock.now_ms))

    def cancel(self) -> None:
        if self.result:
            return
        self.simulation.unknown[self.message_id] += 1
        self.simulation.apply(self.call.cancelled())
        if self.attempt is not None:
            self.flaps.end(self.attempt)
            # The call has told the entity; an answer that comes later is not told.
            self.attempt.token = 0
        self._finish("cancelled")

    def _finish(self, result: str) -> None:
        assert not self.result
        self.result = result
        self.simulation.sends_left -= 1
        if self.deadline_ms is not None and result != "cancelled":
            assert self.clock.now_ms <= self.deadline_ms + SLACK_MS, "late"

    def _do(self, turn: NextStep) -> None:
        step = turn.step
        self.simulation.apply(turn.decisions)
        if isinstance(step, Wait):
            self._wait(step.until_ms)
            return
        self.generation += 1
        if isinstance(step, TryPrimary):
            self._try_primary(step.deadline_ms)
            if step.slow_ms is not None:
                self._wait(step.slow_ms)
        elif isinstance(step, TryBacklog):
            self._try_backlog(step, self.simulation.queues[step.index])
        elif isinstance(step, TryOutbox):
            assert self.simulation.outbox is not None
            self._try_backlog(step, self.simulation.outbox)
        elif isinstance(step, Done):
            self._finish("done")
        else:
            assert isinstance(step, GiveUp)
            self.error = TimeoutError() if step.timed_out else step.cause
            self._finish("raised")

    def _wait(self, until_ms: int | None) -> None:
        self.generation += 1
        generation = self.generation

        def over() -> None:
            if generation == self.generation:
                self.wake()

        if until_ms is not None:
            self.clock.at(until_ms, over)

    # -- the primary ---------------------------------------------------------------

    def _try_primary(self, deadline_ms: int) -> None:
        attempt = self.attempt = _Attempt(self.call.attempt, self.clock.now_ms)
        self.flaps.begin(attempt)
        self.primary.send(
            self._store,
            lambda error: self._primary_answered(attempt, error),
        )
        late = TimeoutError()
        self.clock.at(deadline_ms, lambda: self._primary_answered(attempt, late))

    def _store(self) -> None:
        """The primary has it."""
        self.primary.store(self.message_id)

    def _primary_answered(self, attempt: _Attempt, error: Any) -> None:
        now_ms = self.clock.now_ms
        again, attempt.answered = attempt.answered, True
        self.flaps.end(attempt)
        self._check_slow(attempt, again)
        late = self.diverted or self.call.is_slow
        if error is None and not late:
            self.simulation.note_accepted(self.entity.key)
        elif not again and is_unknown(error):
            self.simulation.unknown[self.message_id] += 1
        if self.attempt is not attempt or self.result or again:
            # The call has moved on: only the entity wants to know.
            self._tell_entity(0 if again else attempt.token, error, again)
            return
        self.attempt = None
        fast, self.on_fast_path = self.on_fast_path, False
        if error is None:
            self._do(self.call.primary_accepted(now_ms))
        elif fast:
            attempt_ms = self.timeout_ms or self.simulation.rules.attempt_ms
            self._do(self.call.fast_path_failed(error, now_ms, attempt_ms))
        else:
            self._do(self.call.primary_failed(error, now_ms))

    def _check_slow(self, attempt: _Attempt, again: bool) -> None:
        slow_ms, now_ms = self.simulation.slow_ms, self.clock.now_ms
        # One that waits for a backlog queue has left its attempt.
        waits = self.attempt is attempt and self.call._trying and not again
        if slow_ms and waits and now_ms > attempt.begun_ms + slow_ms:
            assert self.call.is_slow, "a slow send is not counted"

    def _tell_entity(self, token: int, error: Any, again: bool) -> None:
        now_ms = self.clock.now_ms
        if error is None:
            late = self.diverted or self.call.is_slow
            self.simulation.apply(self.entity.accepted(token, now_ms, late=late))
        elif not again:
            self.entity.forgotten(token)

    # -- the backlog and the outbox ------------------------------------------------

    def _try_backlog(self, step: TryBacklog | TryOutbox, queue: BacklogQueue) -> None:
        state = self.entity.state
        assert not self.flaps.refused, "diverted what the primary refuses"
        on_trial = state is EntityState.PROBATION and self.flaps.relapses > 0
        assert state is EntityState.FAILED_OVER or on_trial, (
            "a healthy entity is diverted"
        )
        self.diverted = True
        if self.attempt is not None:
            self.flaps.end(self.attempt)
            self.attempt = None
            self.simulation.unknown[self.message_id] += 1
        payload = envelope.divert(self.payload, self.entity.path, self.clock.now_ms)
        attempt = self.attempt = _Attempt(0, self.clock.now_ms)
        is_outbox = isinstance(step, TryOutbox)
        self.simulation.figures["to outbox" if is_outbox else "diverted"] += 1

        def answered(error: BaseException | None) -> None:
            self._backlog_answered(attempt, error, is_outbox=is_outbox)

        queue.send(lambda: self._store_diverted(queue, payload), answered)
        late = TimeoutError()
        self.clock.at(step.deadline_ms, lambda: answered(late))

    def _store_diverted(self, queue: BacklogQueue, payload: bytes) -> None:
        queue.store(payload)

    def _backlog_answered(
        self, attempt: _Attempt, error: BaseException | None, *, is_outbox: bool
    ) -> None:
        if attempt.answered or self.result:
            return
        attempt.answered = True
        self.attempt = None
        call, now_ms = self.call, self.clock.now_ms
        if error is not None:
            self.simulation.unknown[self.message_id] += is_unknown(error)
            failed = call.outbox_failed if is_outbox else call.backlog_failed
            self._do(failed(error, now_ms))
        elif is_outbox:
            self._do(call.outbox_accepted())
        else:
            self._do(call.backlog_accepted(now_ms))


@dataclass
class Mover:
    """What the messages of the outbox for one entity have in common."""

    simulation: Simulation
    name: str
    choice: SenderChoice

    @property
    def rules(self) -> SendRules:
        """What comes out of the outbox does not go into it."""
        return replace(self.simulation.rules, outbox=False)


class Move(Run):
    """A message on its way from the outbox to the primary or to a backlog queue."""

    def __init__(
        self, mover: Mover, to_send: SendToPrimary, number: int, ended: Answer
    ) -> None:
        self._to_send = to_send
        self._number = number
        self._ended = ended
        super().__init__(mover, id_of(to_send.payload))

    def _plan(self) -> tuple[bytes, int]:
        return self._to_send.payload, 2 * self.simulation.rules.attempt_ms

    def _store(self) -> None:
        self.primary.store_home(self.message_id, OUTBOX, self._number)

    def _store_diverted(self, queue: BacklogQueue, payload: bytes) -> None:
        super()._store_diverted(queue, payload)
        queue.note_moved(self.entity.key, self._number)

    def _finish(self, result: str) -> None:
        self.result = result
        self._ended(self.error if result == "raised" else None)
