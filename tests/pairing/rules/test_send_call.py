"""One call of send: held, retried, diverted, or raised."""

from __future__ import annotations

from tests.pairing.rules.one_sender import ATTEMPT_MS, LOST, T0, Sender
from twinbus import limits
from twinbus.errors import MessageTooLarge, QuotaExceeded, RemoteError
from twinbus.pairing.errors import TooManyHeldSends
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.decisions import Divert, StartTimer, Wake
from twinbus.pairing.rules.holding import HoldBudget
from twinbus.pairing.rules.policy import EntityState
from twinbus.pairing.rules.send_call import (
    Done,
    GiveUp,
    TryBacklog,
    TryPrimary,
    Wait,
)

# -- to the primary ----------------------------------------------------------------


def test_a_send_goes_to_a_healthy_primary() -> None:
    call = Sender().call()

    assert call.start(T0).step == TryPrimary(T0 + ATTEMPT_MS)
    assert call.primary_accepted(T0 + 5).step == Done()


def test_an_attempt_ends_no_later_than_the_callers_timeout() -> None:
    assert Sender().call(T0 + 100).start(T0).step == TryPrimary(T0 + 100)


def test_a_call_whose_time_is_over_is_not_started() -> None:
    assert Sender().call(T0).start(T0).step == GiveUp(None, timed_out=True)


def test_an_error_that_does_not_count_is_raised_at_once() -> None:
    sender = Sender()
    call = sender.call()
    call.start(T0)
    error = QuotaExceeded()

    assert call.primary_failed(error, T0 + 5).step == GiveUp(error)
    assert sender.entity.direct


# -- held --------------------------------------------------------------------------


def test_a_failing_send_is_held_not_thrown_at_the_caller() -> None:
    sender = Sender()
    call = sender.call()
    call.start(T0)

    turn = call.primary_failed(TimeoutError(), T0 + 5)

    assert isinstance(turn.step, Wait)
    assert len(sender.entity.line) == 1
    assert any(isinstance(each, StartTimer) for each in turn.decisions)


def test_a_held_send_is_retried_on_the_primary_until_it_succeeds() -> None:
    sender = Sender()
    call = sender.held()
    now_ms = T0
    for _ in range(5):
        now_ms += limits.RETRY_PAUSE_MS_MAX
        assert call.woken(now_ms).step == TryPrimary(now_ms + ATTEMPT_MS)
        assert isinstance(call.primary_failed(LOST, now_ms).step, Wait)
    call.woken(now_ms + limits.RETRY_PAUSE_MS_MAX)

    turn = call.primary_accepted(now_ms + 6_000)

    assert turn.step == Done()
    assert sender.entity.direct


def test_a_connection_fault_is_retried_at_once_and_then_with_back_off() -> None:
    sender = Sender()
    call = sender.call()
    call.start(T0)

    assert isinstance(call.primary_failed(LOST, T0).step, TryPrimary)
    assert call.primary_failed(LOST, T0).step == Wait(T0 + limits.RETRY_PAUSE_MS_MIN)


def test_a_send_that_is_woken_too_early_waits_on() -> None:
    call = Sender().held()

    assert call.woken(T0 + 1).step == Wait(T0 + limits.RETRY_PAUSE_MS_MIN)


def test_a_held_send_raises_when_the_callers_timeout_ends() -> None:
    sender = Sender()
    call = sender.call(T0 + 1_000)
    call.start(T0)
    error = TimeoutError()
    turn = call.primary_failed(error, T0 + 900)
    assert turn.step == Wait(T0 + 1_000)

    assert call.woken(T0 + 1_000).step == GiveUp(error, timed_out=True)
    assert not sender.entity.line


def test_an_attempt_that_the_callers_timeout_ends_counts_and_raises() -> None:
    sender = Sender()
    call = sender.call(T0 + 2_000)
    call.start(T0)
    error = TimeoutError()

    turn = call.primary_failed(error, T0 + 2_000)

    assert turn.step == GiveUp(error, timed_out=True)
    assert sender.entity.state is EntityState.SUSPECT
    assert not sender.entity.line


