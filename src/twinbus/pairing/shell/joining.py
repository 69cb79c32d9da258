"""How a pair comes to its backlog queues: at once, or when the secondary is back.

Owns the order: find the queues or make them, prove the rights on them, then drain or
watch them. Without an outbox that is part of pairing, and what goes wrong is raised.
With one, a secondary that is away is no error: the pair goes on without backlog queues,
and tries again after a pause that doubles. What a person has to put right, such as a
wrong key, is raised all the same, if it shows before the pairing returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twinbus.pairing.errors import NoBacklogQueue
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules.naming import events_path
from twinbus.pairing.rules.retry import QUEUE_BACKOFF, is_transient
from twinbus.pairing.shell.backlog_queues import BacklogQueues, missing_event
from twinbus.pairing.shell.pair import Pair
from twinbus.pairing.shell.reporting import EventReporter


class Joining:
    """The secondary's part in the making of one pair."""

    def __init__(
        self, pair: Pair, queues: BacklogQueues, joined: Callable[[], None]
    ) -> None:
        self._pair = pair
        self._queues = queues
        # Called once, when there are backlog queues.
        self._joined = joined
        # The attempt under way, and the task that makes one after the other.
        self._attempt: asyncio.Task[None] | None = None
        self._trying: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Find or make the queues and prove the rights; raises why not."""
        asked = self._pair.options.asked_indexes
        usable = await self._queues.ensure(asked, self._missing)
        self._pair.add_queues(usable)
        await self._pair.open_backlog()
        if self._pair.options.report_events and await self._queues.ensure_events():
            path = events_path(self._pair.label)
            sender = self._pair.secondary.sender(path)
            reporter = EventReporter(sender, self._pair.policy)
            self._pair.telling.reporter = reporter
        self._joined()

    async def join_or_go_on(self, within_seconds: float) -> None:
        """The same for a pair with an outbox: a secondary that is away comes later."""
        self._attempt = first = asyncio.get_running_loop().create_task(self.join())
        try:
            await asyncio.wait((first,), timeout=within_seconds)
        except BaseException:
            first.cancel()
            raise
        error = first.exception() if first.done() else TimeoutError("No answer yet.")
        if error is None:
            return
        if not _is_away(error):
            raise error
        self._pair.add_queues(frozenset())
        self._tell(EventKind.SECONDARY_AWAY, error)
        going_on = self._go_on(first, told=error)
        self._trying = asyncio.get_running_loop().create_task(going_on)

    def stop(self) -> None:
        """The pair ends: try no more."""
        # A task that is cancelled before its first step does not cancel its attempt.
        for task in (self._attempt, self._trying):
            if task is not None:
                task.cancel()

    async def _go_on(self, attempt: asyncio.Task[None], told: BaseException) -> None:
        failures = 0
        while True:
            try:
                await attempt
            except Exception as error:  # noqa: BLE001
                if error is not told:
                    self._tell(EventKind.SECONDARY_AWAY, error)
                failures += 1
                await asyncio.sleep(QUEUE_BACKOFF.pause_ms(failures) / 1000)
                attempt = asyncio.get_running_loop().create_task(self.join())
                self._attempt = attempt
            else:
                self._tell(EventKind.SECONDARY_BACK)
                return

    def _missing(self, path: str, cause: BaseException) -> None:
        now_ms = self._pair.clock.now_ms()
        self._pair.telling.tell(missing_event(path, cause, now_ms))

    def _tell(self, kind: EventKind, cause: BaseException | None = None) -> None:
        endpoint = self._pair.secondary.endpoint
        place = f"{endpoint.host}:{endpoint.target[1]}"
        now_ms = self._pair.clock.now_ms()
        self._pair.telling.tell(PairingEvent(kind, place, now_ms, cause))


def _is_away(error: BaseException) -> bool:
    if isinstance(error, NoBacklogQueue) and error.__cause__ is not None:
        error = error.__cause__
    return is_transient(error)
