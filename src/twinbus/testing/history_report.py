"""The figures of a paired run, beside the verdict.

Owns what is counted and how it is told, to people and as JSON. Times are seconds here,
since people read them. Judges nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from twinbus.testing.copies import NEVER
from twinbus.testing.events import Event
from twinbus.testing.history_evidence import PairHealth
from twinbus.testing.verdict import HistoryVerdict

PRIMARY = "primary"


@dataclass(slots=True)
class PairedReport:
    """What happened, and whether all promises were kept."""

    verdict: HistoryVerdict
    accepted: int = 0
    refused: int = 0
    unknown: int = 0
    # Found in a backlog queue at the end.
    waiting: int = 0
    # Only a tap on the wire can count them.
    diverted: int | None = None
    # Further copies, by the reason that they have.
    duplicates: Counter[str] = field(default_factory=Counter)
    send_seconds_max: float = 0
    # From the begin of a fault of the primary to each failover, and from its end to
    # each failback; without recorded faults, from the first counted failure.
    failover_seconds: list[float] = field(default_factory=list)
    failback_seconds: list[float] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.verdict.ok

    @property
    def lost(self) -> int:
        return self.verdict.broken["lost"]

    def add_send(self, send: Event) -> None:
        """Count one send."""
        if send.result == "unknown":
            self.unknown += 1
        elif send.result == "fail":
            self.refused += 1
        else:
            self.accepted += 1
            seconds = (send.end_at - send.invoke_at) / 1000
            self.send_seconds_max = max(self.send_seconds_max, seconds)

    def add_spans(self, health: PairHealth, faults: Sequence[Event]) -> None:
        """Measure how long entities took to fail over and back."""
        for process, _, span in health.spans():
            if not span.failed_over:
                continue
            # A fault on the way of one process has its name as the link.
            away = [
                fault
                for fault in faults
                if fault.queue == PRIMARY and fault.link in ("", process)
            ]
            starts = [each.invoke_at for each in away]
            starts = [at for at in starts if at <= span.failed_over_at]
            since_at = max(starts, default=span.start_at)
            self.failover_seconds.append((span.failed_over_at - since_at) / 1000)
            ends = [each.end_at for each in away if each.end_at <= span.end_at]
            if span.end_at < NEVER and ends:
                at = max(*ends, span.failed_over_at)
                self.failback_seconds.append((span.end_at - at) / 1000)

    def figures(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        diverted = {} if self.diverted is None else {"diverted": self.diverted}
        return {
            "ok": self.ok,
            "accepted": self.accepted,
            "refused": self.refused,
            "unknown": self.unknown,
            "lost": self.lost,
            **diverted,
            "waiting_in_backlog": self.waiting,
            "duplicates": dict(self.duplicates),
            "unexplained_duplicates": self.verdict.broken["duplicate"],
            "send_seconds_max": round(self.send_seconds_max, 3),
            "failover_seconds": _spread(self.failover_seconds),
            "failback_seconds": _spread(self.failback_seconds),
        }

    def to_json(self) -> str:
        """The figures, and the verdict under its name."""
        verdict = json.loads(self.verdict.to_json())
        return json.dumps({**self.figures(), "verdict": verdict})

    def text(self) -> str:
        """A few lines for people."""
        diverted = "" if self.diverted is None else f"diverted {self.diverted:,}, "
        lines = [
            f"accepted {self.accepted:,}, lost {self.lost:,}",
            f"refused {self.refused:,}, outcome unknown {self.unknown:,}",
            f"{diverted}in the backlog at the end {self.waiting:,}",
            f"longest send {self.send_seconds_max:.2f} s",
            f"time to fail over: {_told(self.failover_seconds)}",
            f"time to fail back: {_told(self.failback_seconds)}",
            f"further copies: {self.duplicates.total():,}",
        ]
        lines += [f"  {count:,}: {why}" for why, count in self.duplicates.most_common()]
        return "\n".join([*lines, self.verdict.text()])


def _spread(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"count": 0}
    middle = round(median(seconds), 3)
    return {"count": len(seconds), "median": middle, "max": round(max(seconds), 3)}


def _told(seconds: list[float]) -> str:
    if not seconds:
        return "never"
    return f"{median(seconds):.2f} s median, {max(seconds):.2f} s at most"
