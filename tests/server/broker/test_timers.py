"""The timers of a host on a loop that rounds times, as uvloop does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from twinbus import limits
from twinbus.server.broker.timers import IdleTimer, LoopTimer


class RoundingLoop:
    """A loop without sockets: time moves by hand, timers are called by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(
        self, _seconds: float, call: Callable[..., None], *given: Any
    ) -> asyncio.Handle:
        self.calls.append((call, given))
        loop = cast("asyncio.AbstractEventLoop", self)
        return asyncio.Handle(call, given, loop)

    def fire(self) -> None:
        """Call the last timer."""
        call, given = self.calls.pop()
        call(*given)

    def get_debug(self) -> bool:
        return False


@pytest.fixture
def loop() -> RoundingLoop:
    return RoundingLoop()


@pytest.fixture
def timer(loop: RoundingLoop) -> LoopTimer:
    return LoopTimer(cast("asyncio.AbstractEventLoop", loop))


def test_timer_that_fired_early_is_over(loop: RoundingLoop, timer: LoopTimer) -> None:
    seen: list[bool] = []
    timer.set(0.0104, lambda: seen.append(timer.is_due_within(60)))

    loop.now += 0.010
    loop.fire()

    assert seen == [False]
    assert not timer.is_due_within(60)


def test_timer_is_due_within_the_time_that_is_left(
    loop: RoundingLoop, timer: LoopTimer
) -> None:
    timer.set(10, lambda: None)
    loop.now += 4

    assert timer.is_due_within(6)
    assert not timer.is_due_within(5)


def test_timer_may_be_set_again_while_it_fires(
    loop: RoundingLoop, timer: LoopTimer
) -> None:
    timer.set(1, lambda: timer.set(2, lambda: None))

    loop.now += 1
    loop.fire()

    assert timer.is_due_within(2)


def test_timer_that_is_cancelled_is_not_due(timer: LoopTimer) -> None:
    timer.set(1, lambda: None)

    timer.cancel()

    assert not timer.is_due_within(60)


# -- idle --------------------------------------------------------------------------


@pytest.fixture
def calls() -> list[float]:
    return []


@pytest.fixture
def idle_timer(loop: RoundingLoop, calls: list[float]) -> IdleTimer:
    def call() -> bool:
        calls.append(loop.now)
        return len(calls) > 1

    return IdleTimer(cast("asyncio.AbstractEventLoop", loop), call)


def test_little_work_needs_no_call(loop: RoundingLoop, idle_timer: IdleTimer) -> None:
    idle_timer.note([1, limits.CHECKPOINT_WORK_MIN - 2])

    assert loop.calls == []


def test_work_of_several_turns_adds_up(
    loop: RoundingLoop, idle_timer: IdleTimer, calls: list[float]
) -> None:
    idle_timer.note([limits.CHECKPOINT_WORK_MIN - 1])
    idle_timer.note([1])

    loop.fire()

    assert calls == [loop.now]


def test_the_pause_begins_anew_with_each_turn(
    loop: RoundingLoop, idle_timer: IdleTimer
) -> None:
    idle_timer.note([limits.CHECKPOINT_WORK_MIN])
    first = idle_timer._timer._handle
    idle_timer.note([])

    assert first is not None
    assert first.cancelled()
    assert len(loop.calls) == 2


def test_work_is_counted_anew_after_a_call_that_was_heard(
    loop: RoundingLoop, idle_timer: IdleTimer, calls: list[float]
) -> None:
    idle_timer.note([limits.CHECKPOINT_WORK_MIN])
    loop.fire()
    # It could not be done then.
    idle_timer.note([])
    loop.fire()
    idle_timer.note([limits.CHECKPOINT_WORK_MIN - 1])

    assert loop.calls == []
    assert len(calls) == 2