def test_a_held_send_goes_to_the_backlog_when_the_entity_fails_over() -> None:
    sender = Sender()
    call = sender.held()
    sender.fail_over(T0 + 60_000)

    turn = call.woken(T0 + 60_000)

    assert isinstance(turn.step, TryBacklog)
    assert turn.step.deadline_ms == T0 + 60_000 + ATTEMPT_MS
    assert call.backlog_accepted(T0 + 60_005).step == Done()
    assert sender.entity.status().diverted == 1


def test_with_interval_zero_the_same_call_goes_to_the_backlog() -> None:
    sender = Sender(interval_ms=0)
    call = sender.call()
    call.start(T0)

    turn = call.primary_failed(LOST, T0 + 5)

    assert isinstance(turn.step, TryBacklog)
    assert Divert("orders") in turn.decisions


def test_an_attempt_without_an_answer_moves_to_the_backlog_on_failover() -> None:
    sender = Sender()
    call = sender.call()
    call.start(T0)
    sender.entity.failed(0, Verdict.COUNTED, LOST, T0)
    sender.fail_over(T0 + 60_000)

    turn = call.woken(T0 + 60_000)

    assert isinstance(turn.step, TryBacklog)
    sender.entity.accepted(call.attempt, T0 + 60_001, late=True)
    assert sender.entity.state is EntityState.PROBATION


def test_a_send_on_the_fast_path_moves_to_the_backlog_too() -> None:
    sender = Sender()
    sender.entity.failed(0, Verdict.COUNTED, LOST, T0)
    call = sender.call()
    assert call.adopt(T0 + 1).step == Wait(None)
    sender.fail_over(T0 + 60_000)

    assert isinstance(call.woken(T0 + 60_000).step, TryBacklog)


def test_without_holding_a_failing_send_raises() -> None:
    sender = Sender(hold=False)
    call = sender.call()
    call.start(T0)

    assert call.primary_failed(LOST, T0 + 5).step == GiveUp(LOST)
    assert sender.entity.state is EntityState.SUSPECT
    assert isinstance(sender.call().start(T0 + 6).step, TryPrimary)


def test_without_holding_even_the_send_that_fails_over_raises() -> None:
    sender = Sender(interval_ms=0, hold=False)
    call, other = sender.call(), sender.call()
    call.start(T0)
    other.start(T0)

    assert call.primary_failed(LOST, T0 + 5).step == GiveUp(LOST)
    # The other one is still under way on the primary.
    assert other.woken(T0 + 6).step == Wait(None)
    assert isinstance(sender.call().start(T0 + 6).step, TryBacklog)


# -- the line ----------------------------------------------------------------------


def test_a_new_send_to_a_suspect_entity_goes_to_the_primary() -> None:
    sender = Sender()
    held = sender.held()

    call = sender.call()

    assert isinstance(call.start(T0 + 1).step, TryPrimary)
    turn = call.primary_accepted(T0 + 5)
    assert Wake(held) in turn.decisions
    assert isinstance(held.woken(T0 + 5).step, TryPrimary)


def test_one_send_of_the_line_tries_at_a_time() -> None:
    sender = Sender()
    first, second = sender.held(), sender.held()

    assert second.woken(T0 + 9_000).step == Wait(None)
    assert isinstance(first.woken(T0 + 9_000).step, TryPrimary)


def test_one_bad_message_does_not_speak_for_the_entity() -> None:
    sender = Sender()
    first, second = sender.held(), sender.held()
    first.woken(T0 + 9_000)

    turn = first.primary_failed(RemoteError("amqp:internal-error"), T0 + 9_001)

    assert turn.decisions == [Wake(second)]
    assert isinstance(second.woken(T0 + 9_001).step, TryPrimary)


def test_a_connection_fault_does_not_pass_the_turn_on() -> None:
    sender = Sender()
    first, second = sender.held(), sender.held()
    first.woken(T0 + 9_000)

    turn = first.primary_failed(LOST, T0 + 9_001)

    assert turn.decisions == []
    assert second.woken(T0 + 9_001).step == Wait(None)


