"""Load: what a shard measures of itself, and whose sends are denied because of it.

Owns the facets (commit latency, bytes that wait, lag of the event loop, memory), the
level that each has reached, and the recent load of each entity. At level 1 sends to
entities above their share are denied; at level 2 all sends are, and new receivers.
Settlements, renewals and management are never denied, so that work in hand can end.

Throttling is for load. A shard whose commits take `limits.SICK_TURN_SECONDS` is sick
and has no level: clients that are told that it is busy would wait and not fail over.

Time comes in as an argument. Knows nothing about links, clocks or the process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinbus import limits
from twinbus.errors import BusyError
from twinbus.server.broker.commands import Send
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.submissions import Submission

# The levels: nothing is denied, those above their share are, all are.
FREE, SHARED, FULL = range(3)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a server throttles: the first level; 0 for never."""

    commit_seconds: float = limits.THROTTLE_COMMIT_SECONDS
    pending_bytes: int = limits.THROTTLE_PENDING_BYTES
    lag_seconds: float = limits.THROTTLE_LAG_SECONDS
    # Of the second level; None: a part of what the machine or container has.
    memory_bytes: int | None = None

    @classmethod
    def by_default(cls, *, dev: bool) -> Thresholds:
        """Where none were chosen: for development, a slow machine denies nothing."""
        return cls(commit_seconds=0, lag_seconds=0) if dev else cls()


class Facet:
    """One measured value, and the level that it has reached."""

    __slots__ = (
        "_high_ms",
        "first",
        "level",
        "name",
        "second",
        "sick",
        "unit",
        "value",
    )

    def __init__(
        self, name: str, unit: str, first: float, second: float | None = None
    ) -> None:
        # As a label of metrics; in texts without the underscores.
        self.name = name
        self.unit = unit
        self.first = first or math.inf
        self.second = second or self.first * limits.THROTTLE_SECOND_LEVEL
        # From here on it is no load.
        self.sick = math.inf
        self.value = 0.0
        self.level = FREE
        self._high_ms = 0

    def set(self, value: float, now_ms: int) -> None:
        """Note a value. A level is reached at once, and left after some time below."""
        self.value = value
        if value >= self.sick:
            self.level = FREE
            return
        kept = min(self.level, self._reached(value / limits.THROTTLE_RELEASE))
        level = max(self._reached(value), kept)
        if level >= self.level or now_ms - self._high_ms >= limits.THROTTLE_HOLD_MS:
            self.level = level
            self._high_ms = now_ms

    def smooth(self, value: float, now_ms: int) -> None:
        """Note a value of which a single high one should not deny all sends."""
        value = min(value, self.second * limits.THROTTLE_SAMPLE_MAX)
        value = self.value + (value - self.value) * limits.THROTTLE_SAMPLE_WEIGHT
        self.set(value, now_ms)

    def _reached(self, value: float) -> int:
        if value < self.first:
            return FREE
        return SHARED if value < self.second else FULL

    def describe(self) -> str:
        """The value and its limit, for people."""
        shown = self.name.replace("_", " ")
        limit = self.second if self.level == FULL else self.first
        value, limit_text = self._text(self.value), self._text(limit)
        return f"{shown} is {value}, with a limit of {limit_text}"

    def _text(self, value: float) -> str:
        if self.unit == "bytes":
            return f"{value / (1 << 20):.1f} MiB"
        return f"{value:.2f} {self.unit}"

    def figures(self) -> dict[str, Any]:
        """The same as plain data; a limit that is off is None."""
        bounds = [None if math.isinf(b) else b for b in (self.first, self.second)]
        return {"value": self.value, "level": self.level, "limits": bounds}


class Shares:
    """The recent load of each entity: bytes, and some for each delivery."""

    __slots__ = ("_recent", "_total")

    def __init__(self) -> None:
        self._recent: dict[int, float] = {}
        self._total = 0.0

    def add(self, key: int, size_bytes: int, deliveries: int = 1) -> None:
        """An entity was sent so much, accepted or denied."""
        cost = size_bytes + deliveries * limits.SHARE_DELIVERY_BYTES
        self._recent[key] = self._recent.get(key, 0.0) + cost
        self._total += cost

    def decay(self, seconds: float) -> None:
        """So much time has passed."""
        factor = 0.5 ** (seconds / limits.SHARE_HALF_LIFE_SECONDS)
        least = limits.SHARE_DELIVERY_BYTES
        kept = {key: each * factor for key, each in self._recent.items()}
        self._recent = {key: each for key, each in kept.items() if each >= least}
        self._total = sum(self._recent.values())

    def is_above(self, key: int) -> bool:
        """Whether an entity has more than its share. One that is alone has."""
        # The share of one among two, where there is one: it is what loads the shard.
        share = self._total / max(len(self._recent), 2)
        return self._recent.get(key, 0.0) > max(share, limits.SHARE_BYTES_MIN)


