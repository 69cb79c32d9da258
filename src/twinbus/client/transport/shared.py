"""Work that many wait for, each for as long as it likes.

A connection is opened once however many tasks need it. Each waits with its own
deadline, or leaves when it is cancelled; the work goes on as long as one is left, ends
for all alike, and is cancelled with the last. So it needs no deadline of its own, and
nothing is left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from twinbus.client.transport.deadline import Deadline
from twinbus.errors import DeadlineExceeded, Disconnected

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """One piece of work, started when the first asks for its result."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self._work = work
        self._run: _Run[_T] | None = None
        # What the work waits for now, or the other work that it waits for.
        self.stage: str | Shared[Any] = "start"

    @property
    def stage_name(self) -> str:
        """What the work waits for now, in a word."""
        inner = self.stage
        return inner if isinstance(inner, str) else inner.stage_name

    async def get(self, deadline: Deadline | None = None) -> _T:
        """Wait for the result; without a deadline only inside other shared work."""
        run = self._run
        if run is None or run.task.done():
            run = self._run = _Run(self._work)
        loop = run.task.get_loop()
        waiter: asyncio.Future[_T] = loop.create_future()
        run.waiters[waiter] = None
        timer: asyncio.TimerHandle | None = None
        if deadline is not None:
            timer = loop.call_at(deadline.at, self._expire, waiter, deadline)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            run.waiters.pop(waiter, None)
            if not run.waiters and not run.task.done():
                run.task.cancel()
                self._run = None

    def stop(self) -> None:
        """End the work; who waits is told that the connection was closed."""
        if self._run is not None:
            self._run.task.cancel()

    def _expire(self, waiter: asyncio.Future[_T], deadline: Deadline) -> None:
        if not waiter.done():
            error = DeadlineExceeded(self.stage_name, deadline.seconds)
            waiter.set_exception(error)


class _Run(Generic[_T]):
    """The work under way, and who waits for it."""

    __slots__ = ("task", "waiters")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        # In the order in which they came, so that they go on in it.
        self.waiters: dict[asyncio.Future[_T], None] = {}
        self.task = asyncio.get_running_loop().create_task(work())
        self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[_T]) -> None:
        error: BaseException | None
        if task.cancelled():
            error = Disconnected("The connection was closed.")
        else:
            error = task.exception()
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(task.result())
