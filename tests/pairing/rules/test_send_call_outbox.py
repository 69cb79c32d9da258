"""One call of send with a local outbox behind the backlog."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.pairing.rules.one_sender import ATTEMPT_MS, BUSY, GONE, LOST, T0, Sender
from tests.pairing.rules.test_send_call_sick import on_probation
from twinbus.errors import MessageTooLarge, RemoteError
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.send_call import (
    Done,
    GiveUp,
    SendCall,
    TryBacklog,
    TryOutbox,
    TryPrimary,
)

DISK = RemoteError("amqp:internal-error", "The disk is full.")


def with_outbox(sender: Sender) -> Sender:
    sender.rules = replace(sender.rules, outbox=True)
    return sender


def over(
    queues: int = 2, deadline_ms: int | None = None
) -> tuple[Sender, SendCall, TryBacklog | TryOutbox]:
    """A call to an entity that has failed over, and its first step."""
    sender = with_outbox(Sender(interval_ms=0, queues=queues))
    sender.entity.failed(0, Verdict.COUNTED, LOST, T0)
    call = sender.call(deadline_ms)
    step = call.start(T0).step
    assert isinstance(step, TryBacklog | TryOutbox)
    return sender, call, step


def test_without_a_backlog_queue_a_send_goes_to_the_outbox() -> None:
    _, call, step = over(queues=0)

    assert step == TryOutbox(T0 + ATTEMPT_MS)
    assert call.outbox_accepted().step == Done()


def test_a_send_goes_to_the_outbox_when_every_backlog_queue_has_failed() -> None:
    sender, call, step = over(queues=2)
    assert isinstance(step, TryBacklog)

    assert isinstance(call.backlog_failed(GONE, T0 + 1).step, TryBacklog)
    assert isinstance(call.backlog_failed(BUSY, T0 + 2).step, TryOutbox)

    assert isinstance(sender.call().start(T0 + 3).step, TryOutbox)


def test_a_healthy_backlog_is_preferred_to_the_outbox() -> None:
    _, call, step = over()

    assert isinstance(step, TryBacklog)
    assert call.backlog_accepted(T0 + 1).step == Done()


def test_a_silent_backlog_queue_costs_a_call_one_attempt() -> None:
    sender, call, step = over(queues=3)
    assert isinstance(step, TryBacklog)

    turn = call.backlog_failed(TimeoutError(), step.deadline_ms)

    assert isinstance(turn.step, TryOutbox)
    # It is out of the rotation; the others are still in.
    assert [sender.rotation.is_in(each) for each in range(3)].count(False) == 1


def test_some_of_the_callers_time_is_kept_for_the_outbox() -> None:
    sender, call, step = over(queues=1, deadline_ms=T0 + 10_000)
    assert step == TryBacklog(0, T0 + 9_000)

    assert call.backlog_failed(TimeoutError(), T0 + 9_000).step == TryOutbox(
        T0 + 10_000
    )
    assert not sender.rotation.is_in(0)


def test_a_backlog_attempt_that_the_callers_time_cuts_is_not_the_queues_fault() -> None:
    sender, call, step = over(queues=1, deadline_ms=T0 + 1_000)
    assert step == TryBacklog(0, T0 + 500)

    assert call.backlog_failed(TimeoutError(), T0 + 500).step == TryOutbox(T0 + 1_000)
    assert sender.rotation.is_in(0)


def test_the_outbox_takes_a_message_that_is_too_large_for_the_backlog() -> None:
    sender, call, _ = over(queues=1)

    assert isinstance(call.backlog_failed(MessageTooLarge(), T0 + 1).step, TryOutbox)
    assert sender.rotation.is_in(0)


@pytest.mark.parametrize("queues", [0, 1])
def test_an_error_of_the_outbox_is_raised_when_nothing_else_is_left(
    queues: int,
) -> None:
    _, call, _ = over(queues)
    if queues:
        call.backlog_failed(GONE, T0 + 1)

    assert call.outbox_failed(DISK, T0 + 2).step == GiveUp(DISK)


def test_a_send_that_the_outbox_refuses_tries_the_queues_that_are_left() -> None:
    _, call, step = over(queues=2)
    assert isinstance(step, TryBacklog)
    call.backlog_failed(TimeoutError(), step.deadline_ms)

    following = call.outbox_failed(DISK, step.deadline_ms + 1).step

    assert isinstance(following, TryBacklog)
    assert following.index != step.index


def test_a_message_that_the_outbox_cannot_take_is_raised() -> None:
    _, call, _ = over(queues=0)
    error = MessageTooLarge()

    assert call.outbox_failed(error, T0 + 1).step == GiveUp(error)


def test_an_outbox_without_an_answer_ends_with_the_callers_time() -> None:
    _, call, step = over(queues=0, deadline_ms=T0 + 100)
    assert step == TryOutbox(T0 + 100)
    error = TimeoutError()

    turn = call.outbox_failed(error, T0 + 100)

    assert turn.step == GiveUp(error, timed_out=True)


def test_after_a_relapse_sends_beside_the_trial_go_to_the_outbox() -> None:
    sender = on_probation(with_outbox(Sender(interval_ms=0, queues=0)), relapses=1)
    first, second = sender.call(), sender.call()

    assert isinstance(first.start(T0).step, TryPrimary)
    assert isinstance(second.start(T0).step, TryOutbox)
