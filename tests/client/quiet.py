"""Nothing is left behind, and nothing goes wrong unseen.

Owns the look at an event loop after a test: tasks that still run, and errors that
asyncio would only have written to a log (a future whose error was not looked at, a
callback that failed).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

_SECONDS_MAX = 20.0


@asynccontextmanager
async def quiet() -> AsyncIterator[None]:
    """Fail if what runs inside leaves a task, or an error that is not looked at."""
    loop = asyncio.get_running_loop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    before = asyncio.all_tasks()
    try:
        yield
        async with asyncio.timeout(_SECONDS_MAX):
            while left := asyncio.all_tasks() - before:
                await asyncio.wait(left)
        # Futures complain when they are collected.
        gc.collect()
        await asyncio.wait([loop.create_task(_nothing())])
    finally:
        loop.set_exception_handler(None)
    assert unseen == []


async def _nothing() -> None:
    pass
