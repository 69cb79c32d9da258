"""One task of the syphon: pumps one backlog queue for some seconds.

Owns when a task ends: its time is up, it has brought as many messages as it may, its
queue is empty, or the stop file is there; always after the chunk in hand. Everything
about messages is the pump's. A secondary that is away is waited for within the task's
time, because a task that fails is repeated at once, and only a few times.

Runs in a Python worker, in an event loop of its own; knows nothing about Spark.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import uuid
from pathlib import Path

from twinbus import limits
from twinbus.client.metering import namespace_of
from twinbus.clock import SystemClock
from twinbus.errors import ArgumentError, RemoteError
from twinbus.ledger.files import writer_name
from twinbus.ledger.keeper import LedgerKeeper
from twinbus.ledger.schema import SYPHON
from twinbus.ledger.writer import LedgerOptions, LedgerWriter
from twinbus.pairing.pump.pump import Pump, PumpSettings
from twinbus.pairing.rules.retry import SYPHON_BACKOFF, is_transient
from twinbus.spark.syphon_job.access import Worker, worker
from twinbus.spark.syphon_job.driver import SyphonTask
from twinbus.spark.syphon_job.journal import QueueJournal, receipts_folder
from twinbus.spark.syphon_job.reports import (
    AWAY,
    BUDGET,
    EMPTY,
    LIMIT,
    STOPPED,
    Report,
    Reports,
)
from twinbus.spark.syphon_job.storage import storage_at


def run_task(task: SyphonTask) -> Report:
    """Do it, and say what was done."""
    here = worker()

    async def run() -> Report:
        return await _Running(task, here).run()

    return here.run(run)


class _Running:
    """A task that runs."""

    def __init__(self, task: SyphonTask, here: Worker) -> None:
        settings = task.settings
        self._task = task
        self._clock = SystemClock()
        storage = storage_at(settings.journal)
        self._reports = Reports(storage, settings.pair_folder, settings.run)
        attempt = uuid.uuid4().hex[:12]
        started_ms = self._clock.now_ms()
        self._report = Report(
            epoch=task.epoch,
            index=task.index,
            slice=task.slice,
            attempt=attempt,
            queue=task.queue,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=started_ms,
            updated_ms=started_ms,
        )
        self._journal = QueueJournal(
            storage,
            receipts_folder(settings.pair_folder, task.index),
            f"{settings.run}-{task.epoch}-{task.slice}-{attempt}",
        )
        # Before there are links, so that those count.
        self._ledger = _ledger_of(task, here)
        # A pump has twice as many in hand as it receives at once.
        chunk = min(settings.chunk, task.messages_max or settings.chunk) // 2 or 1
        self._pump = Pump(
            here.connection(task.secondary),
            here.senders(task.primary),
            task.queue,
            PumpSettings(
                chunk=chunk,
                ttl_rule=settings.ttl_rule,
                keeps_order=settings.keep_order,
            ),
            self._journal,
        )
        self._report.counts = self._pump.counts
        now = asyncio.get_running_loop().time()
        self._end = now + settings.task_budget_seconds
        self._stop_asked = self._reports.stop_asked()

    async def run(self) -> Report:
        if not self._reports.is_begun():
            raise ArgumentError(
                f"The journal at '{self._task.settings.journal}' is not the driver's. "
                "Give a location that the driver and all executors share."
            )
        report = self._report
        if self._ledger is not None:
            self._ledger.start()
        self._say()
        beside = asyncio.create_task(self._beside())
        try:
            report.ended = await self._pump_on()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.SYPHON_STOP_SECONDS):
                    await self._pump.settled()
        finally:
            beside.cancel()
            await self._pump.stop()
            self._journal.close()
            if self._ledger is not None:
                await self._ledger.close()
        self._say()
        return report

    async def _beside(self) -> None:
        """Say how far it is, and end what takes too long.

        A pump whose destinations all rest waits for them; the next task can do that.
        """
        late = self._end + limits.SYPHON_STOP_SECONDS
        while asyncio.get_running_loop().time() < late:
            await asyncio.sleep(limits.SYPHON_REPORT_SECONDS)
            self._say()
            if self._stop_asked:
                break
            self._stop_asked = self._reports.stop_asked()
        await self._pump.stop()

    async def _pump_on(self) -> str:
        """Pump until there is a reason to end, and return it."""
        loop = asyncio.get_running_loop()
        failures = 0
        while loop.time() < self._end and not self._stop_asked:
            try:
                count = await self._pump.step(self._wait_seconds())
            except RemoteError as error:
                if not is_transient(error):
                    raise
                self._report.trouble = error.text
                failures += 1
                pause_seconds = SYPHON_BACKOFF.pause_ms(failures) / 1000
                left_seconds = max(self._end - loop.time(), 0)
                await asyncio.sleep(min(pause_seconds, left_seconds))
                continue
            failures = 0
            if count == 0 and not self._stop_asked:
                return EMPTY if loop.time() < self._end else BUDGET
            if self._is_full():
                return LIMIT
        if self._stop_asked:
            return STOPPED
        return AWAY if failures else BUDGET

    def _wait_seconds(self) -> float:
        """Long while there should be something, short once there need not be."""
        if self._pump.counts.received < max(self._task.depth, 1):
            return limits.SYPHON_FIRST_SECONDS
        return limits.SYPHON_NEXT_SECONDS

    def _is_full(self) -> bool:
        most = self._task.messages_max
        return most is not None and self._pump.counts.received >= most

    def _say(self) -> None:
        self._report.updated_ms = self._clock.now_ms()
        self._reports.write(self._report)


def _ledger_of(task: SyphonTask, here: Worker) -> LedgerKeeper | None:
    """What counts for a task; it is written when the task ends, too."""
    folder = task.settings.ledger
    if folder is None:
        return None
    name = writer_name(socket.gethostname(), "syphon")
    namespace = namespace_of(task.secondary.way.endpoint())
    options = LedgerOptions(Path(folder), name, namespace, SYPHON)
    return LedgerKeeper(LedgerWriter(options), SystemClock(), here.counted())