def test_held_sends_keep_their_order_on_recovery() -> None:
    sender = Sender()
    calls = [sender.held(), sender.held(), sender.held()]
    calls[0].woken(T0 + 9_000)

    turn = calls[0].primary_accepted(T0 + 9_001)

    order = []
    woken = [each.call for each in turn.decisions if isinstance(each, Wake)]
    assert set(woken) == {calls[1]}
    while woken:
        [following] = [call for call in calls if call is woken[0]]
        turn = following.woken(T0 + 9_002)
        assert isinstance(turn.step, TryPrimary)
        order.append(woken[0])
        woken = [each.call for each in turn.decisions if isinstance(each, Wake)]
    assert order == calls[1:]
    assert sender.entity.direct


def test_held_sends_keep_their_order_on_failover() -> None:
    sender = Sender()
    first, second = sender.held(), sender.held()
    sender.fail_over(T0 + 60_000)

    assert second.woken(T0 + 60_000).step == Wait(None)
    turn = first.woken(T0 + 60_000)

    assert turn.decisions == [Wake(second)]
    assert isinstance(second.woken(T0 + 60_000).step, TryBacklog)


def test_sends_do_not_wait_for_an_attempt_on_a_healthy_entity() -> None:
    sender = Sender()
    first, second = sender.held(), sender.held()
    first.woken(T0 + 9_000)
    sender.entity.accepted(0, T0 + 9_001)

    turn = first.woken(T0 + 9_001)

    assert turn.step == Wait(None)
    assert turn.decisions == [Wake(second)]


def test_a_send_that_fails_again_keeps_its_place_in_the_line() -> None:
    sender = Sender()
    first, second = sender.held(), sender.held()
    sender.entity.accepted(0, T0 + 2)
    first.woken(T0 + 2)
    second.woken(T0 + 2)

    second.primary_failed(TimeoutError(), T0 + 3)
    first.primary_failed(TimeoutError(), T0 + 4)

    assert [place.call for place in sender.entity.line] == [first, second]


def test_a_new_send_waits_behind_held_sends_that_resume() -> None:
    sender = Sender()
    sender.held()
    sender.entity.accepted(0, T0 + 2)

    assert sender.call().start(T0 + 2).step == Wait(None)


def test_too_many_held_sends_are_a_clear_error() -> None:
    sender = Sender(budget=HoldBudget(sends_max=1))
    sender.held()
    call = sender.call()
    call.start(T0 + 1)

    step = call.primary_failed(LOST, T0 + 2).step

    assert isinstance(step, GiveUp)
    assert isinstance(step.cause, TooManyHeldSends)


def test_the_error_says_why_the_send_would_have_been_held() -> None:
    sender = Sender(budget=HoldBudget(bytes_max=5))
    call = sender.call()
    call.start(T0)

    step = call.primary_failed(LOST, T0 + 5).step

    assert isinstance(step, GiveUp)
    assert step.cause is not None
    assert step.cause.__cause__ is LOST


def test_a_cancelled_send_leaves_nothing_behind() -> None:
    sender = Sender()
    first, second = sender.held(), sender.held()
    first.woken(T0 + 9_000)

    assert first.cancelled() == [Wake(second)]
    assert second.cancelled() == []

    assert not sender.entity.line


def test_an_attempt_that_was_cancelled_says_nothing_about_the_entity() -> None:
    sender = Sender()
    call = sender.held()
    call.woken(T0 + 9_000)
    call.cancelled()

    sender.entity.timer_fired(1, T0 + 60_000)

    assert sender.entity.state is EntityState.DECIDING


def test_a_held_send_that_is_refused_passes_the_turn_on() -> None:
    sender = Sender()
    first, second = sender.held(), sender.held()
    first.woken(T0 + 9_000)
    error = MessageTooLarge()

    turn = first.primary_failed(error, T0 + 9_001)

    assert turn.step == GiveUp(error)
    assert turn.decisions == [Wake(second)]
