"""Pings and probes: asking whether an entity or a backlog queue is back.

Owns how they are sent, and their timers; when, and what their answers mean, is for the
rules. One ping for each entity and one probe for each queue at a time, each with a
deadline, none repeated when it fails. Neither goes through a paired sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from twinbus.client.connection import Connection
from twinbus.ledger.schema import CLIENT, PING
from twinbus.pairing.rules.classification import kind_of, verdict_of
from twinbus.pairing.rules.decisions import ProbeQueue, StartPing, StopPinging
from twinbus.pairing.rules.ping import Probe, choose_probe, ping_message

if TYPE_CHECKING:
    from twinbus.pairing.shell.pair import Pair


class Probing:
    """The pings and probes of one pair."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._loop = asyncio.get_running_loop()
        # By entity or index: what is planned, and what is under way.
        self._planned: dict[Hashable, asyncio.TimerHandle] = {}
        self._running: dict[Hashable, asyncio.Task[None]] = {}
        self._stopped = False

    # -- entities ----------------------------------------------------------------------

    def start_ping(self, decision: StartPing) -> None:
        """Ping an entity at that time."""
        self._at(decision.at_ms, decision.key, lambda: self._ping(decision))

    def stop_ping(self, decision: StopPinging) -> None:
        """The entity is back, or the factory closes."""
        self._forget(decision.key)

    async def _ping(self, decision: StartPing) -> None:
        pair = self._pair
        policy = pair.entity_by_key(decision.key).policy
        cause: Exception | None = None
        try:
            await self._ask(policy.path, decision.timeout_ms / 1000)
        except Exception as error:  # noqa: BLE001
            # Every error is an answer; the rules say what it means.
            cause = error
        verdict = None
        if cause is not None:
            verdict = verdict_of(cause, pair.options.classifier)
        now_ms = pair.clock.now_ms()
        pair.carry_out(policy.ping_ended(decision.ping_id, verdict, cause, now_ms))

    async def _ask(self, path: str, seconds: float) -> None:
        primary = self._pair.primary
        async with asyncio.timeout(seconds):
            await primary.open(seconds)
            probe = choose_probe(self._pair.options.probe, primary.capabilities)
            if probe is Probe.LINK:
                await _link(primary, path, seconds)
                return
            ping = ping_message(uuid4().hex, uuid4().hex)
            async with primary.sender(path) as sender:
                sender.counted_as = CLIENT, PING
                await sender.send(ping, seconds)

    # -- backlog queues ----------------------------------------------------------------

    def queue_failed(self, index: int, cause: BaseException) -> None:
        """A queue could not be linked to: it is out until a probe succeeds."""
        pair = self._pair
        now_ms = pair.clock.now_ms()
        pair.carry_out(pair.rotation.failed(index, kind_of(cause), cause, now_ms))

    def plan_queue(self, decision: ProbeQueue) -> None:
        """Probe a backlog queue at that time."""
        index = decision.index
        self._at(decision.at_ms, index, lambda: self._probe(index))

    async def _probe(self, index: int) -> None:
        pair = self._pair
        cause: Exception | None = None
        try:
            seconds = pair.rules.attempt_ms / 1000
            await _link(pair.secondary, pair.rotation.path(index), seconds)
        except Exception as error:  # noqa: BLE001
            cause = error
        now_ms = pair.clock.now_ms()
        pair.carry_out(pair.rotation.probe_ended(index, cause, now_ms))

    # -- time --------------------------------------------------------------------------

    def _at(
        self,
        time_ms: int,
        what: Hashable,
        ask: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        if self._stopped:
            return
        planned = self._planned.pop(what, None)
        if planned is not None:
            planned.cancel()
        seconds = max(time_ms - self._pair.clock.now_ms(), 0) / 1000
        self._planned[what] = self._loop.call_later(seconds, self._begin, what, ask)

    def _begin(
        self, what: Hashable, ask: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._planned.pop(what, None)
        task = self._loop.create_task(ask())
        self._running[what] = task
        task.add_done_callback(lambda _: self._ended(what, task))

    def _ended(self, what: Hashable, task: asyncio.Task[None]) -> None:
        if self._running.get(what) is task:
            del self._running[what]

    def _forget(self, what: Hashable) -> None:
        planned = self._planned.pop(what, None)
        if planned is not None:
            planned.cancel()
        running = self._running.pop(what, None)
        # A ping that brings the entity back ends its own pinging.
        if running is not None and running is not asyncio.current_task():
            running.cancel()

    def stop(self) -> None:
        """No more pings and probes."""
        self._stopped = True
        for what in (*self._planned, *self._running):
            self._forget(what)


async def _link(connection: Connection, path: str, seconds: float) -> None:
    """Open a sender's link, which shows that sends would be taken, and close it."""
    async with connection.sender(path) as sender:
        await sender.open(seconds)
