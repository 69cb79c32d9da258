"""Looks at the load of a process, some times a second.

Owns the timer, and the two facets of a process: how late the timer fires, which is what
every client waits beside its own work, and the memory that the process has. Each look
also lets all shards find their level (`broker/load/facets.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path

from twinbus import limits
from twinbus.server.broker.host import Host
from twinbus.server.broker.load.facets import Facet, Load, Thresholds

log = logging.getLogger("twinbus.load")

_STATM = Path("/proc/self/statm")
# What a container may have, in the two versions of control groups.
_MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def available_bytes() -> int:
    """The memory of the container or of the machine, whichever is less."""
    found = [os.sysconf("SC_PHYS_PAGES") * _PAGE_SIZE]
    for path in _MEMORY_LIMITS:
        # Missing, or the word `max`.
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return min(found)


def resident_bytes() -> int:
    """The memory that this process has; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_SIZE
    except OSError:
        return 0


class LoadWatch:
    """The load of a process and of all its shards."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        memory = thresholds.memory_bytes
        if memory is None:
            memory = round(available_bytes() * limits.THROTTLE_MEMORY_PART)
        first = memory * limits.THROTTLE_MEMORY_FIRST
        self._lag = Facet("event_loop_lag", "s", thresholds.lag_seconds)
        # How late the look before the last one was.
        self._late_before = 0.0
        self._memory = Facet("memory", "bytes", first, memory)
        self._hosts: list[Host] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        # Hosts that were throttled at the last look.
        self._throttled: set[Host] = set()

    def add(self, host: Host) -> None:
        """Look at one more shard."""
        host.load = Load(self._thresholds, (self._lag, self._memory))
        self._hosts.append(host)

    def start(self) -> None:
        """Look from now on, until `stop`."""
        self._due = time.monotonic() + limits.LOAD_LOOK_SECONDS
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(limits.LOAD_LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        late = max(time.monotonic() - self._due, 0.0)
        self.start()
        self.look(late, resident_bytes(), round(time.monotonic() * 1000))

    def look(self, late_seconds: float, memory_bytes: int, now_ms: int) -> None:
        """Note what the process shows, and let all shards find their level."""
        # One that is late alone is a machine that was stopped for a moment.
        self._lag.smooth(min(late_seconds, self._late_before), now_ms)
        self._late_before = late_seconds
        self._memory.set(memory_bytes, now_ms)
        for host in self._hosts:
            host.load.look(now_ms, host.pending.size_bytes)
            self._tell(host)

    def _tell(self, host: Host) -> None:
        """Log when a shard starts to deny sends, and when it ends."""
        if host.load.level and host not in self._throttled:
            self._throttled.add(host)
            log.warning("%s is throttled: %s", host.name, *host.load.throttled_by()[:1])
        elif not host.load.level and host in self._throttled:
            self._throttled.discard(host)
            log.info("%s is throttled no longer", host.name)


__all__ = ["LoadWatch", "available_bytes", "resident_bytes"]
