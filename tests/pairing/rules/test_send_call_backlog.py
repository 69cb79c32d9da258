"""One call of send: a busy service, and the queues of the backlog."""

from __future__ import annotations

import pytest

from tests.pairing.rules.one_sender import (
    ATTEMPT_MS,
    BUSY,
    GONE,
    LOST,
    T0,
    Sender,
    over,
)
from twinbus.errors import MessageTooLarge, QuotaExceeded, RemoteError
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.decisions import ProbeQueue, Wake
from twinbus.pairing.rules.send_call import (
    Done,
    GiveUp,
    SendCall,
    SendRules,
    TryBacklog,
    TryPrimary,
    Wait,
)

# -- server busy -------------------------------------------------------------------


def test_a_busy_service_is_asked_again_after_ten_seconds() -> None:
    sender = Sender()
    call = sender.call()
    call.start(T0)

    assert call.primary_failed(BUSY, T0 + 5).step == Wait(T0 + 10_005)
    assert call.woken(T0 + 10_004).step == Wait(T0 + 10_005)
    assert call.woken(T0 + 10_005).step == TryPrimary(T0 + 10_005 + ATTEMPT_MS)
    assert sender.entity.direct


def test_a_busy_service_is_asked_as_often_as_the_callers_timeout_allows() -> None:
    call = Sender().call(T0 + 25_000)
    call.start(T0)
    assert call.primary_failed(BUSY, T0).step == Wait(T0 + 10_000)
    call.woken(T0 + 10_000)
    assert call.primary_failed(BUSY, T0 + 10_000).step == Wait(T0 + 20_000)
    call.woken(T0 + 20_000)

    assert call.primary_failed(BUSY, T0 + 20_000).step == GiveUp(BUSY)


def test_each_busy_message_waits_on_its_own() -> None:
    sender = Sender()
    first, second = sender.held(), sender.held()
    first.woken(T0 + 9_000)

    turn = first.primary_failed(BUSY, T0 + 9_001)

    assert turn.step == Wait(T0 + 19_001)
    assert turn.decisions == [Wake(second)]
    assert isinstance(second.woken(T0 + 9_001).step, TryPrimary)


def test_a_busy_message_goes_to_the_backlog_when_the_entity_fails_over() -> None:
    sender = Sender()
    call = sender.call()
    call.start(T0)
    call.primary_failed(BUSY, T0)
    sender.entity.failed(0, Verdict.COUNTED, LOST, T0)
    sender.fail_over(T0 + 60_000)

    assert isinstance(call.woken(T0 + 60_000).step, TryBacklog)


# -- the backlog -------------------------------------------------------------------


def test_a_send_goes_on_with_another_queue() -> None:
    sender, call = over()
    first = sender.choice.queue()

    step = call.backlog_failed(GONE, T0 + 5).step

    assert isinstance(step, TryBacklog)
    assert step.index != first
    assert call.backlog_accepted(T0 + 6).step == Done()


def test_a_broken_connection_of_the_secondary_takes_no_queue_out() -> None:
    sender, call = over(queues=1)

    step = call.backlog_failed(LOST, T0 + 5).step

    assert isinstance(step, TryBacklog)
    assert step.index == 0
    assert sender.rotation.is_in(0)
    assert call.backlog_accepted(T0 + 6).step == Done()


def test_a_queue_whose_connection_breaks_twice_is_out() -> None:
    sender, call = over(queues=2)
    first = call.backlog_failed(LOST, T0 + 5).step
    second = call.backlog_failed(LOST, T0 + 6).step

    assert isinstance(first, TryBacklog)
    assert isinstance(second, TryBacklog)
    assert first.index != second.index
    assert not sender.rotation.is_in(first.index)
    assert isinstance(call.backlog_failed(LOST, T0 + 7).step, TryBacklog)
    assert call.backlog_failed(LOST, T0 + 8).step == GiveUp(LOST)


def test_when_no_queue_is_left_the_last_error_is_raised() -> None:
    sender, call = over(queues=2)
    call.backlog_failed(GONE, T0 + 5)
    last = RemoteError("amqp:internal-error")

    assert call.backlog_failed(last, T0 + 6).step == GiveUp(last)
    assert sender.call().start(T0 + 7).step == GiveUp(last)


def waiting(sender: Sender, call: SendCall, until_ms: int) -> None:
    """The only queue fails, and the call waits for it."""
    turn = call.backlog_failed(GONE, T0 + 5)
    assert turn.step == Wait(until_ms)
    assert ProbeQueue(0, T0 + 1_005) in turn.decisions
    assert not sender.rotation.is_in(0)


