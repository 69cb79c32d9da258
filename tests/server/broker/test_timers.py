"""The timer of a host on a loop that rounds times, as uvloop does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from twinbus.server.broker.loop_timer import LoopTimer


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
