"""The asynchronous official client behind blocking calls.

So that one set of tests drives both official clients: an object of the asynchronous
client is wrapped, each of its methods runs on an event loop in a thread, and the
caller waits. The loop runs between calls too, as it does in a real program, so
background work such as lock renewal goes on. Nothing here knows what a method does.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any

_FOREIGN = ("azure.servicebus.aio", "azure.core.async_paging")


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Wait for a coroutine that runs on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function on the loop, await what it returns, and wrap the result."""
        return self.run(self._call(function, args, options))

    async def _call(
        self, function: Callable[..., Any], args: Any, options: dict[str, Any]
    ) -> Any:
        plain = [_unwrapped(value) for value in args]
        named = {name: _unwrapped(value) for name, value in options.items()}
        result = function(*plain, **named)
        if inspect.isawaitable(result):
            result = await result
        return self.wrapped(result)

    def wrapped(self, thing: Any) -> Any:
        """Wrap an object of the asynchronous client; others stay as they are."""
        if type(thing).__module__.startswith(_FOREIGN):
            return Blocking(thing, self)
        return thing

    def close(self) -> None:
        """Stop the loop and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """An object of the asynchronous client with its twin's blocking methods."""

    def __init__(self, thing: Any, loop: LoopThread) -> None:
        self._thing = thing
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._thing, name)
        if not callable(value):
            return self._loop.wrapped(value)

        def call(*args: Any, **options: Any) -> Any:
            return self._loop.call(value, *args, **options)

        return call

    def __enter__(self) -> Any:
        self._loop.run(self._thing.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._thing.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Any]:
        iterator = aiter(self._thing)
        while True:
            try:
                yield self._loop.call(anext, iterator)
            except StopAsyncIteration:
                return


def _unwrapped(value: Any) -> Any:
    return value._thing if isinstance(value, Blocking) else value
