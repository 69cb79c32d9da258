"""One call of send to an entity that is sick: slow, relapsing, refused, or too late."""

from __future__ import annotations

import pytest

from tests.pairing.rules.one_sender import ATTEMPT_MS, GONE, LOST, T0, Sender
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.decisions import Divert
from twinbus.pairing.rules.policy import EntityState
from twinbus.pairing.rules.send_call import (
    Done,
    GiveUp,
    TryBacklog,
    TryPrimary,
    Wait,
)


def on_probation(sender: Sender, relapses: int = 0) -> Sender:
    """Let the entity fail over and back, and relapse so many times."""
    entity = sender.entity
    entity.failed(0, Verdict.COUNTED, LOST, T0)
    for ping_id in range(1, relapses + 2):
        entity.ping_ended(ping_id, None, None, T0)
        if ping_id <= relapses:
            entity.failed(entity.begin(), Verdict.COUNTED, LOST, T0)
    assert entity.state is EntityState.PROBATION
    return sender


# -- probation ---------------------------------------------------------------------


def test_a_send_that_fails_on_probation_goes_to_the_backlog_in_the_same_call() -> None:
    call = on_probation(Sender(interval_ms=0)).call()
    assert call.start(T0).step == TryPrimary(T0 + ATTEMPT_MS)

    turn = call.primary_failed(TimeoutError(), T0 + 5)

    assert isinstance(turn.step, TryBacklog)
    assert Divert("orders") in turn.decisions


def test_without_holding_a_send_that_fails_on_probation_raises() -> None:
    sender = on_probation(Sender(interval_ms=0, hold=False))
    call = sender.call()
    call.start(T0)

    assert call.primary_failed(LOST, T0 + 5).step == GiveUp(LOST)
    assert sender.entity.state is EntityState.FAILED_OVER


def test_after_a_relapse_one_send_is_on_trial_and_the_others_are_diverted() -> None:
    sender = on_probation(Sender(interval_ms=0), relapses=1)
    first, second = sender.call(), sender.call()

    assert isinstance(first.start(T0).step, TryPrimary)
    assert isinstance(second.start(T0).step, TryBacklog)

    first.primary_accepted(T0 + 1)
    assert sender.entity.direct


def test_without_a_backlog_queue_every_send_is_on_trial() -> None:
    sender = on_probation(Sender(interval_ms=0, queues=0), relapses=1)

    assert isinstance(sender.call().start(T0).step, TryPrimary)
    assert isinstance(sender.call().start(T0).step, TryPrimary)


# -- refused -----------------------------------------------------------------------


def test_a_send_to_a_refused_entity_raises_what_the_primary_says() -> None:
    sender = Sender(interval_ms=0)
    sender.entity.failed(0, Verdict.COUNTED, LOST, T0)
    sender.entity.ping_ended(1, Verdict.RAISE, GONE, T0)

    assert sender.call().start(T0 + 5).step == GiveUp(GONE)


# -- slow --------------------------------------------------------------------------


def test_a_slow_send_counts_and_goes_on() -> None:
    sender = Sender(slow_send_ms=1_000)
    call = sender.call()
    assert call.start(T0).step == TryPrimary(T0 + ATTEMPT_MS, T0 + 1_000)

    assert call.woken(T0 + 999).step == Wait(T0 + 1_000)
    assert call.woken(T0 + 1_000).step == Wait(None)

    assert sender.entity.state is EntityState.SUSPECT
    assert call.primary_accepted(T0 + 5_000).step == Done()
    assert sender.entity.state is EntityState.SUSPECT


def test_a_slow_send_is_diverted_when_the_entity_fails_over() -> None:
    sender = Sender(interval_ms=0, slow_send_ms=1_000)
    call = sender.call()
    call.start(T0)

    turn = call.woken(T0 + 1_000)

    assert isinstance(turn.step, TryBacklog)
    assert Divert("orders") in turn.decisions


def test_a_slow_send_that_fails_in_the_end_counts_once() -> None:
    sender = Sender(slow_send_ms=1_000)
    call = sender.call()
    call.start(T0)
    call.woken(T0 + 1_000)

    call.primary_failed(LOST, T0 + 2_000)

    assert sender.entity.status().counted_failures == 1


# -- the caller's timeout ----------------------------------------------------------


def test_where_one_failure_fails_over_time_is_kept_for_the_backlog() -> None:
    sender = Sender(interval_ms=0)
    call = sender.call(T0 + 3_000)
    assert call.start(T0).step == TryPrimary(T0 + 2_000)

    turn = call.primary_failed(TimeoutError(), T0 + 2_000)

    index = sender.choice.queue()
    assert index is not None
    assert turn.step == TryBacklog(index, T0 + 3_000)


def test_a_slow_backlog_is_given_more_time_but_at_most_half() -> None:
    sender = Sender(interval_ms=0)
    sender.rotation.recent_ms = 4_000

    assert sender.call(T0 + 9_000).start(T0).step == TryPrimary(T0 + 5_000)
    assert sender.call(T0 + 6_000).start(T0).step == TryPrimary(T0 + 3_000)


def test_where_failures_must_last_no_time_is_kept() -> None:
    assert Sender().call(T0 + 3_000).start(T0).step == TryPrimary(T0 + 3_000)


@pytest.mark.parametrize("interval_ms", [0, 60_000])
def test_an_attempt_that_is_cut_to_a_second_does_not_count(interval_ms: int) -> None:
    sender = Sender(interval_ms=interval_ms)
    call = sender.call(T0 + 1_000)
    assert call.start(T0).step == TryPrimary(T0 + 1_000)

    turn = call.primary_failed(TimeoutError(), T0 + 1_000)

    assert isinstance(turn.step, GiveUp)
    assert turn.step.timed_out
    assert sender.entity.direct


def test_a_short_send_on_the_fast_path_does_not_count_either() -> None:
    sender = Sender()
    call = sender.call(T0 + 500)

    turn = call.fast_path_failed(TimeoutError(), T0 + 500, 500)

    assert isinstance(turn.step, GiveUp)
    assert sender.entity.direct


def test_an_answer_counts_however_short_the_time_is() -> None:
    sender = Sender(interval_ms=0)
    call = sender.call(T0 + 1_000)
    call.start(T0)

    assert isinstance(call.primary_failed(LOST, T0 + 5).step, TryBacklog)


def test_a_slow_acceptance_is_late_while_its_call_waits_for_a_queue() -> None:
    sender = Sender(interval_ms=0, queues=0, slow_send_ms=2_000)
    call = sender.call(T0 + 60_000)
    call.start(T0)
    sender.entity.failed(0, Verdict.COUNTED, LOST, T0 + 1)
    assert call.woken(T0 + 1).step == Wait(T0 + 60_000)

    assert call.primary_accepted(T0 + 5_000).step == Done()

    assert sender.entity.state is EntityState.FAILED_OVER
