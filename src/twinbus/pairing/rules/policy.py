"""One state machine for each entity of the primary: when it fails over, and back.

Everything that changes the state of an entity is in this file, and `TRANSITIONS` is all
of it: what is not in the table changes nothing. The chart in the documentation is made
from the table.

    healthy       sends go to the primary
    suspect       a failure was counted and the timer runs; sends still go to the
                  primary, and those that fail are held
    deciding      the timer fired, but no send has failed since it started: a ping
                  finds out whether the entity is away
    failed over   sends go to the backlog, and pings ask whether the entity is back

To the outside, deciding is suspect. The machine is shared by every sender of a factory.
It takes events and the time, and returns decisions (`decisions.py`); it has no clock,
no timer and no connection. What a failure is, is `classification.py`; what one call of
send does next, is `send_call.py`.

A shell on its fast path needs one look: while `direct` is true, send to the primary,
and come back here only if that fails.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import MappingProxyType

from twinbus import limits
from twinbus.core.names import strip_uri
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.decisions import (
    CancelTimer,
    Decision,
    Divert,
    Resume,
    StartPing,
    StartTimer,
    StopPinging,
    Tell,
    Wake,
)
from twinbus.pairing.rules.holding import HoldBudget, Line
from twinbus.pairing.rules.ping import next_ping_ms, ping_timeout_ms
from twinbus.pairing.status import EntityStatus, PairingStatus


class EntityState(enum.Enum):
    """Where an entity stands; the value is the word in the chart."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    DECIDING = "deciding"
    FAILED_OVER = "failed over"


class Input(enum.Enum):
    """What can happen to an entity; the value is the label in the chart."""

    ACCEPTED = "a primary send is accepted"
    FAILED = "a counted failure"
    FAILED_AT_ZERO = "a counted failure, with interval 0"
    TIMER_AFTER_FAILURES = "the timer fires, with no success since it started"
    TIMER_AFTER_SILENCE = "the timer fires after silence"
    PING_ACCEPTED = "a ping is accepted"
    PING_ANSWERED = "a ping is answered, but not accepted"
    PING_FAILED = "a ping fails"
    MARKED_HEALTHY = "mark_healthy"


class PolicyAction(enum.Enum):
    """What follows; the value is the word in the chart."""

    START_TIMER = "start the timer"
    CANCEL_TIMER = "cancel the timer"
    PING_NOW = "ping at once"
    PING_NEXT = "plan the next ping"
    STOP_PINGING = "stop pinging"
    DIVERT = "send what is held to the backlog"
    RESUME = "send what is held to the primary"


@dataclass(frozen=True, slots=True)
class Move:
    """A line of the table: the next state, what to do, what to tell."""

    to: EntityState
    actions: tuple[PolicyAction, ...]
    events: tuple[EventKind, ...] = ()


_SWITCH = (PolicyAction.PING_NOW, PolicyAction.DIVERT)
_SWITCH_AFTER_PING = (PolicyAction.PING_NEXT, PolicyAction.DIVERT)
_CALM = (PolicyAction.CANCEL_TIMER, PolicyAction.RESUME)
_BACK = (PolicyAction.STOP_PINGING, PolicyAction.RESUME)
_OVER = (EventKind.FAILED_OVER,)
_RECOVERED = (EventKind.RECOVERED,)

