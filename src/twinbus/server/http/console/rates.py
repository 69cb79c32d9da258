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


class Rates(NamedTuple):
    """Messages per second of one entity."""

    received: float
    delivered: float
    # Between samples, oldest first.
    history: list[tuple[float, float]]


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

    def rates(self, key: str) -> Rates:
        """What an entity takes in and gives out."""
        samples = [each for each in self._samples if key in each.counted]
        history = []
        for one, other in itertools.pairwise(samples):
            seconds = max(other.at - one.at, 0.001)
            before, after = one.counted[key], other.counted[key]
            history.append(
                tuple(
                    max(b - a, 0) / seconds for a, b in zip(before, after, strict=True)
                )
            )
        recent = history[-limits.CONSOLE_RATE_SAMPLES :]
        count = max(len(recent), 1)
        return Rates(
            sum(each[0] for each in recent) / count,
            sum(each[1] for each in recent) / count,
            [(each[0], each[1]) for each in history],
        )

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
