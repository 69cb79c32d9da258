"""The backlog queues of a pair: finding and making them, and whether they are drained.

`BacklogQueues` uses the secondary's administration client, the official one of either
kind; the blocking one is called in a thread. Each missing queue is tried three times,
with a pause. One that cannot be made does not stop the others: its failure is an event
with its cause.

`BacklogWatch` is for a pair that runs no syphon. Once something was diverted, it counts
the messages from time to time: when the entities are healthy and the backlog is as long
as before, no process drains it, and the application is told. It stops when the backlog
is empty. It counts rarely, because each count costs an operation per queue.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from typing import Any, Protocol

from azure.core.exceptions import HttpResponseError

from twinbus import limits
from twinbus.pairing.errors import NoBacklogQueue
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.naming import (
    BACKLOG_QUEUE_PROPERTIES,
    EVENT_QUEUE_PROPERTIES,
    backlog_path,
    events_path,
    found_indexes,
)
from twinbus.pairing.rules.policy import EntityState
from twinbus.pairing.shell.pair import Pair

Report = Callable[[str, BaseException], None]


class AdministrationClient(Protocol):
    """What is needed of the official client; each answers at once or awaitably."""

    def list_queues(self) -> Any: ...

    def create_queue(self, queue_name: str, **kwargs: Any) -> Any: ...

    def get_queue_runtime_properties(self, queue_name: str) -> Any: ...


class BacklogQueues:
    """The backlog queues of one primary on one secondary."""

    def __init__(self, manager: AdministrationClient, label: str) -> None:
        self._manager = manager
        self._label = label

    async def found(self) -> list[int]:
        """Every index that exists, also beyond what was asked for."""
        return found_indexes(await self._names(), self._label)

    async def waiting(self) -> int:
        """How many messages wait in all of them together."""
        counts = [await self._count(index) for index in await self.found()]
        return sum(counts)

    async def _count(self, index: int) -> int:
        ask = self._manager.get_queue_runtime_properties
        path = backlog_path(self._label, index)
        if inspect.iscoroutinefunction(ask):
            found = await ask(path)
        else:
            found = await asyncio.to_thread(ask, path)
            if inspect.isawaitable(found):
                found = await found
        return found.active_message_count or 0

    async def ensure(self, indexes: range, report: Report) -> frozenset[int]:
        """Find or make these; returns the usable ones, raises if there is none."""
        found = set(await self.found())
        missing = [index for index in indexes if index not in found]
        made = await asyncio.gather(*(self._make(index) for index in missing))
        usable = found.intersection(indexes)
        cause: BaseException | None = None
        for index, error in zip(missing, made, strict=True):
            if error is None:
                usable.add(index)
            else:
                cause = error
                report(backlog_path(self._label, index), error)
        if not usable:
            text = f"Not one backlog queue of '{self._label}' could be made: {cause}"
            raise NoBacklogQueue(text) from cause
        return frozenset(usable)

    async def _names(self) -> list[str]:
        pages = self._manager.list_queues()
        try:
            if isinstance(pages, AsyncIterable):
                return [queue.name async for queue in pages]
            return await asyncio.to_thread(lambda: [queue.name for queue in pages])
        except HttpResponseError as error:
            if kind_of(error) is not Failure.ACCESS:
                raise
            place = getattr(self._manager, "fully_qualified_namespace", "")
            text = f"The manager of the secondary '{place}' needs Manage: "
            raise type(error)(text + error.message, error.response) from error

    async def _make(self, index: int) -> BaseException | None:
        """Make one queue; returns why it could not be made."""
        path = backlog_path(self._label, index)
        for attempt in range(1, limits.QUEUE_TRIES_MAX + 1):
            try:
                await self._create(path)
            except Exception as error:  # noqa: BLE001
                if type(error).__name__ == "ResourceExistsError":
                    # Another process made it, or a topic has the name.
                    return None if index in await self.found() else error
                if attempt == limits.QUEUE_TRIES_MAX:
                    return error
            else:
                return None
            await asyncio.sleep(limits.QUEUE_TRY_PAUSE_SECONDS)
        return None

    async def ensure_events(self) -> bool:
        """Find or make the queue for reports; the pair works without it, too."""
        path = events_path(self._label)
        try:
            if path.lower() not in {name.lower() for name in await self._names()}:
                await self._create(path, EVENT_QUEUE_PROPERTIES)
        except Exception as error:  # noqa: BLE001
            if type(error).__name__ != "ResourceExistsError":
                _LOGGER.warning("Events are not reported, no %s: %s", path, error)
                return False
        return True

    async def _create(
        self, path: str, properties: Mapping[str, Any] = BACKLOG_QUEUE_PROPERTIES
    ) -> None:
        create = self._manager.create_queue
        if inspect.iscoroutinefunction(create):
            await create(path, **properties)
            return
        made = await asyncio.to_thread(create, path, **properties)
        if inspect.isawaitable(made):
            await made


def missing_event(path: str, cause: BaseException, now_ms: int) -> PairingEvent:
    """A backlog queue could not be made."""
    return PairingEvent(EventKind.BACKLOG_QUEUE_MISSING, path, now_ms, cause)


_LOGGER = logging.getLogger("twinbus.pairing")


class BacklogWatch:
    """Looks after the backlog of one pair that runs no syphon of its own."""

    def __init__(self, pair: Pair, waiting: Callable[[], Awaitable[int]]) -> None:
        self._pair = pair
        # How many messages the backlog holds.
        self._waiting = waiting
        self._task: asyncio.Task[None] | None = None
        pair.on_diverted = self.begin

    def begin(self) -> None:
        """Something was diverted: look from now on."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())

    def stop(self) -> None:
        """The pair has ended."""
        self._pair.on_diverted = None
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        before: int | None = None
        while before != 0:
            await asyncio.sleep(limits.BACKLOG_LOOK_SECONDS)
            if not self._all_well():
                before = None
                continue
            try:
                count = await self._waiting()
            except Exception as error:  # noqa: BLE001
                # The next look may succeed; until then nothing is known.
                _LOGGER.info("The backlog could not be counted: %s", error)
                continue
            if before is not None and 0 < before <= count:
                self._tell(count)
            before = count

    def _all_well(self) -> bool:
        states = (each.state for each in self._pair.policy.entities())
        back = (EntityState.HEALTHY, EntityState.PROBATION)
        return all(state in back for state in states)

    def _tell(self, count: int) -> None:
        pair = self._pair
        details = {"messages": count, "remedy": "run the syphon"}
        pair.telling.tell(
            PairingEvent(
                EventKind.BACKLOG_STAYS,
                pair.label,
                pair.clock.now_ms(),
                details=details,
            )
        )
