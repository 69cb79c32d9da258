"""One call of send, from its first failure to its end.

Owns what a call does next: try the primary, wait, go to a backlog queue or to the
outbox, give up. The state of the entity belongs to `policy.py`, its line to
`holding.py`, the queues to `rotation.py`; a call asks them and reports to them. Every
step has an end in time.

A shell runs a call like this. It needs none for a send on the fast path that succeeds:
the entity is `direct`, there is no `slow_send`, and no part of a timeout is to be
reserved for the backlog:

    call = SendCall(rules, entity, choice, size, deadline)
    following = call.start(now)
        or call.fast_path_failed(error, now, attempt_ms)   after such a send
        or call.adopt(now)                                 while it has no answer
    carry out following.decisions, then following.step:
        TryPrimary   send; then primary_accepted or primary_failed
        TryBacklog   divert and send; then backlog_accepted or backlog_failed
        TryOutbox    divert and keep; then outbox_accepted or outbox_failed
        Wait         until that time, or until woken by a decision; then woken. If
                     an attempt is under way, its answer may come first
        GiveUp       raise
        Done         return

With a local outbox, a call goes there when no backlog queue is left, when one does not
answer, or when none takes a message of its size; so a silent secondary costs a call one
attempt, and not one for each queue.

Where one failure fails over at once, an attempt ends early enough that the backlog has
a part of the caller's time left; so does one on the backlog for the outbox. With
`slow_send`, `Wait` and `TryPrimary` also end at the moment when the attempt counts as
failed; it goes on, and its answer still ends the call, unless the entity fails over
first.

While an attempt on the primary has no answer, the decision `Divert` means `woken`, too:
the call moves to the backlog. That the primary accepts it later is reported with
`EntityPolicy.accepted` for `call.attempt`, any other end with `forgotten`: it began too
long ago to count. An attempt that has not ended by its deadline, or by the caller's, is
`primary_failed` with a `TimeoutError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twinbus import limits
from twinbus.pairing.errors import TooManyHeldSends
from twinbus.pairing.rules.classification import (
    Classifier,
    Failure,
    Verdict,
    kind_of,
    verdict_of,
)
from twinbus.pairing.rules.decisions import Decision, Wake
from twinbus.pairing.rules.holding import LinePlace
from twinbus.pairing.rules.policy import Attempt, EntityPolicy, EntityState
from twinbus.pairing.rules.retry import SEND_BACKOFF
from twinbus.pairing.rules.rotation import Rotation, SenderChoice

# -- steps -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TryPrimary:
    """Send to the entity; a failure if it has not answered by then.

    `slow_ms`: if it has not answered by then, call `woken` (None: need not be).
    """

    deadline_ms: int
    slow_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TryBacklog:
    """Divert and send to this queue; a failure if it has not answered by then."""

    index: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class TryOutbox:
    """Divert and put it into the outbox; a failure if it is not there by then."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until then (None: until woken), then call `woken`."""

    until_ms: int | None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Raise: the error, or that the caller's time is over (because of the error)."""

    cause: BaseException | None
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The messages are accepted."""


Step = TryPrimary | TryBacklog | TryOutbox | Wait | GiveUp | Done


@dataclass(slots=True)
class NextStep:
    """What the shell does now: the decisions in order, then the step."""

    step: Step
    decisions: list[Decision] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SendRules:
    """What all calls of a factory have in common."""

    rotation: Rotation
    # From 0 to 1: `random.Random.random`.
    chance: Callable[[], float]
    classifier: Classifier | None = None
    attempt_ms: int = limits.ATTEMPT_MS_MAX
    # A local outbox takes what no backlog queue takes.
    outbox: bool = False


def _ignore() -> None:
    """A call that no shell runs needs no waking."""


class SendCall:
    """One call of send."""

    __slots__ = (
        "_attempt",
        "_attempt_ms",
        "_backlog_since_ms",
        "_busy_until_ms",
        "_cause",
        "_choice",
        "_deadline_ms",
        "_diverting",
        "_entity",
        "_failures",
        "_index",
        "_outbox_error",
        "_place",
        "_retried",
        "_retry_at_ms",
        "_rules",
        "_size_bytes",
        "_skips_backlog",
        "_slow",
        "_slow_at_ms",
        "_trying",
        "on_wake",
    )

    def __init__(
        self,
        rules: SendRules,
        entity: EntityPolicy,
        choice: SenderChoice,
        size_bytes: int,
        deadline_ms: int | None,
    ) -> None:
        self._rules = rules
        self._entity = entity
        self._choice = choice
        self._size_bytes = size_bytes
        self._deadline_ms = deadline_ms
        # An attempt on the primary has no answer yet.
        self._trying = False
        # An attempt on a backlog queue has no answer yet.
        self._diverting = False
        self._attempt: Attempt = 0
        # How long the attempt may take; 0 if that is not known.
        self._attempt_ms = 0
        # When the attempt counts as failed though it goes on, and whether it has.
        self._slow_at_ms: int | None = None
        self._slow = False
        self._backlog_since_ms = 0
        self._place: LinePlace | None = None
        self._failures = 0
        self._retry_at_ms = 0
        self._busy_until_ms = 0
        self._index = -1
        # The backlog queue that was tried again after its connection broke.
        self._retried = -1
        # The outbox is next, though another backlog queue may be left.
        self._skips_backlog = False
        # Why the outbox did not take it.
        self._outbox_error: BaseException | None = None
        self._cause: BaseException | None = None
        # Set by the shell, which then calls `woken`.
        self.on_wake: Callable[[], None] = _ignore

    # -- events --------------------------------------------------------------------

    def start(self, now_ms: int) -> NextStep:
        """A new call."""
        entity = self._entity
        if entity.line and self._is_open:
            # The sends of the line are being sent, and must not be overtaken.
            return self._wait_in_line(now_ms)
        return self._next(now_ms)

    def adopt(self, now_ms: int) -> NextStep:
        """A send on the fast path has no answer yet, and now it needs a call."""
        self._trying = True
        return self._next(now_ms)

    @property
    def attempt(self) -> Attempt:
        """What to report to the entity when an attempt ends that the call has left."""
        return self._attempt

    @property
    def is_slow(self) -> bool:
        """Whether the attempt has counted as failed because it is slow."""
        return self._slow

    def primary_accepted(self, now_ms: int) -> NextStep:
        """The primary took it."""
        decisions = self._leave()
        # A call that waits for a backlog queue does not watch the time of its attempt.
        late = self._slow_at_ms is not None and now_ms >= self._slow_at_ms
        late = late or self._slow
        decisions += self._entity.accepted(self._attempt, now_ms, late=late)
        self._trying = False
        return NextStep(Done(), decisions)

    def fast_path_failed(
        self, error: BaseException, now_ms: int, attempt_ms: int
    ) -> NextStep:
        """A send on the fast path failed; it had that much time."""
        self._attempt_ms = attempt_ms
        return self.primary_failed(error, now_ms)

    def primary_failed(self, error: BaseException, now_ms: int) -> NextStep:
        """The primary did not take it, or has not answered in time."""
        if self._was_cut_short(error, now_ms):
            self._entity.forgotten(self._attempt)
            return self._give_up(error, timed_out=True)
        verdict = verdict_of(error, self._rules.classifier)
        decisions: list[Decision] = []
        if self._slow and verdict is Verdict.COUNTED:
            # It has been counted already.
            self._entity.forgotten(self._attempt)
        else:
            decisions = self._entity.failed(self._attempt, verdict, error, now_ms)
        self._trying = False
        self._attempt = 0
        self._cause = error
        if verdict is Verdict.RAISE:
            following = self._give_up(error)
        elif verdict is Verdict.BUSY:
            following = self._after_busy(now_ms)
        elif not self._entity.hold:
            following = self._give_up(error)
        else:
            following = self._after_counted(kind_of(error), now_ms)
        following.decisions[:0] = decisions
        return following

    def backlog_accepted(self, now_ms: int, count: int = 1) -> NextStep:
        """The backlog queue took it."""
        self._diverting = False
        self._rules.rotation.accepted(self._index, count)
        self._rules.rotation.recent_ms = now_ms - self._backlog_since_ms
        self._entity.diverted(count)
        return NextStep(Done())

    def backlog_failed(self, error: BaseException, now_ms: int) -> NextStep:
        """The backlog queue did not take it, or has not answered in time."""
        self._diverting = False
        kind = kind_of(error)
        too_large = kind is Failure.TOO_LARGE and self._has_outbox
        if kind.blames_message and not too_large:
            return self._give_up(error)
        if self._is_late(now_ms):
            return self._give_up(error, timed_out=True)
        self._cause = error
        if kind is Failure.CONNECTION and self._retried != self._index:
            # All queues share one connection: that it broke says nothing about one of
            # them. The same queue is tried again at once, on another connection.
            self._retried = self._index
            return self._next(now_ms)
        silent = kind is Failure.TIMEOUT and self._has_outbox
        self._skips_backlog = too_large or silent
        took_ms = now_ms - self._backlog_since_ms
        decisions: list[Decision] = []
        if not too_large and not (silent and took_ms <= limits.COUNTED_ATTEMPT_MS_MIN):
            decisions = self._rules.rotation.failed(self._index, kind, error, now_ms)
        following = self._next(now_ms)
        following.decisions[:0] = decisions
        return following

    def outbox_accepted(self) -> NextStep:
        """The outbox has it."""
        self._diverting = False
        return NextStep(Done())

    def outbox_failed(self, error: BaseException, now_ms: int) -> NextStep:
        """The outbox did not take it: for this call there is none."""
        self._diverting = False
        if kind_of(error).blames_message:
            return self._give_up(error)
        if self._is_late(now_ms):
            return self._give_up(error, timed_out=True)
        self._cause = self._outbox_error = error
        self._skips_backlog = False
        return self._next(now_ms)

    def wake(self) -> None:
        """Have the shell look at this call again."""
        self.on_wake()

    def woken(self, now_ms: int) -> NextStep:
        """The time has come, or something has changed."""
        self._rules.rotation.forget(self)
        return self._next(now_ms)

    def cancelled(self) -> list[Decision]:
        """The caller does not want it any more; nothing half done is left."""
        if self._trying:
            self._entity.forgotten(self._attempt)
            self._trying = False
        self._rules.rotation.forget(self)
        return self._leave()

    # -- steps ---------------------------------------------------------------------

    def _next(self, now_ms: int) -> NextStep:
        if self._diverting:
            # Woken for nothing: the attempt goes on, and has a deadline of its own.
            return NextStep(Wait(self._deadline_ms))
        if self._is_late(now_ms):
            if self._trying:
                return self.primary_failed(TimeoutError(), now_ms)
            return self._give_up(self._cause, timed_out=True)
        slow_at_ms = self._slow_at_ms if self._trying and not self._slow else None
        if slow_at_ms is not None and now_ms >= slow_at_ms:
            return self._count_slow(now_ms)
        waiting = Wait(
            self._deadline_ms if slow_at_ms is None else self._until(slow_at_ms)
        )
        if self._is_behind():
            return NextStep(waiting)
        if self._entity.state is EntityState.REFUSED and not self._trying:
            return self._give_up(self._entity.refusal)
        if self._entity.state is EntityState.FAILED_OVER and (
            self._entity.hold or not self._trying
        ):
            return self._to_backlog(now_ms)
        if self._trying:
            # The attempt goes on; on an open entity other sends need not wait for it.
            # hold_during_failover=False: it does so too while failed over.
            return NextStep(waiting, self._leave() if self._is_open else [])
        if self._entity.diverts and (
            self._has_outbox or self._choice.queue() is not None
        ):
            # Another send is on trial. Without another place to go, so is this one.
            return self._to_backlog(now_ms)
        not_before_ms = self._busy_until_ms
        if not self._is_open:
            not_before_ms = max(not_before_ms, self._retry_at_ms)
        if now_ms < not_before_ms:
            return NextStep(Wait(self._until(not_before_ms)))
        return self._to_primary(now_ms)

    def _to_primary(self, now_ms: int) -> NextStep:
        # The call with the turn keeps its place while the entity is suspect, so that
        # the others wait for its answer. On an open one, all of them go at once.
        decisions = self._leave() if self._is_open else []
        end_ms = self._attempt_end(now_ms)
        slow_ms = self._entity.slow_send_ms
        self._attempt = self._entity.begin()
        self._attempt_ms = end_ms - now_ms
        self._slow = False
        self._slow_at_ms = now_ms + slow_ms if slow_ms else None
        self._trying = True
        return NextStep(TryPrimary(end_ms, self._slow_at_ms), decisions)

    def _attempt_end(self, now_ms: int) -> int:
        """When an attempt that begins now ends.

        Where its failure would fail over, some time is kept for the backlog, unless
        what remains is too short to count.
        """
        longest_ms = now_ms + self._rules.attempt_ms
        if self._deadline_ms is None:
            return longest_ms
        end_ms = min(longest_ms, self._deadline_ms)
        if not (self._entity.hold and self._entity.fails_over_at_once):
            return end_ms
        left_ms = self._deadline_ms - now_ms
        wanted_ms = max(limits.BACKLOG_RESERVE_MS_MIN, self._rules.rotation.recent_ms)
        cut_ms = self._deadline_ms - min(left_ms // 2, wanted_ms)
        if cut_ms - now_ms <= limits.COUNTED_ATTEMPT_MS_MIN:
            return end_ms
        return min(end_ms, cut_ms)

    def _count_slow(self, now_ms: int) -> NextStep:
        """The attempt goes on, and counts as failed from now on: once."""
        self._slow = True
        attempt, self._attempt = self._attempt, 0
        cause = TimeoutError("The primary has not answered within slow_send.")
        decisions = self._entity.failed(attempt, Verdict.COUNTED, cause, now_ms)
        following = self._next(now_ms)
        following.decisions[:0] = decisions
        return following

    def _to_backlog(self, now_ms: int) -> NextStep:
        decisions = self._leave()
        self._trying = False
        index = None if self._skips_backlog else self._choice.queue()
        if index is None:
            return self._without_queue(now_ms, decisions)
        self._index = index
        self._diverting = True
        self._backlog_since_ms = now_ms
        end_ms = self._until(now_ms + self._rules.attempt_ms)
        if self._has_outbox and self._deadline_ms is not None:
            left_ms = self._deadline_ms - now_ms
            kept_ms = min(left_ms // 2, limits.BACKLOG_RESERVE_MS_MIN)
            end_ms = min(end_ms, self._deadline_ms - kept_ms)
        return NextStep(TryBacklog(index, end_ms), decisions)

    def _without_queue(self, now_ms: int, decisions: list[Decision]) -> NextStep:
        """No backlog queue is left, or none is to be tried."""
        if self._has_outbox:
            self._diverting = True
            end_ms = self._until(now_ms + self._rules.attempt_ms)
            return NextStep(TryOutbox(end_ms), decisions)
        rotation = self._rules.rotation
        self._cause = self._outbox_error or rotation.last_cause or self._cause
        if self._deadline_ms is None:
            return NextStep(GiveUp(self._cause), decisions)
        decisions += rotation.wait(self, now_ms)
        return NextStep(Wait(self._deadline_ms), decisions)

    @property
    def _has_outbox(self) -> bool:
        return self._rules.outbox and self._outbox_error is None

    def _after_busy(self, now_ms: int) -> NextStep:
        """Wait on one's own: a busy service asks each message for ten seconds."""
        self._busy_until_ms = now_ms + SEND_BACKOFF.pause_ms(0, busy=True)
        decisions = self._leave()
        if self._is_late(self._busy_until_ms):
            return NextStep(GiveUp(self._cause), decisions)
        following = self._next(now_ms)
        following.decisions[:0] = decisions
        return following

    def _after_counted(self, kind: Failure, now_ms: int) -> NextStep:
        self._failures += 1
        at_once = kind is Failure.CONNECTION
        # A first fault of the connection is retried without a pause.
        pause_ms = SEND_BACKOFF.pause_ms(
            self._failures - at_once, jitter=self._rules.chance()
        )
        self._retry_at_ms = now_ms + pause_ms
        state = self._entity.state
        if state in (EntityState.FAILED_OVER, EntityState.REFUSED) or self._is_late(
            now_ms
        ):
            return self._next(now_ms)
        # What the connection did to one, it would do to all. Anything else may be the
        # message's own fault, so another one tries.
        decisions = [] if at_once else self._pass_on()
        following = self._wait_in_line(now_ms)
        following.decisions[:0] = decisions
        return following

    def _wait_in_line(self, now_ms: int) -> NextStep:
        line = self._entity.line
        if self._place is None or not self._place.standing:
            try:
                self._place = line.join(self, self._size_bytes, self._place)
            except TooManyHeldSends as error:
                error.__cause__ = self._cause
                return NextStep(GiveUp(error))
        return self._next(now_ms)

    def _give_up(
        self, cause: BaseException | None, timed_out: bool = False
    ) -> NextStep:
        self._trying = False
        return NextStep(GiveUp(cause, timed_out), self._leave())

    @property
    def _is_open(self) -> bool:
        """Whether all sends of the line may go at once."""
        return self._entity.state in (EntityState.HEALTHY, EntityState.PROBATION)

    def _was_cut_short(self, error: BaseException, now_ms: int) -> bool:
        """Whether the caller's timeout left too little time for the attempt to count.

        An answer counts, however little time there was.
        """
        short = 0 < self._attempt_ms <= limits.COUNTED_ATTEMPT_MS_MIN
        return short and self._is_late(now_ms) and kind_of(error) is Failure.TIMEOUT

    # -- the line and the clock ----------------------------------------------------

    def _leave(self) -> list[Decision]:
        """Step out of the line, if in it, and pass the turn on."""
        place = self._place
        if place is None or not place.standing:
            return []
        following = self._entity.line.leave(place)
        return [] if following is None else [Wake(following.call)]

    def _pass_on(self) -> list[Decision]:
        """Let the next one of the line try, if this one has the turn."""
        place = self._place
        if place is None or not place.standing:
            return []
        following = self._entity.line.pass_on(place)
        return [] if following is None else [Wake(following.call)]

    def _is_behind(self) -> bool:
        place = self._place
        standing = place is not None and place.standing
        return standing and self._entity.line.turn is not place

    def _is_late(self, now_ms: int) -> bool:
        return self._deadline_ms is not None and now_ms >= self._deadline_ms

    def _until(self, time_ms: int) -> int:
        if self._deadline_ms is None:
            return time_ms
        return min(time_ms, self._deadline_ms)
