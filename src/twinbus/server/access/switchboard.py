"""The fault switchboard of a running namespace: on, off, and by itself after a while.

Owns the timers of rehearsed faults and what they do outside the broker: to the disk, to
connections, to the event loop and to the process. It is loud: each change is a warning
in the log, and so is every minute while one is on. Which faults there are, and what the
broker asks, is `broker/faults.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from typing import TYPE_CHECKING

from twinbus import limits
from twinbus.errors import ArgumentError
from twinbus.server.broker.faults import (
    STORAGE_KINDS,
    FaultKind,
    FaultRequest,
    Faults,
    RehearsedFault,
)
from twinbus.store.base import DiskFault

if TYPE_CHECKING:
    from twinbus.server.access.port import NamespacePort

log = logging.getLogger("twinbus.faults")

_DISK = {
    FaultKind.STORAGE_DOWN: "down",
    FaultKind.STORAGE_FULL: "full",
    FaultKind.STORAGE_SLOW: "slow",
}


class Switchboard:
    """Switches the faults of one namespace."""

    def __init__(self, port: NamespacePort, faults: Faults) -> None:
        self._port = port
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._ends: dict[int, asyncio.TimerHandle] = {}
        self._reminder: asyncio.TimerHandle | None = None
        name = port.host.namespace.name
        log.warning("%s: faults can be rehearsed (--faults)", name)

    def add(self, asked: FaultRequest) -> RehearsedFault:
        """Switch a fault on; it ends by itself."""
        fault = self._faults.add(asked, self._port.host.clock.now_ms())
        log.warning("fault on: %s", self._text(fault))
        if fault.kind is FaultKind.STALL:
            self._soon(lambda: time.sleep(fault.delay_seconds))
        elif fault.kind is FaultKind.CRASH:
            self._soon(lambda: os.kill(os.getpid(), signal.SIGKILL))
        else:
            end = self._loop.call_later(asked.seconds, self._end, fault)
            self._ends[fault.id] = end
            self._strike(fault)
            self._remind()
        return fault

    def clear(self, fault_id: int | None = None) -> list[RehearsedFault]:
        """Switch one fault off, or all; returns those that were on."""
        if fault_id is None:
            chosen = list(self._faults.on.values())
        elif fault_id in self._faults.on:
            chosen = [self._faults.on[fault_id]]
        else:
            raise ArgumentError(
                f"There is no fault {fault_id}. See `twinbus fault list`."
            )
        for fault in chosen:
            self._end(fault)
        return chosen

    def close(self) -> None:
        """The server stops."""
        for timer in (*self._ends.values(), self._reminder):
            if timer is not None:
                timer.cancel()

    # -- what a fault does outside the broker ------------------------------------------

    def _strike(self, fault: RehearsedFault) -> None:
        if fault.kind in STORAGE_KINDS:
            self._set_disks()
        elif fault.kind is FaultKind.REFUSE:
            self._drop_all()
        elif fault.kind is FaultKind.SILENCE:
            for connection in list(self._port.connections):
                connection.fall_silent()
        elif fault.kind is FaultKind.UNAUTHORIZED:
            for holder in list(self._port.host.claim_holders):
                holder.rules_changed()

    def _end(self, fault: RehearsedFault) -> None:
        self._ends.pop(fault.id).cancel()
        del self._faults.on[fault.id]
        log.warning("fault over: %s", self._text(fault))
        if fault.kind in STORAGE_KINDS:
            self._set_disks()
        elif fault.kind is FaultKind.SLOW:
            for host in self._port.host.hosts:
                host.hurry()
        elif fault.kind is FaultKind.SILENCE:
            # What was said meanwhile is lost, as on a network that was cut.
            self._drop_all()

    def _set_disks(self) -> None:
        for host in self._port.host.hosts:
            disk = None
            for kind, word in _DISK.items():
                fault = self._faults.strikes(kind, str(host.namespace.shard))
                if fault is not None:
                    disk = DiskFault(word, fault.delay_seconds)
            host.namespace.store.rehearse(disk)

    def _drop_all(self) -> None:
        for connection in list(self._port.connections):
            connection.drop("a rehearsed fault")

    def _soon(self, call: object) -> None:
        """After the request that asked for it was answered."""
        assert callable(call)
        self._loop.call_later(limits.FAULT_PAUSE_SECONDS, call)

    # -- loud --------------------------------------------------------------------------

    def _remind(self) -> None:
        if self._reminder is not None:
            self._reminder.cancel()
        self._reminder = None
        if self._faults.on:
            later = self._loop.call_later
            self._reminder = later(limits.FAULT_REMINDER_SECONDS, self._say_again)

    def _say_again(self) -> None:
        for fault in self._faults.on.values():
            log.warning("fault still on: %s", self._text(fault))
        self._reminder = None
        self._remind()

    def _text(self, fault: RehearsedFault) -> str:
        name = self._port.host.namespace.name
        return f"{fault.kind.value} on {fault.key or 'all'} of {name} ({fault.id})"
