"""An answer that serves all requests of a moment.

Owns the rule that many who ask cost as much as one: at most one answer is worked out at
a time, and it serves until it is too old. Knows nothing about what is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """The answer of a coroutine function, which is called anew when it is too old."""

    def __init__(
        self, ask: Callable[[], Coroutine[Any, Any, T]], seconds: float
    ) -> None:
        self._ask = ask
        self._seconds = seconds
        # The question that is under way or was the last, and when it was answered.
        self._asked: asyncio.Task[T] | None = None
        self._answered_at = 0.0

    def task(self) -> asyncio.Task[T]:
        """The question that is under way, or was answered just now, or a new one.

        All who ask share it: wait for it without cancelling it.
        """
        asked = self._asked
        loop = asyncio.get_running_loop()
        fresh_from = loop.time() - self._seconds
        if asked is None or (asked.done() and self._answered_at < fresh_from):
            asked = self._asked = loop.create_task(self._answer())
        return asked

    async def _answer(self) -> T:
        try:
            return await self._ask()
        finally:
            self._answered_at = asyncio.get_running_loop().time()