class Load:
    """The load of one shard."""

    def __init__(
        self, thresholds: Thresholds | None = None, process: Sequence[Facet] = ()
    ) -> None:
        given = thresholds or Thresholds()
        self.commit = Facet("commit_latency", "s", given.commit_seconds)
        self.commit.sick = limits.SICK_TURN_SECONDS
        self.pending = Facet("bytes_waiting", "bytes", given.pending_bytes)
        # Those of the process are shared by all shards, and set by their owner.
        self.facets = (self.commit, self.pending, *process)
        # The highest of them. While it is 0, a send costs no more than this look.
        self.level = FREE
        self.shares = Shares()
        # Bytes, turns and commits with sends since the last look.
        self._taken_bytes = self._turns = self._commits = 0
        # Whether a turn with sends is in hand.
        self._in_hand = False
        self._looked_ms: int | None = None

    # -- what is measured --------------------------------------------------------------

    def took(self, submissions: Sequence[Submission], pending_bytes: int) -> None:
        """A turn takes what has waited."""
        self._in_hand = False
        for each in submissions:
            if type(each.command) is Send:
                self._in_hand = True
                # Those that did not fit into the turn before are counted already.
                if not each.taken:
                    send = each.command
                    count = send.deliveries
                    self.shares.add(send.entity.id, each.size_bytes, count)
        self._taken_bytes += pending_bytes
        self._turns += 1

    def committed(self, seconds: float) -> None:
        """The commit of the turn took so long. One without sends may write nothing."""
        if not self._in_hand:
            return
        self._in_hand = False
        self._commits += 1
        commit = self.commit
        if seconds >= commit.sick or commit.value >= commit.sick:
            commit.value = seconds
        else:
            commit.value += (seconds - commit.value) * limits.THROTTLE_COMMIT_WEIGHT

    def look(self, now_ms: int, pending_bytes: int) -> None:
        """Find the level; called some times a second."""
        looked_ms = self._looked_ms
        passed = 0.0 if looked_ms is None else (now_ms - looked_ms) / 1000
        self._looked_ms = now_ms
        latency = self.commit.value
        if not self._in_hand and not self._commits:
            # Nothing is known of a disk without commits: a send has to be tried again.
            latency *= 0.5 ** (passed / limits.THROTTLE_FORGET_SECONDS)
        self.commit.set(latency, now_ms)
        waited = self._taken_bytes / self._turns if self._turns else pending_bytes
        self.pending.smooth(waited, now_ms)
        self._taken_bytes = self._turns = self._commits = 0
        self.shares.decay(passed)
        self.level = max(each.level for each in self.facets)

    # -- what is denied ----------------------------------------------------------------

    def denies(self, entity: Entity, pending_bytes: int) -> bool:
        """Whether a send to an entity is denied now, while so much waits."""
        if self._worst() is self.pending and pending_bytes < self.pending.first:
            # The last turn has taken what had waited: there is room again.
            return False
        if self.level == SHARED:
            return self.shares.is_above(entity.id)
        return self.level == FULL

    def deny(
        self, entity: Entity, size_bytes: int, pending_bytes: int
    ) -> BusyError | None:
        """The answer to a send that is denied; None if it is not."""
        if not self.denies(entity, pending_bytes):
            return None
        facet = self._worst()
        entity.denied[facet.name] = entity.denied.get(facet.name, 0) + 1
        # Clients that do not wait stay above their share.
        self.shares.add(entity.id, size_bytes)
        why = f" and '{entity.name}' gets more than its share"
        return _busy(facet, why if self.level == SHARED else "")

    def deny_receiver(self) -> BusyError | None:
        """The answer to a new receiver that is denied; None if it is not."""
        return _busy(self._worst()) if self.level == FULL else None

    def _worst(self) -> Facet:
        """The facet that makes the level."""
        return max(self.facets, key=lambda each: each.level)

    # -- what is shown -----------------------------------------------------------------

    def throttled_by(self) -> list[str]:
        """The facets that have a level, with their values."""
        return [each.describe() for each in self.facets if each.level]

    def figures(self) -> dict[str, Any]:
        """Level and facets as plain data."""
        facets = {each.name: each.figures() for each in self.facets}
        return {"level": self.level, "facets": facets}


def _busy(facet: Facet, why: str = "") -> BusyError:
    seconds = limits.RETRY_AFTER_SECONDS
    text = f"The server is busy: {facet.describe()}{why}."
    return BusyError(f"{text} Wait {seconds} seconds and try again.")


__all__ = ["FREE", "FULL", "SHARED", "Facet", "Load", "Shares", "Thresholds"]
