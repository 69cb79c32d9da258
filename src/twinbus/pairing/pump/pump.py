"""A pump: moves the messages of one backlog queue to the primary, chunk by chunk.

Owns the order of steps that no crash may turn into a loss: receive with a lock, restore
the message, send it to its entity of the primary, and only when that has accepted it,
write it into the journal and complete it in the backlog queue. The steps of different
chunks overlap:

    receive ─▶ sort ─┬▶ one task for each destination ─▶ journal ─▶ complete
     (step)          ├▶ dead-letter, drop                  (Settler)
                     └▶ park: left locked

What becomes of a message is decided by `syphon_rules.py`. Used inside an application
(`syphon.py`) and by tasks on Spark; knows neither.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.clock import Clock, SystemClock
from twinbus.errors import RemoteError, TwinbusError
from twinbus.ledger.schema import SYPHON
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.pump.destinations import Destination, PumpTarget
from twinbus.pairing.pump.locks import Gaps, Item, LockTimes
from twinbus.pairing.pump.settling import Journal, Settler
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.pairing.rules.decisions import Tell
from twinbus.pairing.rules.retry import (
    DESTINATION_BACKOFF,
    RECEIVE_BACKOFF,
    Backoff,
    is_ended_poll,
    is_transient,
)
from twinbus.pairing.rules.syphon_rules import (
    TTL_REMAINING,
    DeadLetter,
    DestinationStates,
    Rest,
    Sorted,
    sort_chunk,
)
from twinbus.pairing.status import TAKES, DestinationCounts, PumpCounts

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PumpSettings:
    """How to pump; one object serves all pumps of a process."""

    # Messages of one receive. Twice as many may be in hand.
    chunk: int = limits.SYPHON_CHUNK_MESSAGES
    # What happens to a time to live: `remaining` or `restart`.
    ttl_rule: str = TTL_REMAINING
    # Wait for messages that another receiver has locked, if others for the same entity
    # are behind them. False where several pumps share a queue on purpose.
    keeps_order: bool = True
    # The lock time of the queue, or more.
    lock_seconds: float = limits.BACKLOG_LOCK_SECONDS
    # What one send may take.
    send_seconds: float = limits.ATTEMPT_MS_MAX / 1000
    # How long a destination that did not take its messages rests.
    rest: Backoff = DESTINATION_BACKOFF
    # What a pump that stops waits for answers.
    stop_seconds: float = limits.SYPHON_STOP_SECONDS
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    # Called with every event. What it raises is the caller's own fault.
    on_event: Callable[[PairingEvent], object] = lambda _event: None


class Pump:
    """Drains one backlog queue: one receiver link on the secondary.

    Belongs to one task. Only `stop` may be called while another task is in `run` or
    `step`, which then end.
    """

    def __init__(
        self,
        source: Connection,
        target: PumpTarget,
        queue_path: str,
        settings: PumpSettings | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.queue_path = queue_path
        # What was done so far; it grows and is never reset.
        self.counts = PumpCounts()
        self._settings = settings or PumpSettings()
        self._target = target
        self._journal = journal
        self._receiver = source.receiver(queue_path)
        self._receiver.counted_as = SYPHON
        self._states = DestinationStates(queue_path, self._settings.rest)
        self._locks = LockTimes(self._settings.lock_seconds)
        self._settler = Settler(
            self._receiver, self._locks, self._settings, self.counts, self._gone
        )
        # Everything that is locked, but for what is parked.
        self._hand: dict[Item, None] = {}
        self._gaps = Gaps(
            self._receiver,
            self._states,
            self._locks,
            self._hand,
            self._settings.ttl_rule,
        )
        # Received, and not sorted yet.
        self._unsorted: list[Item] = []
        self._destinations: dict[str, Destination] = {}
        # Paths in the spelling that came first.
        self._spelt: dict[str, str] = {}
        # Work that goes on beside the steps, by what it is for.
        self._tasks: dict[object, asyncio.Task[None]] = {}
        # The average size; before anything came, as large as messages may be.
        self._size_bytes: float = limits.MESSAGE_BYTES_MAX
        # Something happened beside the steps; and something that ends them.
        self._news = asyncio.Event()
        self._halt = asyncio.Event()
        # What a step waits for.
        self._waiting: asyncio.Task[Any] | None = None
        self._stopping = False
        self._stop: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        # Why the queue cannot be read, as last told.
        self._told_kind: Failure | None = None

    # -- the caller's side -------------------------------------------------------------

    async def step(self, wait_seconds: float) -> int:
        """Receive one chunk, waiting for it at most so long, and put it on its way.

        Returns how many messages came; 0 if none did. They are sent, journalled and
        completed while the next step receives (`settled` waits for all of that); a step
        waits when too many are in hand. Raises `RemoteError` when the backlog queue
        cannot be read (away, missing, no right), and what the journal raises. Errors
        of a destination are never raised.
        """
        await self._sort()
        count = await self._room()
        if not count:
            return 0
        came = await self._unless_stopped(self._receive(count, wait_seconds))
        await self._sort()
        return came or 0

    async def settled(self) -> None:
        """Wait until nothing is in hand: all is completed, dead-lettered or parked.

        Raises what the journal raises.
        """
        await self._sort()
        while self._hand and not self._stopping:
            await self._change()
        self._check()

    async def run(self) -> None:
        """Pump until stopped or cancelled, with long polls while idle.

        Reconnects by itself. Raises what the journal raises, and what is no fault of a
        namespace: that a connection was closed.
        """
        failures = 0
        try:
            while not self._stopping:
                try:
                    await self.step(limits.SYPHON_POLL_SECONDS)
                except RemoteError as error:
                    self._check()
                    failures += 1
                    pause = self._pause_seconds(error, failures)
                    await self._unless_stopped(self._sleep(pause))
                else:
                    failures = 0
                    self._told_kind = None
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End: give back at once what is held, except what is parked.

        What is being sent may still be answered, for a moment. Never raises: what
        cannot be given back returns when its lock ends.
        """
        if self._stop is None:
            self._stopping = True
            self._halt.set()
            self._news.set()
            self._stop = asyncio.get_running_loop().create_task(self._end())
        # A second call waits for the same end.
        await asyncio.shield(self._stop)

    # -- stopping ----------------------------------------------------------------------

    async def _end(self) -> None:
        for work in (self._wind_up, self._give_back):
            try:
                async with asyncio.timeout(self._settings.stop_seconds):
                    await work()
            except (TimeoutError, TwinbusError):
                # The secondary does not answer; locks end without it.
                continue

    async def _wind_up(self) -> None:
        """Give back what was not sent, and let the rest come to its end."""
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait((self._waiting,))
        waiting, self._unsorted = self._unsorted, []
        for destination in self._destinations.values():
            waiting += destination.unsent
            destination.unsent.clear()
        self._settler.back(waiting)
        self._settle_soon()
        renewing = self._tasks.pop(_RENEWING, None)
        if renewing is not None:
            renewing.cancel()
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _give_back(self) -> None:
        """Abandon what was sent and has no answer; the next receiver sends it again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._settler.abandon(list(self._hand))
        await self._receiver.close()

    # -- receiving ---------------------------------------------------------------------

    async def _room(self) -> int:
        """Wait until something may be received; returns how much, 0 when stopped."""
        while True:
            self._check()
            if self._stopping:
                return 0
            count = self._settings.chunk
            fitting = limits.SYPHON_HAND_BYTES_MAX / 2 / self._size_bytes
            count = min(count, int(fitting) or 1)
            now_ms = self._settings.clock.now_ms()
            until_ms = self._states.pause_until_ms() or 0
            if until_ms > now_ms:
                pause_seconds = (until_ms - now_ms) / 1000
                await self._unless_stopped(self._sleep(pause_seconds))
            elif len(self._hand) <= count:
                return count
            else:
                await self._change()

    async def _receive(self, count: int, wait_seconds: float) -> int:
        """Receive; what came is in hand when this ends, however it ends."""
        self.counts.receives += 1
        clock = self._settings.clock
        began_ms = clock.now_ms()
        try:
            messages = await self._receiver.receive(count, wait_seconds)
        except RemoteError as error:
            if is_ended_poll(error, clock.now_ms() - began_ms):
                return 0
            raise
        if messages:
            self._take(messages)
        return len(messages)

    def _take(self, messages: Sequence[Message]) -> None:
        now_ms = self._settings.clock.now_ms()
        items = [self._locks.item(message, now_ms) for message in messages]
        size_bytes = sum(len(message.payload) for message in messages) / len(items)
        self._size_bytes += limits.SYPHON_SIZE_WEIGHT * (size_bytes - self._size_bytes)
        self._hand.update(dict.fromkeys(items))
        self._unsorted += items
        self.counts.received += len(items)
        if not self._is_running(_RENEWING):
            self._start(_RENEWING, self._keep_locks())

    async def _sort(self) -> None:
        """Decide over what came, and put it on its way."""
        if not self._unsorted or self._stopping:
            return
        now = self._settings.clock.now()
        if self._settings.keeps_order:
            await self._gaps.look(self._unsorted, now)
        fresh = self._unknown(self._unsorted)
        self._unsorted = []
        result = sort_chunk(
            self._states,
            [(item, item.message.payload) for item in fresh],
            now.steady_ms,
            self._settings.ttl_rule,
            now.wall_ms,
        )
        self._dispatch(result)

    def _unknown(self, items: list[Item]) -> list[Item]:
        """The items that the journal does not know."""
        fresh: list[Item] = []
        journal = self._journal
        for item in items:
            if not item.deliveries:
                fresh.append(item)
                continue
            self.counts.redelivered += 1
            if journal is None or not journal.sent_before(
                item.sequence, item.enqueued_ms
            ):
                fresh.append(item)
            else:
                self.counts.skipped += 1
                self._settler.done((item,))
        return fresh

    def _dispatch(self, result: Sorted[Item]) -> None:
        for key, group in result.to_send.items():
            destination = self._destinations.get(key)
            if destination is None:
                destination = self._destinations[key] = Destination(
                    self, self._target, group[0][1].path, self._settings.send_seconds
                )
            for item, to_send in group:
                item.to_send = to_send
                destination.unsent.append(item)
            if not self._is_running(key):
                self._start(key, self._send(key, destination))
        for item, verdict in result.dead:
            self._settler.dead((item,), verdict)
        self._settler.done(result.dropped)
        self.counts.pings += len(result.dropped)
        self._park(result.parked)
        self._settle_soon()

    # -- what destinations say (`destinations.Owner`) ---------------------------------

    def accepted(self, destination: Destination, items: Sequence[Item]) -> None:
        """A destination took these."""
        moved_bytes = sum(len(item.to_send.payload) for item in items)
        found = self._counts_of(destination)
        found.state = TAKES
        for counts in (self.counts, found):
            counts.moved += len(items)
            counts.moved_bytes += moved_bytes
        self._states.accepted(items[0].to_send.key)
        self._settler.accepted(items)
        self._settle_soon()

    def refused(self, items: Sequence[Item], verdict: DeadLetter) -> None:
        """A destination will never take these."""
        self._settler.dead(items, verdict)
        self._settle_soon()

    def rests(
        self,
        destination: Destination,
        rest: Rest,
        items: Sequence[Item],
        cause: BaseException,
    ) -> None:
        """A destination takes nothing for a while."""
        now_ms = self._settings.clock.now_ms()
        decisions = self._states.failed(destination.path, rest, items, cause, now_ms)
        self._counts_of(destination).state = rest.value
        self._park(items)
        for decision in decisions:
            if isinstance(decision, Tell):
                self._settings.on_event(decision.event)

    def unsure(self, items: Sequence[Item]) -> None:
        """It is unknown whether a destination took these."""
        self.counts.unknown += len(items)

    def lost(self, items: Sequence[Item]) -> None:
        """Their locks may have ended: the next receiver sends them."""
        for item in items:
            self._states.away(item.to_send.key, item)
        self._park(items)

    def holding_since_ms(self) -> int:
        """What was locked after this is still locked."""
        return self._locks.holding_since_ms(self._settings.clock.now_ms())

    def _counts_of(self, destination: Destination) -> DestinationCounts:
        path = self._spelt.setdefault(destination.path.lower(), destination.path)
        return self.counts.destinations.setdefault(path, DestinationCounts())

    def _park(self, items: Sequence[Item]) -> None:
        self.counts.parked += len(items)
        self._gone(items)

    def _gone(self, items: Sequence[Item]) -> None:
        """These are no longer in hand."""
        for item in items:
            self._hand.pop(item, None)
        self.counts.resting = self._states.parked
        self._news.set()

    # -- work beside the steps ---------------------------------------------------------

    def _is_running(self, key: object) -> bool:
        # One that has ended may still be there, until its end is told.
        task = self._tasks.get(key)
        return task is not None and not task.done()

    def _start(self, key: object, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[key] = task
        task.add_done_callback(lambda ended: self._ended(key, ended))

    def _ended(self, key: object, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failure = self._failure or error
            self._halt.set()
        self._news.set()

    def _settle_soon(self) -> None:
        if self._settler.has_work and not self._is_running(_SETTLING):
            self._start(_SETTLING, self._settler.work(self._journal))

    async def _send(self, key: str, destination: Destination) -> None:
        await destination.work()
        del self._destinations[key]

    async def _keep_locks(self) -> None:
        """Renew what is in hand for long."""
        while self._hand:
            await self._sleep(self._locks.renew_ms / 1000)
            before_ms = self._settings.clock.now_ms() - self._locks.renew_ms
            old = [item for item in self._hand if item.locked_ms <= before_ms]
            await self._settler.renew(old)

    async def _unless_stopped(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Wait for something; None if the pump was stopped before."""
        loop = asyncio.get_running_loop()
        task = self._waiting = loop.create_task(work)
        halt = loop.create_task(self._halt.wait())
        try:
            await asyncio.wait((task, halt), return_when=asyncio.FIRST_COMPLETED)
            self._check()
            return None if self._stopping else task.result()
        finally:
            halt.cancel()
            task.cancel()
            await asyncio.gather(task, halt, return_exceptions=True)
            self._waiting = None

    async def _change(self) -> None:
        """Wait until something has happened beside the steps."""
        self._check()
        self._news.clear()
        await self._news.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _sleep(self, seconds: float) -> None:
        await self._settings.sleep(seconds)

    # -- errors of the backlog queue ---------------------------------------------------

    def _pause_seconds(self, error: RemoteError, failures: int) -> float:
        """How long not to ask the queue again; told once for each kind of error."""
        kind = kind_of(error)
        if kind is not self._told_kind:
            self._told_kind = kind
            now_ms = self._settings.clock.now_ms()
            details = {"queue": self.queue_path, "because": kind.value}
            event = EventKind.SYPHON_BACKS_OFF
            self._settings.on_event(
                PairingEvent(event, self.queue_path, now_ms, error, details)
            )
        if not is_transient(error):
            return limits.QUEUE_PAUSE_MS_MAX / 1000
        jitter = random.random()  # noqa: S311
        busy = kind is Failure.BUSY
        return RECEIVE_BACKOFF.pause_ms(failures, jitter=jitter, busy=busy) / 1000


_SETTLING = object()
_RENEWING = object()
