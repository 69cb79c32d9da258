"""The thread in which a store is used, so that a disk that hangs stops no client.

Owns the way there and back: what is given is done one after the other, and what came of
it is told on the event loop. It is on the way of every send, so it is a queue and a
callback, and no more. Knows nothing about stores or turns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

# What is told of work that has ended: its result, or its error.
Told = Callable[[Any], object]


class StoreThread:
    """Does what it is given, in the order in which it was given."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._given: SimpleQueue[tuple[Callable[[], Any], Told] | None] = SimpleQueue()
        # It holds up no end of the process: what waits for it was not acknowledged.
        self._thread = threading.Thread(target=self._work_off, name=name, daemon=True)
        self._thread.start()

    def call(
        self, work: Callable[[], T], told: Callable[[T | BaseException], None]
    ) -> None:
        """Have something done; `told` is called on the loop with what came of it."""
        self._given.put((work, told))

    async def run(self, work: Callable[[], T]) -> T:
        """Have something done, and wait for it."""
        future: asyncio.Future[T] = self._loop.create_future()

        def told(result: T | BaseException) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.call(work, told)
        return await future

    def stop(self) -> None:
        """Wait until all is done, and end."""
        self._given.put(None)
        self._thread.join()

    def _work_off(self) -> None:
        while (given := self._given.get()) is not None:
            work, told = given
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001
                result = error
            try:
                self._loop.call_soon_threadsafe(told, result)
            except RuntimeError:
                # The loop is closed: there is no client to be told.
                return
            # Nothing is kept alive by the wait for the next.
            del given, work, told, result
