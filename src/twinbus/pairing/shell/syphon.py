"""The syphon inside an application: a pump for every backlog queue there is.

Owns finding the queues, also beyond `backlog_queue_count`, telling progress, and the
end: when one factory of the pair has ended, the pumps stop at once, and a partner that
is still open some seconds later is faulted. How messages are moved is `pump.py`. A pair
with an outbox drains that with another one of these (`outbox.py`).
Belongs to the event loop of its factories.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.errors import TwinbusError
from twinbus.pairing.errors import PairedFactoryError
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.pump.destinations import PumpTarget, Senders
from twinbus.pairing.pump.finding import find_indexes
from twinbus.pairing.pump.pump import Pump, PumpSettings
from twinbus.pairing.rules.naming import backlog_path
from twinbus.pairing.status import PumpCounts, SyphonStatus, total

if TYPE_CHECKING:
    from twinbus.pairing.shell.pair import Pair


class Which(enum.Enum):
    """One factory of a pair."""

    PRIMARY = "primary"
    SECONDARY = "secondary"

    @property
    def partner(self) -> Which:
        """The other one."""
        return Which.SECONDARY if self is Which.PRIMARY else Which.PRIMARY


# Lists the indexes of all backlog queues that exist on the secondary.
ListIndexes = Callable[[], Awaitable[Iterable[int]]]
# Faults a factory because its partner has ended.
FaultPartner = Callable[[Which, PairedFactoryError], None]


class SyphonWay(NamedTuple):
    """From where to where a syphon moves messages."""

    source: Connection
    target: PumpTarget


class _DrainedQueue:
    """One backlog queue: its pump of now, and what former ones have done."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pump: Pump | None = None
        self._past = PumpCounts()
        self._told = PumpCounts()

    def replace(self, pump: Pump) -> None:
        """Another pump goes on."""
        self._past = self.counts()
        self.pump = pump

    def counts(self) -> PumpCounts:
        """What was done here, by all of them."""
        now = [] if self.pump is None else [self.pump.counts]
        return total([self._past, *now])

    def progress(self) -> dict[str, Any] | None:
        """What to tell, if something has happened since it was last told."""
        counts = self.counts()
        before, self._told = self._told, counts
        details = {
            "moved": counts.moved,
            "moved_bytes": counts.moved_bytes,
            "dead_lettered": sum(counts.dead_lettered.values()),
            "redelivered": counts.redelivered,
            "resting": counts.resting,
        }
        same = counts.received == before.received and counts.moved == before.moved
        return None if same and counts.resting == before.resting else details


class Syphon:
    """Drains every backlog queue of a pair; made when the pair is."""

    def __init__(
        self,
        pair: Pair,
        list_indexes: ListIndexes,
        fault: FaultPartner,
        settings: PumpSettings | None = None,
        way: SyphonWay | None = None,
    ) -> None:
        self._pair = pair
        self._list_indexes = list_indexes
        self._fault = fault
        self._settings = settings or PumpSettings(
            ttl_rule=pair.options.ttl, clock=pair.clock, on_event=pair.telling.tell
        )
        self._way = way or SyphonWay(pair.secondary, Senders(pair.primary))
        self._queues: dict[int, _DrainedQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # The pumps at work, by index.
        self._pumping: dict[int, asyncio.Task[None]] = {}
        self._ended: set[Which] = set()
        self._stopped = False

    # -- life --------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to drain."""
        self._start(self._look())
        self._start(self._tell_progress())

    async def stop(self) -> None:
        """Stop all pumps; what they hold is given back at once."""
        self._stopped = True
        await self._stop_pumps()
        await self._way.target.close()
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def factory_ended(self, which: Which) -> None:
        """A factory was closed or faulted. Its partner has a moment to end as well."""
        if self._stopped or which in self._ended:
            return
        self._ended.add(which)
        if len(self._ended) == 1:
            self._start(self._follow(which))

    def status(self) -> SyphonStatus:
        """What was done so far."""
        queues = {queue.path: queue.counts() for queue in self._queues.values()}
        return SyphonStatus(not self._stopped and not self._ended, queues)

    async def _follow(self, which: Which) -> None:
        await asyncio.gather(
            self._stop_pumps(), self._settings.sleep(limits.PARTNER_GRACE_SECONDS)
        )
        partner = which.partner
        if not self._stopped and partner not in self._ended:
            self._ended.add(partner)
            seconds = limits.PARTNER_GRACE_SECONDS
            text = (
                f"The {which.value} factory of this pair was closed or faulted "
                f"{seconds:g} seconds ago, and the syphon needs both. Close both."
            )
            self._fault(partner, PairedFactoryError(text))
        await self.stop()

    async def _stop_pumps(self) -> None:
        pumps = [queue.pump for queue in self._queues.values()]
        await asyncio.gather(*(pump.stop() for pump in pumps if pump is not None))
        tasks = list(self._pumping.values())
        for task in tasks:
            # It may be waiting before it tries again.
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def _ending(self) -> bool:
        return self._stopped or bool(self._ended)

    # -- queues ------------------------------------------------------------------------

    async def _look(self) -> None:
        """Find the queues, and look again from time to time."""
        while not self._ending:
            pause_seconds = limits.SYPHON_LOOK_SECONDS
            try:
                indexes = set(await self._list_indexes())
            except Exception as error:  # noqa: BLE001
                # Whatever the administration client raises: they are tried instead.
                self._tell(EventKind.SYPHON_BACKS_OFF, self._pair.label, error)
                indexes = await self._try_indexes()
                pause_seconds = limits.QUEUE_PAUSE_MS_MAX / 1000
            for index in sorted(indexes - self._pumping.keys()):
                if not self._ending:
                    self._pumping[index] = self._start(self._pump(index))
            for index in self._pumping.keys() - indexes:
                await self._forget(index)
            await self._settings.sleep(pause_seconds)

    async def _try_indexes(self) -> set[int]:
        """The queues that can be received from; if not even that, those of the pair."""
        pair = self._pair
        known = pair.options.usable_indexes
        try:
            return set(await find_indexes(pair.secondary, pair.label, known))
        except TwinbusError:
            # The pumps will report why.
            return set(known)

    async def _forget(self, index: int) -> None:
        """The queue was deleted. If it is made again, it gets another pump."""
        task = self._pumping.pop(index)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _pump(self, index: int) -> None:
        """Keep one queue drained, whatever happens to its pump."""
        path = backlog_path(self._pair.label, index)
        queue = self._queues.setdefault(index, _DrainedQueue(path))
        while not self._ending:
            pump = Pump(self._way.source, self._way.target, path, self._settings)
            queue.replace(pump)
            try:
                await pump.run()
            except Exception as error:  # noqa: BLE001
                if self._stopped or self._ended:
                    return
                self._tell(EventKind.SYPHON_BACKS_OFF, path, error)
                await self._settings.sleep(limits.QUEUE_PAUSE_MS_MAX / 1000)

    # -- telling -----------------------------------------------------------------------

    async def _tell_progress(self) -> None:
        while True:
            try:
                await self._settings.sleep(limits.SYPHON_PROGRESS_SECONDS)
            finally:
                # Also when the syphon stops: what was done last is told, too.
                for queue in self._queues.values():
                    details = queue.progress()
                    if details is not None:
                        self._tell(EventKind.SYPHON_PROGRESS, queue.path, None, details)

    def _tell(
        self,
        kind: EventKind,
        path: str,
        cause: BaseException | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        now_ms = self._settings.clock.now_ms()
        event = PairingEvent(kind, path, now_ms, cause, details or {})
        self._settings.on_event(event)
