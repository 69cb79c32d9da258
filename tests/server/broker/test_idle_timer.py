"""When a host that has worked is idle."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.server.broker.test_loop_timer import RoundingLoop
from twinbus import limits
from twinbus.server.broker.idle_timer import IdleTimer


@pytest.fixture
def loop() -> RoundingLoop:
    return RoundingLoop()


@pytest.fixture
def calls() -> list[float]:
    return []


@pytest.fixture
def timer(loop: RoundingLoop, calls: list[float]) -> IdleTimer:
    def call() -> bool:
        calls.append(loop.now)
        return len(calls) > 1

    return IdleTimer(cast("asyncio.AbstractEventLoop", loop), call)


def test_little_work_needs_no_call(loop: RoundingLoop, timer: IdleTimer) -> None:
    timer.note([1, limits.CHECKPOINT_WORK_MIN - 2])

    assert loop.calls == []


def test_work_of_several_turns_adds_up(
    loop: RoundingLoop, timer: IdleTimer, calls: list[float]
) -> None:
    timer.note([limits.CHECKPOINT_WORK_MIN - 1])
    timer.note([1])

    loop.fire()

    assert calls == [loop.now]


def test_the_pause_begins_anew_with_each_turn(
    loop: RoundingLoop, timer: IdleTimer
) -> None:
    timer.note([limits.CHECKPOINT_WORK_MIN])
    first = timer._timer._handle
    timer.note([])

    assert first is not None
    assert first.cancelled()
    assert len(loop.calls) == 2


def test_work_is_counted_anew_after_a_call_that_was_heard(
    loop: RoundingLoop, timer: IdleTimer, calls: list[float]
) -> None:
    timer.note([limits.CHECKPOINT_WORK_MIN])
    loop.fire()
    # It could not be done then.
    timer.note([])
    loop.fire()
    timer.note([limits.CHECKPOINT_WORK_MIN - 1])

    assert loop.calls == []
    assert len(calls) == 2
