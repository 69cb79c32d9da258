"""Deadlines: no wait of the client is without one.

A `Deadline` is made once where a call begins and goes along to every wait of the call,
so that all of them together end in time. The error names the wait that did not end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from twinbus.errors import DeadlineExceeded

_T = TypeVar("_T")


class Deadline:
    """A moment of the running loop's clock."""

    __slots__ = ("at", "seconds")

    def __init__(self, seconds: float, now: float | None = None) -> None:
        self.seconds = seconds
        if now is None:
            now = asyncio.get_running_loop().time()
        self.at = now + seconds

    def left_seconds(self) -> float:
        """What is left of the time; never negative."""
        return max(self.at - asyncio.get_running_loop().time(), 0.0)


async def answer(future: asyncio.Future[_T], deadline: Deadline, stage: str) -> _T:
    """Wait for a future that one caller alone waits for.

    It fails with `DeadlineExceeded` when the time is over, and is cancelled with its
    caller: code that would answer sees that it is done and leaves it alone.
    """
    if future.done():
        return future.result()
    timer = future.get_loop().call_at(deadline.at, _expire, future, deadline, stage)
    try:
        return await future
    finally:
        timer.cancel()


def _expire(future: asyncio.Future[Any], deadline: Deadline, stage: str) -> None:
    if not future.done():
        future.set_exception(DeadlineExceeded(stage, deadline.seconds))


@asynccontextmanager
async def limit(deadline: Deadline, stage: str) -> AsyncIterator[None]:
    """Cancel what runs inside when the time is over."""
    timeout = asyncio.timeout_at(deadline.at)
    try:
        async with timeout:
            yield
    except TimeoutError:
        if timeout.expired():
            raise DeadlineExceeded(stage, deadline.seconds) from None
        raise
