"""An event loop in a thread of its own, for callers that block.

The sync client is the async one run here: any number of threads hand in calls and wait
for their results. Every call has a deadline of its own, so no wait is without an end;
should the thread die, who waits is told. A child process has the object but not the
thread, and is told that too.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from twinbus import limits
from twinbus.errors import Bug, ClientUnusable

_T = TypeVar("_T")


class LoopThread:
    """A thread that runs calls; started by the first, ended by `stop`."""

    def __init__(self, name: str = "twinbus-client") -> None:
        self._name = name
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    @property
    def usable(self) -> bool:
        """Whether calls can be run: not stopped, and not in a child process."""
        return not self._stopped and self._pid == os.getpid()

    def run(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a call in the thread and wait for its result, or raise its error."""
        loop, thread = self._started()
        future: Future[_T] = asyncio.run_coroutine_threadsafe(call(), loop)
        try:
            return _wait(future, thread)
        except BaseException:
            # An interrupt: the caller no longer waits.
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread; calls that are still under way are cancelled."""
        with self._lock:
            self._stopped = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or self._pid != os.getpid():
            return
        _stop(loop)
        if thread is not threading.current_thread():
            thread.join(limits.CLIENT_THREAD_STOP_SECONDS)

    def _started(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        if self._pid != os.getpid():
            raise ClientUnusable(
                "The client was made in another process. After a fork, make a new one "
                "in the child."
            )
        with self._lock:
            if self._stopped:
                raise ClientUnusable("The client was closed. Make another.")
            if self._loop is None or self._thread is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name=self._name, daemon=True
                )
                weakref.finalize(self, _stop, self._loop).atexit = False
                self._thread.start()
        if threading.current_thread() is self._thread:
            raise ClientUnusable("A blocking call inside the client's own thread.")
        return self._loop, self._thread


def _wait(future: Future[_T], thread: threading.Thread) -> _T:
    while True:
        try:
            return future.result(limits.CLIENT_THREAD_LOOK_SECONDS)
        except TimeoutError:
            if future.done():
                # The call's own, or it ended just now.
                return future.result()
            if not thread.is_alive():
                raise Bug("The client's thread is gone.") from None


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(
                asyncio.wait(tasks, timeout=limits.CLIENT_THREAD_STOP_SECONDS)
            )
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
