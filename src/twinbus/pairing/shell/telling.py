"""Who learns what a pair does: the callback, the iterators, the log, the metrics.

An event reaches all of them in the order in which things happened. A callback that
raises is the application's defect: it is logged, and the pair goes on. An iterator that
is not read keeps the latest events and forgets the oldest.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable

from twinbus import limits
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.shell.metrics import EVENTS

_LOGGER = logging.getLogger("twinbus.pairing")


class Listener:
    """One iterator over events. Reads what comes after it was made."""

    def __init__(self, forget: Callable[[Listener], None]) -> None:
        self._forget = forget
        self._waiting: deque[PairingEvent] = deque(maxlen=limits.EVENTS_KEPT_MAX)
        self._news = asyncio.Event()
        self._ended = False

    def put(self, event: PairingEvent) -> None:
        self._waiting.append(event)
        self._news.set()

    def end(self) -> None:
        """There will be no more."""
        self._ended = True
        self._news.set()

    def __aiter__(self) -> AsyncIterator[PairingEvent]:
        return self

    async def __anext__(self) -> PairingEvent:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    async def aclose(self) -> None:
        """Nobody reads any more."""
        self.end()
        self._forget(self)


class Telling:
    """Tells what happens in one pair."""

    def __init__(
        self, primary: str, callback: Callable[[PairingEvent], object] | None
    ) -> None:
        self._primary = primary
        self._callback = callback
        self._listeners: list[Listener] = []
        self._ended = False

    def tell(self, event: PairingEvent) -> None:
        """An event has happened."""
        EVENTS.labels(self._primary, event.path, event.kind.value).inc()
        _LOGGER.log(logging.getLevelNamesMapping()[event.level], "%s", event.text)
        for listener in self._listeners:
            listener.put(event)
        if self._callback is not None:
            try:
                self._callback(event)
            except Exception:
                _LOGGER.exception("on_event raised.")

    def events(self) -> Listener:
        """Events from now on."""
        listener = Listener(self._listeners.remove)
        if self._ended:
            listener.end()
        self._listeners.append(listener)
        return listener

    def end(self) -> None:
        """The pair is closed."""
        self._ended = True
        for listener in self._listeners:
            listener.end()
