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
    refused       as failed over, but a ping was answered: the entity is missing,
                  disabled or closed to this client; sends raise that answer
    probation     a ping was accepted, but no send yet: sends go to the primary, and
                  one counted failure is a relapse, which fails over at once

To the outside, deciding is suspect. A ping proves little: where links open and sends
fail, every ping is accepted. So each relapse doubles the pause before the next ping,
and after one, probation admits one send at a time, until a send is accepted.

The machine is shared by every sender of a factory. It takes events and the time, and
returns decisions (`decisions.py`); it has no clock, no timer and no connection. What a
failure is, is `classification.py`; what one call of send does next, is `send_call.py`.

A shell on its fast path needs one look: while `direct` is true, send to the primary,
and come back here only if that fails. With `slow_send`, or with a timeout where one
failure fails over (`fails_over_at_once`), every send is a `SendCall` instead.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import MappingProxyType

from twinbus import limits
from twinbus.core.names import strip_uri
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules.classification import Failure, Verdict, kind_of
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
from twinbus.pairing.rules.ping import next_ping_ms, ping_timeout_ms, relapse_pause_ms
from twinbus.pairing.status import EntityStatus, PairingStatus


class EntityState(enum.Enum):
    """Where an entity stands; the value is the word in the chart."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    DECIDING = "deciding"
    FAILED_OVER = "failed over"
    REFUSED = "refused"
    PROBATION = "probation"


class Input(enum.Enum):
    """What can happen to an entity; the value is the label in the chart."""

    ACCEPTED = "a primary send is accepted"
    ACCEPTED_LATE = "a primary send is accepted late"
    FAILED = "a counted failure"
    FAILED_AT_ZERO = "a counted failure, with interval 0"
    TIMER_AFTER_FAILURES = "the timer fires, with no success since it started"
    TIMER_AFTER_SILENCE = "the timer fires after silence"
    PING_ACCEPTED = "a ping is accepted"
    PING_ANSWERED = "a ping is answered, but not accepted"
    PING_REFUSED = "a ping is answered: missing, disabled or unauthorized"
    PING_FAILED = "a ping fails"
    MARKED_HEALTHY = "mark_healthy"


class PolicyAction(enum.Enum):
    """What follows; the value is the word in the chart."""

    START_TIMER = "start the timer"
    CANCEL_TIMER = "cancel the timer"
    PING_NOW = "ping at once"
    PING_NEXT = "plan the next ping"
    PING_AFTER_RELAPSE = "plan the next ping after a pause that doubles"
    BEGIN_PROBATION = "begin a probation"
    FORGET_RELAPSES = "reset the pause"
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
_BACK = (
    PolicyAction.STOP_PINGING,
    PolicyAction.FORGET_RELAPSES,
    PolicyAction.RESUME,
)
_TRY = (
    PolicyAction.STOP_PINGING,
    PolicyAction.BEGIN_PROBATION,
    PolicyAction.RESUME,
)
_OVER = (EventKind.FAILED_OVER,)
_RECOVERED = (EventKind.RECOVERED,)
_FAILED_BACK = (EventKind.FAILED_BACK,)
_PING_FAILED = (EventKind.PING_FAILED,)
_PING_BACK = (EventKind.PING_ACCEPTED, EventKind.FAILED_BACK)

_PING_AGAIN = (PolicyAction.PING_NEXT,)

_HEALTHY = EntityState.HEALTHY
_SUSPECT = EntityState.SUSPECT
_DECIDING = EntityState.DECIDING
_FAILED_OVER = EntityState.FAILED_OVER
_REFUSED = EntityState.REFUSED
_PROBATION = EntityState.PROBATION

_START = Move(_SUSPECT, (PolicyAction.START_TIMER,), (EventKind.SUSPECT,))
_FAIL_OVER = Move(_FAILED_OVER, _SWITCH, _OVER)
_CALM_DOWN = Move(_HEALTHY, _CALM, _RECOVERED)
_NO_OUTAGE = Move(_HEALTHY, _BACK, _RECOVERED)
_MARKED = Move(_HEALTHY, _BACK, _FAILED_BACK)
_ACCEPTED = Move(_PROBATION, _TRY, _FAILED_BACK)
_PING_ACCEPTED = Move(_PROBATION, _TRY, _PING_BACK)

TRANSITIONS: MappingProxyType[tuple[EntityState, Input], Move] = MappingProxyType(
    {
        (_HEALTHY, Input.FAILED): _START,
        (_HEALTHY, Input.FAILED_AT_ZERO): _FAIL_OVER,
        # Suspect: later failures are not in the table, so the timer is not restarted.
        (_SUSPECT, Input.ACCEPTED): _CALM_DOWN,
        (_SUSPECT, Input.MARKED_HEALTHY): _CALM_DOWN,
        (_SUSPECT, Input.TIMER_AFTER_FAILURES): _FAIL_OVER,
        (_SUSPECT, Input.TIMER_AFTER_SILENCE): Move(
            _DECIDING, (PolicyAction.PING_NOW,)
        ),
        # Deciding: an entity that answers at all is not away.
        (_DECIDING, Input.ACCEPTED): _NO_OUTAGE,
        (_DECIDING, Input.MARKED_HEALTHY): _NO_OUTAGE,
        (_DECIDING, Input.PING_ACCEPTED): Move(
            _HEALTHY, _BACK, (EventKind.PING_ACCEPTED, EventKind.RECOVERED)
        ),
        (_DECIDING, Input.PING_ANSWERED): _NO_OUTAGE,
        (_DECIDING, Input.PING_REFUSED): _NO_OUTAGE,
        (_DECIDING, Input.PING_FAILED): Move(
            _FAILED_OVER,
            _SWITCH_AFTER_PING,
            (EventKind.PING_FAILED, EventKind.FAILED_OVER),
        ),
        (_DECIDING, Input.FAILED): Move(_FAILED_OVER, _SWITCH_AFTER_PING, _OVER),
        (_FAILED_OVER, Input.ACCEPTED): _ACCEPTED,
        (_FAILED_OVER, Input.ACCEPTED_LATE): _ACCEPTED,
        (_FAILED_OVER, Input.MARKED_HEALTHY): _MARKED,
        (_FAILED_OVER, Input.PING_ACCEPTED): _PING_ACCEPTED,
        (_FAILED_OVER, Input.PING_ANSWERED): Move(
            _FAILED_OVER, _PING_AGAIN, _PING_FAILED
        ),
        (_FAILED_OVER, Input.PING_REFUSED): Move(
            _REFUSED, (*_PING_AGAIN, PolicyAction.RESUME), (EventKind.REFUSED,)
        ),
        (_FAILED_OVER, Input.PING_FAILED): Move(
            _FAILED_OVER, _PING_AGAIN, _PING_FAILED
        ),
        (_REFUSED, Input.ACCEPTED): _ACCEPTED,
        (_REFUSED, Input.ACCEPTED_LATE): _ACCEPTED,
        (_REFUSED, Input.MARKED_HEALTHY): _MARKED,
        (_REFUSED, Input.PING_ACCEPTED): _PING_ACCEPTED,
        (_REFUSED, Input.PING_ANSWERED): Move(_REFUSED, _PING_AGAIN, _PING_FAILED),
        (_REFUSED, Input.PING_REFUSED): Move(_REFUSED, _PING_AGAIN, _PING_FAILED),
        (_REFUSED, Input.PING_FAILED): Move(
            _FAILED_OVER, _PING_AGAIN, (EventKind.PING_FAILED, EventKind.FAILED_OVER)
        ),
        # Probation: only a send that began on it speaks for the entity.
        (_PROBATION, Input.ACCEPTED): _NO_OUTAGE,
        (_PROBATION, Input.MARKED_HEALTHY): _NO_OUTAGE,
        (_PROBATION, Input.FAILED): Move(
            _FAILED_OVER,
            (PolicyAction.PING_AFTER_RELAPSE, PolicyAction.DIVERT),
            (EventKind.RELAPSED,),
        ),
    }
)

# In these states a send that has begun since speaks for the entity.
_ASKING = frozenset({_SUSPECT, _DECIDING, _PROBATION})
# Not a failover, nor an acceptance: the entity is gone or closed to this client.
_REFUSALS = frozenset({Failure.MISSING, Failure.DISABLED, Failure.ACCESS})


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What the machines of a factory have in common."""

    failover_interval_ms: int = limits.PAIR_INTERVAL_MS_DEFAULT
    ping_interval_ms: int = limits.PAIR_INTERVAL_MS_DEFAULT
    # Whether a send that fails on a suspect entity waits, or raises.
    hold: bool = True
    # A send that is not answered within this time counts as failed; 0: however slow.
    slow_send_ms: int = 0


