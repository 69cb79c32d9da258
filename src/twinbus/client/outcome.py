"""What becomes of a send, for its caller and for callers that come later.

Owns the two futures of a send: the one its caller waits for, and the one that tells the
rest once that caller has left. Not a subclass of `Future`, because asyncio is slower
with those. Knows neither links nor messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Outcome:
    """Ends once: accepted, or with the error that `Sender.send` would raise."""

    __slots__ = ("future", "late")

    def __init__(self) -> None:
        # To wait for; cancelled, the send is taken back if it can be.
        self.future: asyncio.Future[None]
        self.future = asyncio.get_running_loop().create_future()
        # Who is told after the caller has left.
        self.late: asyncio.Future[None] | None = None

    def __await__(self) -> Generator[Any, None, None]:
        return self.future.__await__()

    @property
    def begun(self) -> bool:
        """Whether anything may have been sent; if not, cancelling undoes it all."""
        return True

    def done(self) -> bool:
        """Whether it has ended for its caller."""
        return self.future.done()

    def exception(self) -> BaseException | None:
        """How it has ended; None if it was accepted."""
        return self.future.exception()

    def add_done_callback(self, call: Callable[[asyncio.Future[None]], Any]) -> None:
        """Have something called when it has ended, as a future does."""
        self.future.add_done_callback(call)

    def remove_done_callback(self, call: Callable[[asyncio.Future[None]], Any]) -> None:
        """Have it not called."""
        self.future.remove_done_callback(call)

    def cancel(self) -> bool:
        """Take it back; what was sent already is forgotten. False if it has ended."""
        return self.future.cancel()

    def leave(self, reason: BaseException) -> asyncio.Future[None]:
        """Raise `reason` where the send is waited for, and let the send go on.

        Returns a future for what becomes of it. To cancel that one takes back what
        was not sent.
        """
        future = self.future
        if future.done():
            return future
        self.late = future.get_loop().create_future()
        future.set_exception(reason)
        # No caller may be waiting, and that is no mistake.
        future.exception()
        return self.late

    def end(self, error: BaseException | None) -> None:
        """It is decided; later words change nothing."""
        future = self.future if self.late is None else self.late
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class TaskOutcome(Outcome):
    """The outcome of something that runs in a task of its own."""

    __slots__ = ("_task",)

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        super().__init__()
        self._task = self.future.get_loop().create_task(work)
        self._task.add_done_callback(self._done)
        self.future.add_done_callback(self._ended)

    def leave(self, reason: BaseException) -> asyncio.Future[None]:
        late = super().leave(reason)
        late.add_done_callback(self._ended)
        return late

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # By the caller, or because the loop ends: then no caller is left to tell.
            (self.late or self.future).cancel()
        else:
            self.end(task.exception())

    def _ended(self, future: asyncio.Future[None]) -> None:
        if future.cancelled():
            self._task.cancel()
