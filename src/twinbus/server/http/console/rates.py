"""Rates of the last minutes, measured while people look.

Owns the samples: counters of all entities, which are plain integers in memory, read
every two seconds. It starts with the first visit and stops some minutes after the last,
so a console that is not open costs nothing. Each sample is a tick, for which live pages
wait; it ends them when the server stops.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import NamedTuple

from twinbus import limits
from twinbus.server.broker.host import Host


class RateSample(NamedTuple):
    """The counters of one moment."""

    at: float
    # Messages in and out since the start, by the key of the entity.
    counted: dict[str, tuple[int, int]]


class RateHistory:
    """Samples of one namespace."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._samples: deque[RateSample] = deque(maxlen=limits.CONSOLE_SAMPLES_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._visited_at = 0.0
        self._ticked = asyncio.Event()
        self.ticks = 0
        self.is_closed = False

    def visit(self) -> None:
        """Measure for some minutes from now on."""
        loop = asyncio.get_running_loop()
        self._visited_at = loop.time()
        if self._timer is None and not self.is_closed:
            self._sample()

    async def tick(self) -> None:
        """Wait for the next sample, or for the end."""
        if not self.is_closed:
            await self._ticked.wait()

    def recent(self, key: str) -> tuple[float, float]:
        """Messages per second in and out of an entity, over the last seconds."""
        if len(self._samples) < 2:
            return 0.0, 0.0
        last = self._samples[-1]
        before = self._samples[
            max(len(self._samples) - 1 - limits.CONSOLE_RATE_SAMPLES, 0)
        ]
        return _rates(before, last, key)

    def history(self, key: str) -> list[tuple[float, float]]:
        """The same between samples, oldest first; empty if nothing has happened."""
        if len(self._samples) < 2:
            return []
        first, last = self._samples[0], self._samples[-1]
        # Counters grow: if the ends are equal, so is all between them.
        if first.counted.get(key, _NONE) == last.counted.get(key, _NONE):
            return []
        pairs = itertools.pairwise(self._samples)
        return [_rates(one, other, key) for one, other in pairs]

    def close(self) -> None:
        """End it, and what waits for ticks."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ticked.set()

    def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        counted: dict[str, tuple[int, int]] = {}
        for shard in self._host.namespace.shards:
            for entity in shard.entities:
                taken, given = counted.get(entity.key, (0, 0))
                counted[entity.key] = (
                    taken + entity.received,
                    given + entity.delivered,
                )
        if self._samples and now - self._samples[-1].at > limits.CONSOLE_IDLE_SECONDS:
            self._samples.clear()
        self._samples.append(RateSample(now, counted))
        self.ticks += 1
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()
        if now - self._visited_at < limits.CONSOLE_IDLE_SECONDS:
            seconds = limits.CONSOLE_SAMPLE_SECONDS
            self._timer = loop.call_later(seconds, self._sample)


_NONE = (0, 0)


def _rates(one: RateSample, other: RateSample, key: str) -> tuple[float, float]:
    """Messages per second between two samples; a new entity began with none."""
    seconds = max(other.at - one.at, 0.001)
    taken, given = other.counted.get(key, _NONE)
    before = one.counted.get(key, _NONE)
    return max(taken - before[0], 0) / seconds, max(given - before[1], 0) / seconds