TRANSITIONS: MappingProxyType[tuple[EntityState, Input], Move] = MappingProxyType(
    {
        (EntityState.HEALTHY, Input.FAILED): Move(
            EntityState.SUSPECT, (PolicyAction.START_TIMER,), (EventKind.SUSPECT,)
        ),
        (EntityState.HEALTHY, Input.FAILED_AT_ZERO): Move(
            EntityState.FAILED_OVER, _SWITCH, _OVER
        ),
        # Suspect: later failures are not in the table, so the timer is not restarted.
        (EntityState.SUSPECT, Input.ACCEPTED): Move(
            EntityState.HEALTHY, _CALM, _RECOVERED
        ),
        (EntityState.SUSPECT, Input.MARKED_HEALTHY): Move(
            EntityState.HEALTHY, _CALM, _RECOVERED
        ),
        (EntityState.SUSPECT, Input.TIMER_AFTER_FAILURES): Move(
            EntityState.FAILED_OVER, _SWITCH, _OVER
        ),
        (EntityState.SUSPECT, Input.TIMER_AFTER_SILENCE): Move(
            EntityState.DECIDING, (PolicyAction.PING_NOW,)
        ),
        # Deciding: whatever answers at all is no outage.
        (EntityState.DECIDING, Input.ACCEPTED): Move(
            EntityState.HEALTHY, _BACK, _RECOVERED
        ),
        (EntityState.DECIDING, Input.MARKED_HEALTHY): Move(
            EntityState.HEALTHY, _BACK, _RECOVERED
        ),
        (EntityState.DECIDING, Input.PING_ACCEPTED): Move(
            EntityState.HEALTHY, _BACK, (EventKind.PING_ACCEPTED, EventKind.RECOVERED)
        ),
        (EntityState.DECIDING, Input.PING_ANSWERED): Move(
            EntityState.HEALTHY, _BACK, _RECOVERED
        ),
        (EntityState.DECIDING, Input.PING_FAILED): Move(
            EntityState.FAILED_OVER,
            _SWITCH_AFTER_PING,
            (EventKind.PING_FAILED, EventKind.FAILED_OVER),
        ),
        (EntityState.DECIDING, Input.FAILED): Move(
            EntityState.FAILED_OVER, _SWITCH_AFTER_PING, _OVER
        ),
        (EntityState.FAILED_OVER, Input.ACCEPTED): Move(
            EntityState.HEALTHY, _BACK, (EventKind.FAILED_BACK,)
        ),
        (EntityState.FAILED_OVER, Input.MARKED_HEALTHY): Move(
            EntityState.HEALTHY, _BACK, (EventKind.FAILED_BACK,)
        ),
        (EntityState.FAILED_OVER, Input.PING_ACCEPTED): Move(
            EntityState.HEALTHY, _BACK, (EventKind.PING_ACCEPTED, EventKind.FAILED_BACK)
        ),
        (EntityState.FAILED_OVER, Input.PING_ANSWERED): Move(
            EntityState.FAILED_OVER, (PolicyAction.PING_NEXT,), (EventKind.PING_FAILED,)
        ),
        (EntityState.FAILED_OVER, Input.PING_FAILED): Move(
            EntityState.FAILED_OVER, (PolicyAction.PING_NEXT,), (EventKind.PING_FAILED,)
        ),
    }
)


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What the machines of a factory have in common."""

    failover_interval_ms: int = limits.PAIR_INTERVAL_MS_DEFAULT
    ping_interval_ms: int = limits.PAIR_INTERVAL_MS_DEFAULT
    # Whether a send that fails on a suspect entity waits, or raises.
    hold: bool = True


# A send to the primary under way: the timer that ran when it began, or 0 for none.
Attempt = int


class EntityPolicy:
    """The state machine of one entity."""

    __slots__ = (
        "_failed_since",
        "_pending_since",
        "_ping_at_ms",
        "_ping_id",
        "_ping_open",
        "_settings",
        "_status",
        "_timer_due_ms",
        "_timer_id",
        "key",
        "line",
        "path",
        "state",
    )

    def __init__(self, path: str, settings: PolicySettings, budget: HoldBudget) -> None:
        self.path = path
        self.key = entity_key(path)
        self.state = EntityState.HEALTHY
        self.line = Line(budget)
        self._settings = settings
        self._status = EntityStatus(path)
        # Counts timers; the last one runs while the entity is suspect.
        self._timer_id = 0
        self._timer_due_ms = 0
        # Attempts that began since the timer started: without an answer, and failed.
        self._pending_since = 0
        self._failed_since = False
        self._ping_id = 0
        self._ping_at_ms = 0
        # A ping is planned or under way.
        self._ping_open = False

    # -- for the shell's fast path -------------------------------------------------

    @property
    def direct(self) -> bool:
        """Whether a send may simply go to the primary."""
        return self.state is EntityState.HEALTHY and not self.line

    @property
    def hold(self) -> bool:
        """Whether sends wait for a suspect entity."""
        return self._settings.hold

    # -- sends to the primary ------------------------------------------------------

    def begin(self) -> Attempt:
        """A send to the primary begins. End it with one of the three below."""
        if self.state not in (EntityState.SUSPECT, EntityState.DECIDING):
            return 0
        self._pending_since += 1
        return self._timer_id

    def accepted(self, attempt: Attempt, now_ms: int) -> list[Decision]:
        """The primary accepted a send, however late."""
        self._end(attempt)
        return self._apply(Input.ACCEPTED, now_ms, None)

    def failed(
        self, attempt: Attempt, verdict: Verdict, cause: BaseException, now_ms: int
    ) -> list[Decision]:
        """A send to the primary failed. Only a counted failure matters here."""
        since = self._end(attempt)
        if verdict is not Verdict.COUNTED:
            return []
        self._status.counted_failures += 1
        self._note(cause, now_ms)
        self._failed_since = self._failed_since or since
        if self.state is EntityState.DECIDING and not since:
            # It began before the blip that the ping is looking into.
            return []
        at_zero = not self._settings.failover_interval_ms
        return self._apply(
            Input.FAILED_AT_ZERO if at_zero else Input.FAILED, now_ms, cause
        )

    def forgotten(self, attempt: Attempt) -> None:
        """A send was cancelled: how it ended stays unknown."""
        self._end(attempt)

    def _end(self, attempt: Attempt) -> bool:
        """Whether the attempt began since the timer started."""
        if not attempt or attempt != self._timer_id:
            return False
        self._pending_since -= 1
        return self.state in (EntityState.SUSPECT, EntityState.DECIDING)

    # -- everything else that can happen -------------------------------------------

    def timer_fired(self, timer_id: int, now_ms: int) -> list[Decision]:
        """The failover interval is over."""
        if timer_id != self._timer_id or self.state is not EntityState.SUSPECT:
            return []
        if now_ms < self._timer_due_ms:
            return [StartTimer(self.key, timer_id, self._timer_due_ms)]
        silence = not self._failed_since and not self._pending_since
        happened = Input.TIMER_AFTER_SILENCE if silence else Input.TIMER_AFTER_FAILURES
        return self._apply(happened, now_ms, None)

    def ping_ended(
        self,
        ping_id: int,
        verdict: Verdict | None,
        cause: BaseException | None,
        now_ms: int,
    ) -> list[Decision]:
        """A ping was accepted (no verdict), or why not."""
        if ping_id != self._ping_id or not self._ping_open:
            return []
        self._ping_open = False
        self._status.pings += 1
        if verdict is None:
            return self._apply(Input.PING_ACCEPTED, now_ms, None)
        self._note(cause, now_ms)
        counted = verdict is Verdict.COUNTED
        happened = Input.PING_FAILED if counted else Input.PING_ANSWERED
        return self._apply(happened, now_ms, cause)

    def mark_healthy(self, now_ms: int) -> list[Decision]:
        """The application knows that the entity is healthy."""
        return self._apply(Input.MARKED_HEALTHY, now_ms, None)

    def diverted(self, count: int) -> None:
        """A backlog queue accepted messages for this entity."""
        self._status.diverted += count

    def stop(self) -> list[Decision]:
        """The factory closes: no more timers and pings."""
        decisions: list[Decision] = []
        if self.state is EntityState.SUSPECT:
            decisions.append(CancelTimer(self.key, self._timer_id))
        if self._ping_open:
            self._ping_open = False
            decisions.append(StopPinging(self.key, self._ping_id))
        return decisions

    def status(self) -> EntityStatus:
        """A copy of what is known."""
        status = EntityStatus(**asdict(self._status))
        status.deciding = self.state is EntityState.DECIDING
        outside = EntityState.SUSPECT if status.deciding else self.state
        status.state = outside.value
        status.held = len(self.line)
        if self.state is EntityState.SUSPECT:
            status.timer_due_ms = self._timer_due_ms
        if self._ping_open:
            status.next_ping_ms = self._ping_at_ms
        return status

    # -- moving --------------------------------------------------------------------

    def _apply(
        self, happened: Input, now_ms: int, cause: BaseException | None
    ) -> list[Decision]:
        move = TRANSITIONS.get((self.state, happened))
        if move is None:
            return []
        if move.to is not self.state:
            self.state = move.to
            self._status.since_ms = now_ms
            self._status.failovers += move.to is EntityState.FAILED_OVER
        decisions: list[Decision] = [
            Tell(PairingEvent(kind, self.path, now_ms, cause)) for kind in move.events
        ]
        for action in move.actions:
            decisions += _ACTIONS[action](self, now_ms)
        return decisions

    def _start_timer(self, now_ms: int) -> list[Decision]:
        self._timer_id += 1
        self._timer_due_ms = now_ms + self._settings.failover_interval_ms
        self._pending_since = 0
        self._failed_since = False
        return [StartTimer(self.key, self._timer_id, self._timer_due_ms)]

    def _cancel_timer(self, now_ms: int) -> list[Decision]:
        del now_ms
        return [CancelTimer(self.key, self._timer_id)]

    def _ping_now(self, now_ms: int) -> list[Decision]:
        return self._plan_ping(now_ms)

    def _ping_next(self, now_ms: int) -> list[Decision]:
        if self._ping_open:
            # One is under way already, and one at a time is enough.
            return []
        interval_ms = self._settings.ping_interval_ms
        return self._plan_ping(next_ping_ms(self._ping_at_ms, interval_ms, now_ms))

    def _plan_ping(self, at_ms: int) -> list[Decision]:
        self._ping_id += 1
        self._ping_at_ms = at_ms
        self._ping_open = True
        timeout_ms = ping_timeout_ms(self._settings.ping_interval_ms)
        return [StartPing(self.key, self._ping_id, at_ms, timeout_ms)]

    def _stop_pinging(self, now_ms: int) -> list[Decision]:
        del now_ms
        if not self._ping_open:
            return []
        self._ping_open = False
        return [StopPinging(self.key, self._ping_id)]

    def _divert(self, now_ms: int) -> list[Decision]:
        del now_ms
        return [Divert(self.key), *self._release()]

    def _resume(self, now_ms: int) -> list[Decision]:
        del now_ms
        return [Resume(self.key), *self._release()]

    def _release(self) -> list[Decision]:
        """Wake the head; each that goes passes the turn on."""
        head = self.line.from_the_head()
        return [] if head is None else [Wake(head.call)]

    def _note(self, cause: BaseException | None, now_ms: int) -> None:
        self._status.last_cause = f"{type(cause).__name__}: {cause}"
        self._status.last_cause_ms = now_ms


_ACTIONS: dict[PolicyAction, Callable[[EntityPolicy, int], list[Decision]]] = {
    PolicyAction.START_TIMER: EntityPolicy._start_timer,
    PolicyAction.CANCEL_TIMER: EntityPolicy._cancel_timer,
    PolicyAction.PING_NOW: EntityPolicy._ping_now,
    PolicyAction.PING_NEXT: EntityPolicy._ping_next,
    PolicyAction.STOP_PINGING: EntityPolicy._stop_pinging,
    PolicyAction.DIVERT: EntityPolicy._divert,
    PolicyAction.RESUME: EntityPolicy._resume,
}


def entity_key(path: str) -> str:
    """What two spellings of one path have in common."""
    return strip_uri(path).lower()


class PairingPolicy:
    """The machines of a factory, by entity."""

    def __init__(
        self, settings: PolicySettings, budget: HoldBudget | None = None
    ) -> None:
        self.settings = settings
        self.budget = budget if budget is not None else HoldBudget()
        self._entities: dict[str, EntityPolicy] = {}

    def entity(self, path: str) -> EntityPolicy:
        """The machine of an entity, made when it is first asked for."""
        key = entity_key(path)
        found = self._entities.get(key)
        if found is None:
            found = EntityPolicy(strip_uri(path), self.settings, self.budget)
            self._entities[key] = found
        return found

    def entities(self) -> list[EntityPolicy]:
        """Every machine that there is."""
        return list(self._entities.values())

    def stop(self) -> list[Decision]:
        """The factory closes."""
        return [each for entity in self._entities.values() for each in entity.stop()]

    def status(self) -> PairingStatus:
        """The whole state; the shell adds the backlog queues."""
        return PairingStatus(
            entities=[entity.status() for entity in self._entities.values()],
            held=self.budget.held,
            held_bytes=self.budget.held_bytes,
        )
