"""Lets a ledger be written while others work: a timer, and a thread for the files.

Owns when a minute is over: the counts are taken on the event loop, at the first look
after the wall clock shows another minute, and written in a thread. Nothing waits for
it. If the disk hangs, minutes wait up to a bound and are dropped then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from twinbus import limits
from twinbus.clock import Clock
from twinbus.ledger.counts import LedgerCounts
from twinbus.ledger.writer import LedgerWriter

log = logging.getLogger("twinbus.ledger")


class LedgerKeeper:
    """Counts, and the writer that they go to."""

    def __init__(
        self, writer: LedgerWriter, clock: Clock, counts: LedgerCounts | None = None
    ) -> None:
        self.counts = counts or LedgerCounts()
        self._writer = writer
        self._clock = clock
        self._minute_ms = self._now_minute_ms()
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._timer: asyncio.TimerHandle | None = None
        # Minutes that the thread has not written yet.
        self._waiting = 0
        self._dropped = 0
        # Called before a minute is taken, for counts that are kept elsewhere.
        self.before_take: list[Callable[[], None]] = []

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._writer.options.folder

    @property
    def rows_written(self) -> int:
        """Rows that are in files."""
        return self._writer.rows_written

    @property
    def rows_dropped(self) -> int:
        """Rows that were lost, and operations beyond the bound on rows."""
        return self._writer.rows_dropped + self._dropped + self.counts.dropped

    def start(self) -> None:
        """Write from now on, until `close`; again, it does nothing."""
        if self._timer is not None:
            return
        self._thread.submit(self._writer.open, self._minute_ms)
        self._set_timer()

    def _now_minute_ms(self) -> int:
        wall_ms = self._clock.now().wall_ms
        return wall_ms - wall_ms % limits.LEDGER_MINUTE_MS

    def _set_timer(self) -> None:
        left_ms = (
            limits.LEDGER_MINUTE_MS
            - self._clock.now().wall_ms % limits.LEDGER_MINUTE_MS
        )
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(left_ms / 1000, self._look)

    def _look(self) -> None:
        self.tick()
        self._set_timer()

    def tick(self) -> None:
        """Hand what was counted to the writer, if its minute is over."""
        now_ms = self._now_minute_ms()
        if now_ms != self._minute_ms:
            self._hand_over()
            self._minute_ms = now_ms

    def _hand_over(self) -> None:
        for call in self.before_take:
            call()
        counted = self.counts.take()
        if self._waiting >= limits.LEDGER_MINUTES_WAITING_MAX:
            if not self._dropped:
                log.error("the ledger's disk hangs: rows are dropped")
            self._dropped += counted.rows
            return
        self._waiting += 1
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(
            self._thread, self._writer.write, self._minute_ms, counted
        )
        done.add_done_callback(self._written)

    def _written(self, done: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("the ledger could not be written", exc_info=error)

    async def written(self) -> None:
        """Wait until the thread has written all that it was given."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, _nothing)

    async def close(self) -> None:
        """Write what there is; a disk that hangs is not waited for."""
        if self._timer is None:
            # Nothing was counted.
            self._thread.shutdown(wait=False)
            return
        self._timer.cancel()
        self._hand_over()
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(self._thread, self._writer.close)
        try:
            async with asyncio.timeout(limits.LEDGER_CLOSE_SECONDS_MAX):
                await closing
        except TimeoutError:
            log.warning("the ledger's disk hangs: its last minutes are lost")
        self._thread.shutdown(wait=False)


def _nothing() -> None:
    """What is behind the last minute in the thread's line."""
