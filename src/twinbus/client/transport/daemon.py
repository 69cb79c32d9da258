"""Calls that block, in threads that no caller has to wait for.

A credential or a resolver that hangs cannot be stopped from outside. A pool would be
joined when the process ends, so one of them would keep it from ending; a daemon is not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_T = TypeVar("_T")


async def in_daemon(call: Callable[[], _T]) -> _T:
    """Make a call in a thread of its own; who is cancelled does not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def finish(result: list[_T], error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result[0])

    def run() -> None:
        result: list[_T] = []
        failure: Exception | None = None
        try:
            result.append(call())
        except Exception as error:  # noqa: BLE001
            failure = error
        # A loop that has ended has no waiting caller.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, result, failure)

    threading.Thread(target=run, name="twinbus-daemon", daemon=True).start()
    return await future
