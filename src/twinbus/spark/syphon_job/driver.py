"""The syphon's driver: which tasks come next, and when the backlog is drained.

Owns the answer for every micro-batch. While tasks come back with time or messages used
up, there is more to do, and no queue is asked. When all of them have found their queues
empty, the queues are asked: drained means that nothing is ready and nothing is locked.
A locked message comes back when its lock ends, so then the driver waits. With nothing
left it waits in long receives, one for each queue, four times an hour, until a message
comes, which it leaves where it is. Receipts of queues that are empty are packed.

Also owns how work is shared among tasks (`due`, `slices`, `shares`: no I/O). With order
kept, a backlog queue is one task, the deepest first. Without, the queues are cut into
as many slices as run at once, by depth; several tasks then compete for one queue. A
limit of messages is divided among the tasks. A queue that was found empty is left out
for a while, as long as others have work.

Errors of the secondary are retried here, because an error in the driver's part of a
source ends the query. Runs in an event loop of its own; knows nothing about Spark.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.transport.loop_thread import LoopThread
from twinbus.errors import RemoteError
from twinbus.pairing.errors import NoBacklogQueue
from twinbus.pairing.rules.naming import MIDDLE
from twinbus.pairing.rules.retry import SYPHON_BACKOFF, is_transient
from twinbus.pairing.rules.syphon_rules import TTL_REMAINING
from twinbus.spark.syphon_job import journal
from twinbus.spark.syphon_job.access import KeyedNamespace, Ticket
from twinbus.spark.syphon_job.backlog import Backlog
from twinbus.spark.syphon_job.reports import (
    AWAY,
    EMPTY,
    MORE,
    QueueTotals,
    Report,
    Reports,
    Totals,
)
from twinbus.spark.syphon_job.storage import storage_at

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SyphonSettings:
    """How a syphon works; the same for all of its tasks. Nothing in it is secret."""

    # What stands for the primary in the paths of backlog queues.
    primary: str
    # The journal's location, and the folder of this pair of namespaces in it.
    journal: str
    pair_folder: str
    # This start of the syphon; names its reports.
    run: str
    # Messages that a task may have in hand, and may send twice if it is killed.
    chunk: int = 2 * limits.SYPHON_CHUNK_MESSAGES
    keep_order: bool = True
    # How many tasks to plan for, if order is not kept.
    parallelism: int = 2
    task_budget_seconds: float = limits.SYPHON_TASK_SECONDS
    # Messages of one micro-batch, about; None for as many as the budgets allow.
    messages_max: int | None = None
    ttl_rule: str = TTL_REMAINING
    # A folder in which tasks count what they receive and send; None for none.
    ledger: str | None = None


@dataclass
class SyphonJob:
    """All that a syphon needs; it holds the keys and is never sent to an executor."""

    settings: SyphonSettings
    primary: KeyedNamespace
    secondary: KeyedNamespace


@dataclass(frozen=True, slots=True)
class SyphonTask:
    """One task: a backlog queue or a slice of one, and what lets the task in."""

    settings: SyphonSettings
    epoch: int
    index: int
    slice: int
    queue: str
    # What the queue holds, as far as the driver knows.
    depth: int
    primary: Ticket
    secondary: Ticket
    messages_max: int | None


@dataclass(slots=True)
class QueueState:
    """What the driver knows of one backlog queue."""

    depth: int = 0
    # Its last tasks ended for want of time or messages, not because it was empty.
    has_more: bool = True
    # When its last task found nothing; by a monotonic clock, in seconds.
    empty_at: float = 0.0


def due(states: Mapping[int, QueueState], now: float) -> list[int]:
    """The queues to plan tasks for, the deepest first."""
    chosen = [
        index
        for index, state in states.items()
        if state.has_more or now - state.empty_at >= limits.SYPHON_EMPTY_SECONDS
    ]
    return sorted(chosen, key=lambda index: (-states[index].depth, index))


def slices(depths: Mapping[int, int], wanted: int) -> list[tuple[int, int]]:
    """Queues and numbers of slices: one for each queue, the rest by depth."""
    counts = dict.fromkeys(depths, 1)
    for _ in range(wanted - len(counts)):
        # The next goes where a slice has most to do.
        deepest = max(counts, key=lambda index: (depths[index] / counts[index], -index))
        counts[deepest] += 1
    return [(index, number) for index in depths for number in range(counts[index])]


def shares(messages_max: int | None, tasks: int) -> Sequence[int | None]:
    """How many messages each task may take; at least one."""
    if messages_max is None:
        return [None] * tasks
    share, rest = divmod(messages_max, tasks)
    return [max(share + (number < rest), 1) for number in range(tasks)]


class SyphonDriver:
    """One syphon, from the driver's side. Not for several threads."""

    def __init__(
        self,
        settings: SyphonSettings,
        primary: KeyedNamespace,
        secondary: KeyedNamespace,
    ) -> None:
        self._settings = settings
        self._primary = primary
        self._secondary = secondary
        self._storage = storage_at(settings.journal)
        self._reports = Reports(self._storage, settings.pair_folder, settings.run)
        self._thread = LoopThread("twinbus-syphon-driver")
        self._connection: Connection | None = None
        self._states: dict[int, QueueState] = {}
        self._totals: dict[int, QueueTotals] = {}
        self._epoch = 0
        self._drained = False
        self._messages_max = settings.messages_max

    # -- for the source ----------------------------------------------------------------

    def has_work(
        self, epoch: int, messages_max: int | None, *, until_empty: bool
    ) -> bool:
        """Whether to plan another micro-batch after this epoch; may wait long."""
        self._messages_max = messages_max
        work = self._thread.run(lambda: self._has_work(epoch, until_empty=until_empty))
        self._publish(working=work)
        return work

    def tasks(self, epoch: int) -> list[SyphonTask]:
        """The tasks of an epoch."""
        if not self._states:
            # The query began anew in the middle of a micro-batch.
            self._thread.run(lambda: self._ask(self._look))
        settings = self._settings
        chosen = due(self._states, time.monotonic()) or list(self._states)
        parts = [(index, 0) for index in chosen]
        if not settings.keep_order:
            depths = {index: self._states[index].depth for index in chosen}
            parts = slices(depths, settings.parallelism)
        primary = self._primary.ticket()
        secondary = self._secondary.ticket(f"{settings.primary}/{MIDDLE}")
        return [
            SyphonTask(
                settings=settings,
                epoch=epoch,
                index=index,
                slice=number,
                queue=self._totals[index].queue,
                depth=self._states[index].depth,
                primary=primary,
                secondary=secondary,
                messages_max=share,
            )
            for (index, number), share in zip(
                parts, shares(self._messages_max, len(parts)), strict=True
            )
        ]

    def status(self) -> dict[str, Any]:
        """For Spark's progress: how much is left in each queue."""
        depths = {str(index): state.depth for index, state in self._states.items()}
        return {"epoch": self._epoch, "depth": depths}

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._thread.run(lambda: connection.close(limits.SYPHON_STOP_SECONDS))
        self._thread.stop()

    # -- deciding ----------------------------------------------------------------------

    async def _has_work(self, epoch: int, *, until_empty: bool) -> bool:
        if not self._states:
            await self._ask(self._look)
            self._epoch = epoch
            if any(state.depth for state in self._states.values()):
                return True
        else:
            away = self._add_up(epoch)
            if self._reports.stop_asked():
                return False
            if away:
                await asyncio.sleep(limits.SYPHON_PAUSE_MS_MAX / 1000)
            more = [index for index, state in self._states.items() if state.has_more]
            await self._ask(lambda: self._measure(more))
            if more:
                return True
        if until_empty:
            return await self._wait_until_empty()
        return await self._wait_for_more()

    def _add_up(self, epoch: int) -> bool:
        """Take over what the tasks of an epoch did; whether all were cut off."""
        reports = [each for each in self._reports.read() if each.epoch <= epoch]
        by_queue: dict[int, list[Report]] = {}
        for report in reports:
            by_queue.setdefault(report.index, []).append(report)
        now = time.monotonic()
        for index, mine in by_queue.items():
            state, totals = self._states[index], self._totals[index]
            for report in sorted(mine, key=lambda each: each.updated_ms):
                totals.add(report.counts)
                state.depth = max(state.depth - report.gone, 0)
            ends = {report.ended for report in mine if report.ended is not None}
            state.has_more = not ends or not ends.isdisjoint(MORE)
            if ends == {EMPTY}:
                state.empty_at = now
                state.depth = totals.counts.resting
        self._epoch = epoch
        self._publish(working=False)
        self._reports.remove(epoch)
        return bool(reports) and all(report.ended == AWAY for report in reports)

    async def _wait_until_empty(self) -> bool:
        """Whether something can be received; False once nothing is there at all."""
        while not self._reports.stop_asked():
            left = await self._ask(self._left)
            if not left:
                return False
            if await self._wait(left, limits.SYPHON_LEFT_SECONDS):
                return True
        return False

    async def _wait_for_more(self) -> bool:
        """Whether something has come; False if nothing did for a long time."""
        if not self._drained:
            await self._ask(self._left)
        await self._ask(self._look_for_queues)
        return await self._wait(set(self._states), limits.SYPHON_POLL_SECONDS)

    async def _wait(self, indexes: set[int], seconds: float) -> bool:
        """Wait for a message in some queues, and note where one came."""
        arrived = await self._ask(lambda: self._backlog.wait(indexes, seconds))
        for index in arrived:
            self._drained = False
            state = self._states[index]
            state.has_more = True
            state.depth = max(state.depth, 1)
        return bool(arrived)

    # -- looking -----------------------------------------------------------------------

    @property
    def _backlog(self) -> Backlog:
        if self._connection is None:
            self._connection = self._secondary.connection()
        return Backlog(self._connection, self._settings.primary)

    async def _look(self) -> None:
        """Find the queues and how deep they are."""
        await self._look_for_queues()
        if not self._states:
            raise NoBacklogQueue(
                f"'{self._secondary.name}' has no backlog queue of "
                f"'{self._settings.primary}'. Pair the namespaces first, or name the "
                "primary as the senders do."
            )
        depths = await self._backlog.depths(self._states)
        now = time.monotonic()
        for index, depth in depths.items():
            self._states[index] = QueueState(depth, has_more=depth > 0, empty_at=now)

    async def _measure(self, indexes: list[int]) -> None:
        """Learn the depth of queues that hold more than was known."""
        unknown = [index for index in indexes if not self._states[index].depth]
        for index, depth in (await self._backlog.depths(unknown)).items():
            self._states[index].depth = max(depth, 1)

    async def _look_for_queues(self) -> None:
        backlog = self._backlog
        for index in await backlog.find():
            if index not in self._states:
                self._states[index] = QueueState()
                self._totals[index] = QueueTotals(index, backlog.path(index))

    async def _left(self) -> set[int]:
        """The queues in which something is ready or locked."""
        empty = await self._backlog.empty(self._states)
        left = set(self._states) - empty
        for index in empty:
            self._states[index].depth = 0
        for index in left:
            state = self._states[index]
            state.depth = max(state.depth, 1)
        for index in empty:
            await asyncio.to_thread(
                journal.pack, self._storage, self._settings.pair_folder, index
            )
        self._drained = not left
        self._publish(working=False)
        return left

    def _publish(self, *, working: bool) -> None:
        for index, state in self._states.items():
            self._totals[index].depth = state.depth
        queues = list(self._totals.values())
        self._reports.write_totals(Totals(self._epoch, working, queues))

    async def _ask(self, question: Callable[[], Awaitable[_T]]) -> _T:
        """Ask the secondary until it answers."""
        failures = 0
        while True:
            try:
                return await question()
            except RemoteError as error:
                if not is_transient(error):
                    raise
                failures += 1
                pause_seconds = SYPHON_BACKOFF.pause_ms(failures) / 1000
                _log.warning(
                    "the secondary does not answer (%s); asking again in %g s",
                    error.text,
                    pause_seconds,
                )
            await asyncio.sleep(pause_seconds)
