"""Pages that follow: server-sent events with the parts of a page that have changed.

Owns the stream of one open page. With each sample it renders the parts that the page
names and sends those that differ; pages that show the same share the rendering. It ends
with the session, with the server, and when the browser leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.responses import StreamingResponse

from twinbus import limits
from twinbus.errors import BusyError, TwinbusError
from twinbus.server.http.console.page import render
from twinbus.server.http.console.visit import Visit

# The parts of a page: the name of each, its template, and all of their data.
Parts = tuple[Mapping[str, str], Mapping[str, Any]]
View = Callable[[Visit], Awaitable[Parts]]


class LiveStreams:
    """All streams of a namespace, and what they have rendered for this tick."""

    def __init__(self) -> None:
        self._open = 0
        self._tick = -1
        self._rendered: dict[tuple[object, ...], asyncio.Task[dict[str, str]]] = {}

    def open(self, visit: Visit, view: View) -> StreamingResponse:
        """The answer to a browser that follows a page."""
        if self._open >= limits.CONSOLE_STREAMS_MAX:
            raise BusyError("Too many pages are open. Close some and load this again.")
        headers = {"Cache-Control": "no-store"}
        events = self._events(visit, view)
        return StreamingResponse(events, 200, headers, "text/event-stream")

    async def _events(self, visit: Visit, view: View) -> AsyncIterator[str]:
        history = visit.console.history
        sent: dict[str, str] = {}
        self._open += 1
        try:
            while not history.is_closed:
                history.visit()
                await history.tick()
                visit.admit()
                parts = await self._parts(visit, view)
                fresh = {k: text for k, text in parts.items() if sent.get(k) != text}
                sent.update(fresh)
                # A comment, so that a browser that is gone is noticed.
                yield "".join(_event(*each) for each in fresh.items()) or ":\n\n"
        except TwinbusError:
            # The session or the entity is gone: the page asks again, and is told.
            return
        finally:
            self._open -= 1

    async def _parts(self, visit: Visit, view: View) -> dict[str, str]:
        """What the page shows now; all who see the same wait for one rendering."""
        ticks = visit.console.history.ticks
        if ticks != self._tick:
            self._tick, self._rendered = ticks, {}
        key = (view, visit.request.url.query, visit.namespace, _reach(visit))
        task = self._rendered.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(_render(visit, view))
            self._rendered[key] = task
        return await asyncio.shield(task)


def _reach(visit: Visit) -> tuple[object, ...]:
    """What a visitor may see; people who signed in at other times may see the same."""
    claim = visit.claim
    assert claim is not None
    return claim.rights, claim.audience_path, claim.rule_key


async def _render(visit: Visit, view: View) -> dict[str, str]:
    templates, data = await view(visit)
    return {name: render(template, data) for name, template in templates.items()}


def _event(name: str, text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n"