# A send to the primary under way: the suspicion or the probation in which it began, by
# number, or 0 for neither.
Attempt = int


class EntityPolicy:
    """The state machine of one entity."""

    __slots__ = (
        "_failed_since",
        "_pending_since",
        "_period",
        "_ping_at_ms",
        "_ping_id",
        "_ping_open",
        "_relapses",
        "_settings",
        "_status",
        "_timer_due_ms",
        "key",
        "line",
        "path",
        "refusal",
        "state",
    )

    def __init__(self, path: str, settings: PolicySettings, budget: HoldBudget) -> None:
        self.path = path
        self.key = entity_key(path)
        self.state = EntityState.HEALTHY
        self.line = Line(budget)
        self._settings = settings
        self._status = EntityStatus(path)
        # What the ping was answered with, for the sends to a refused entity.
        self.refusal: BaseException | None = None
        # Counts suspicions and probations. A suspicion's number is its timer's, too.
        self._period = 0
        self._timer_due_ms = 0
        # Attempts that began in this period: without an answer, and failed.
        self._pending_since = 0
        self._failed_since = False
        self._ping_id = 0
        self._ping_at_ms = 0
        # A ping is planned or under way.
        self._ping_open = False
        # Since a send was last accepted.
        self._relapses = 0

    # -- for the shell's fast path -------------------------------------------------

    @property
    def direct(self) -> bool:
        """Whether a send may simply go to the primary."""
        return self.state is EntityState.HEALTHY and not self.line

    @property
    def hold(self) -> bool:
        """Whether sends wait for a suspect entity."""
        return self._settings.hold

    @property
    def slow_send_ms(self) -> int:
        """When a send without an answer counts as failed; 0: never."""
        return self._settings.slow_send_ms

    @property
    def fails_over_at_once(self) -> bool:
        """Whether a single counted failure would fail over now."""
        if self.state is _HEALTHY:
            return not self._settings.failover_interval_ms
        return self.state in (_DECIDING, _PROBATION)

    @property
    def diverts(self) -> bool:
        """Whether a send that begins now goes to the backlog.

        After a relapse, probation admits one send at a time.
        """
        if self.state is _PROBATION:
            return bool(self._relapses and self._pending_since)
        return self.state is _FAILED_OVER

    # -- sends to the primary ------------------------------------------------------

    def begin(self) -> Attempt:
        """A send to the primary begins. End it with one of the three below."""
        if self.state not in _ASKING:
            return 0
        self._pending_since += 1
        return self._period

    def accepted(
        self, attempt: Attempt, now_ms: int, *, late: bool = False
    ) -> list[Decision]:
        """The primary accepted a send.

        Late is one that was slower than `slow_send`, or whose call was diverted. It
        shows that the entity can take a message, not that it is well: at most it leads
        to probation, and after a relapse not even to that, or a slow entity would be
        asked again and again without a pause.
        """
        since = self._end(attempt)
        late = late or (self.state is _PROBATION and not since)
        if self.state in (_FAILED_OVER, _REFUSED) and (
            self._relapses or (late and self.slow_send_ms)
        ):
            return []
        happened = Input.ACCEPTED_LATE if late else Input.ACCEPTED
        return self._apply(happened, now_ms, None)

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
        if self.state in (_DECIDING, _PROBATION) and not since:
            # It began before what is being found out.
            return []
        at_zero = self.state is _HEALTHY and not self._settings.failover_interval_ms
        return self._apply(
            Input.FAILED_AT_ZERO if at_zero else Input.FAILED, now_ms, cause
        )

    def forgotten(self, attempt: Attempt) -> None:
        """A send was cancelled: how it ended stays unknown."""
        self._end(attempt)

    def _end(self, attempt: Attempt) -> bool:
        """Whether the attempt began in this suspicion or probation."""
        if not attempt or attempt != self._period:
            return False
        self._pending_since -= 1
        return self.state in _ASKING

    # -- everything else that can happen -------------------------------------------

    def timer_fired(self, timer_id: int, now_ms: int) -> list[Decision]:
        """The failover interval is over."""
        if timer_id != self._period or self.state is not EntityState.SUSPECT:
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
        happened = Input.PING_ANSWERED
        if verdict is Verdict.COUNTED:
            happened = Input.PING_FAILED
        elif cause is not None and kind_of(cause) in _REFUSALS:
            happened = Input.PING_REFUSED
            self.refusal = cause
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
            decisions.append(CancelTimer(self.key, self._period))
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
        self._status.failovers += EventKind.FAILED_OVER in move.events
        self._status.relapses += EventKind.RELAPSED in move.events
        decisions: list[Decision] = [
            Tell(PairingEvent(kind, self.path, now_ms, cause)) for kind in move.events
        ]
        for action in move.actions:
            decisions += _ACTIONS[action](self, now_ms)
        return decisions

    def _start_timer(self, now_ms: int) -> list[Decision]:
        self._begin_period()
        self._timer_due_ms = now_ms + self._settings.failover_interval_ms
        return [StartTimer(self.key, self._period, self._timer_due_ms)]

    def _begin_probation(self, now_ms: int) -> list[Decision]:
        del now_ms
        self._begin_period()
        return []

    def _begin_period(self) -> None:
        self._period += 1
        self._pending_since = 0
        self._failed_since = False

    def _forget_relapses(self, now_ms: int) -> list[Decision]:
        del now_ms
        self._relapses = 0
        return []

    def _cancel_timer(self, now_ms: int) -> list[Decision]:
        del now_ms
        return [CancelTimer(self.key, self._period)]

    def _ping_now(self, now_ms: int) -> list[Decision]:
        return self._plan_ping(now_ms)

    def _ping_next(self, now_ms: int) -> list[Decision]:
        if self._ping_open:
            # One is under way already, and one at a time is enough.
            return []
        interval_ms = self._settings.ping_interval_ms
        return self._plan_ping(next_ping_ms(self._ping_at_ms, interval_ms, now_ms))

    def _ping_after_relapse(self, now_ms: int) -> list[Decision]:
        self._relapses += 1
        interval_ms = self._settings.ping_interval_ms
        return self._plan_ping(now_ms + relapse_pause_ms(self._relapses, interval_ms))

    def _plan_ping(self, at_ms: int) -> list[Decision]:
        self._ping_id += 1
        self._ping_at_ms = at_ms
        self._ping_open = True
        timeout_ms = ping_timeout_ms(
            self._settings.ping_interval_ms, self._settings.slow_send_ms
        )
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
    PolicyAction.PING_AFTER_RELAPSE: EntityPolicy._ping_after_relapse,
    PolicyAction.BEGIN_PROBATION: EntityPolicy._begin_probation,
    PolicyAction.FORGET_RELAPSES: EntityPolicy._forget_relapses,
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