def test_a_send_with_a_timeout_waits_until_a_queue_is_back() -> None:
    sender, call = over(queues=1, deadline_ms=T0 + 90_000)
    waiting(sender, call, T0 + 90_000)

    decisions = sender.rotation.probe_ended(0, None, T0 + 60_000)

    assert Wake(call) in decisions
    assert isinstance(call.woken(T0 + 60_000).step, TryBacklog)
    assert call.backlog_accepted(T0 + 60_001).step == Done()


def test_a_send_that_waits_for_a_queue_returns_to_an_entity_that_failed_back() -> None:
    sender, call = over(queues=1, deadline_ms=T0 + 90_000)
    waiting(sender, call, T0 + 90_000)
    sender.entity.mark_healthy(T0 + 10)

    assert isinstance(call.woken(T0 + 10).step, TryPrimary)
    assert Wake(call) not in sender.rotation.probe_ended(0, None, T0 + 1_005)


def test_a_send_that_waits_for_a_queue_ends_with_its_timeout() -> None:
    sender, call = over(queues=1, deadline_ms=T0 + 90_000)
    waiting(sender, call, T0 + 90_000)

    assert call.woken(T0 + 90_000).step == GiveUp(GONE, timed_out=True)
    assert Wake(call) not in sender.rotation.probe_ended(0, None, T0 + 91_000)


def test_a_send_that_is_cancelled_while_it_waits_for_a_queue_is_forgotten() -> None:
    sender, call = over(queues=1, deadline_ms=T0 + 90_000)
    waiting(sender, call, T0 + 90_000)

    call.cancelled()

    assert Wake(call) not in sender.rotation.probe_ended(0, None, T0 + 1_005)


def test_a_message_fault_is_not_the_queues_fault() -> None:
    sender, call = over(queues=1)
    error = MessageTooLarge()

    assert call.backlog_failed(error, T0 + 5).step == GiveUp(error)
    assert sender.rotation.is_in(0)


def test_the_callers_timeout_is_not_the_queues_fault() -> None:
    sender, call = over(queues=1, deadline_ms=T0 + 100)
    error = TimeoutError()

    turn = call.backlog_failed(error, T0 + 100)

    assert turn.step == GiveUp(error, timed_out=True)
    assert sender.rotation.is_in(0)


def test_a_cancellation_is_not_the_queues_fault() -> None:
    sender, call = over(queues=1)

    assert call.cancelled() == []
    assert sender.rotation.is_in(0)


def test_an_attempt_on_the_backlog_ends_no_later_than_the_callers_timeout() -> None:
    sender = Sender(interval_ms=0)
    sender.entity.failed(0, Verdict.COUNTED, LOST, T0)

    step = sender.call(T0 + 100).start(T0).step

    assert isinstance(step, TryBacklog)
    assert step.deadline_ms == T0 + 100


def test_a_send_returns_to_an_entity_that_failed_back_meanwhile() -> None:
    sender, call = over()
    sender.entity.mark_healthy(T0 + 3)

    assert isinstance(call.backlog_failed(GONE, T0 + 5).step, TryPrimary)


def test_a_send_that_is_woken_on_its_way_into_the_backlog_is_not_sent_twice() -> None:
    sender, call = over()

    assert call.woken(T0 + 1).step == Wait(None)
    sender.entity.mark_healthy(T0 + 2)
    assert call.woken(T0 + 2).step == Wait(None)


def test_a_batch_is_counted_message_by_message() -> None:
    sender, call = over()

    call.backlog_accepted(T0 + 5, 7)

    assert sender.entity.status().diverted == 7
    assert sum(queue.accepted for queue in sender.rotation.status()) == 7


def test_an_applications_classifier_decides() -> None:
    sender = Sender(interval_ms=0)
    sender.rules = SendRules(sender.rotation, lambda: 0.0, lambda _: Verdict.COUNTED)
    call = sender.call()
    call.start(T0)

    assert isinstance(call.primary_failed(QuotaExceeded(), T0).step, TryBacklog)


@pytest.mark.parametrize("timeout_ms", [None, 3_600_000])
def test_an_outage_costs_latency_never_an_exception(timeout_ms: int | None) -> None:
    sender = Sender()
    deadline_ms = None if timeout_ms is None else T0 + timeout_ms
    call = sender.call(deadline_ms)
    now_ms = T0
    step = call.start(now_ms).step
    while now_ms < T0 + 60_000:
        assert not isinstance(step, GiveUp)
        if isinstance(step, TryPrimary):
            step = call.primary_failed(LOST, now_ms).step
        else:
            assert isinstance(step, Wait)
            assert step.until_ms is not None
            now_ms = step.until_ms
            step = call.woken(now_ms).step
    sender.entity.timer_fired(1, now_ms)

    if isinstance(step, TryPrimary):
        step = call.primary_failed(LOST, now_ms).step
    else:
        step = call.woken(now_ms).step
    assert isinstance(step, TryBacklog)
    assert call.backlog_accepted(now_ms).step == Done()
