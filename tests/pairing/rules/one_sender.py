"""A factory with one sender and nothing behind it, for tests of single calls."""

from __future__ import annotations

from random import Random

from twinbus import limits
from twinbus.errors import BusyError, RemoteError
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.holding import HoldBudget
from twinbus.pairing.rules.policy import EntityPolicy, EntityState, PolicySettings
from twinbus.pairing.rules.rotation import Rotation, SenderChoice
from twinbus.pairing.rules.send_call import SendCall, SendRules, TryBacklog, Wait

T0 = 1_700_000_000_000
LOST = ConnectionResetError("lost")
BUSY = BusyError()
GONE = RemoteError("amqp:not-found")
ATTEMPT_MS = limits.ATTEMPT_MS_MAX


class Sender:
    """A factory with one sender, and nothing behind it."""

    def __init__(
        self,
        interval_ms: int = 60_000,
        hold: bool = True,
        queues: int = 2,
        budget: HoldBudget | None = None,
        *,
        slow_send_ms: int = 0,
    ) -> None:
        settings = PolicySettings(interval_ms, 60_000, hold, slow_send_ms)
        self.entity = EntityPolicy("orders", settings, budget or HoldBudget())
        self.rotation = Rotation("contoso", range(queues), Random(1).randrange)
        self.rules = SendRules(self.rotation, lambda: 0.0)
        self.choice = SenderChoice(self.rotation)

    def call(self, deadline_ms: int | None = None, size: int = 10) -> SendCall:
        return SendCall(self.rules, self.entity, self.choice, size, deadline_ms)

    def held(self, now_ms: int = T0) -> SendCall:
        """A call that has failed once and waits at the head of the line."""
        call = self.call()
        call.start(now_ms)
        turn = call.primary_failed(TimeoutError(), now_ms)
        assert isinstance(turn.step, Wait)
        return call

    def fail_over(self, now_ms: int) -> None:
        """Let the timer fire, with failures since it started."""
        self.entity.failed(self.entity.begin(), Verdict.COUNTED, LOST, now_ms)
        self.entity.timer_fired(1, now_ms)
        assert self.entity.state is EntityState.FAILED_OVER


def over(queues: int = 2, deadline_ms: int | None = None) -> tuple[Sender, SendCall]:
    """A call that is about to be sent to a backlog queue."""
    sender = Sender(interval_ms=0, queues=queues)
    sender.entity.failed(0, Verdict.COUNTED, LOST, T0)
    call = sender.call(deadline_ms)
    assert isinstance(call.start(T0).step, TryBacklog)
    return sender, call
