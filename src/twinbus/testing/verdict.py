"""What a history is checked against, and what the check says.

Owns the rules of the run (lock times, limits, routes) and the verdict with its
explanation. Knows nothing about how findings are made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from twinbus import limits


@dataclass(frozen=True, slots=True)
class QueueRules:
    """What was promised for one queue. Zero means "no such promise"."""

    # With it, the time of each grant is known by the broker's own clock.
    lock_ms: float = 0
    max_delivery_count: int = 0
    duplicate_window_ms: float = 0
    # The default time to live of the queue.
    ttl_ms: float = 0
    # Expired messages go to the dead-letter queue instead of nowhere.
    dead_letter_on_expiry: bool = False
    # First in, first out even without sessions: no competing receivers.
    ordered: bool = False
    # Each grant belongs to a receive operation in the history: no prefetch, no credit
    # left over. Then counts have no slack.
    exact_counts: bool = True
    # Only the end of a lock or an abandon frees a message. Without it, a lost link or
    # a completion with unknown result may free it too.
    strict_locks: bool = False
    # How often one send operation may have been repeated inside the client. Zero: as
    # often as it liked, so copies are not counted.
    send_attempts_max: int = 1
    # Numbers follow the order in which one producer's sends were accepted.
    producers_ordered: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """What was promised for all queues of the history."""

    default: QueueRules = QueueRules()
    queues: Mapping[str, QueueRules] = field(default_factory=dict)
    # Where a send to a name arrives, when that is not the name itself: topics.
    routes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Clients and broker read their clocks at different moments.
    slack_ms: float = 10
    # The history ends with a look into every queue. Nothing is known lost without.
    drained: bool = True

    def of(self, queue: str) -> QueueRules:
        return self.queues.get(queue, self.default)

    def destinations(self, name: str) -> tuple[str, ...]:
        return self.routes.get(name, (name,))


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    kind: str
    queue: str
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key or '-'} in {self.queue or '-'}: {self.text}"


# The kinds in the order of how bad they are, each with what it means.
KINDS = {
    "lost": "accepted, and never seen again",
    "resurrected": "delivered after an acknowledged completion",
    "conservation": "seen, then gone without a completion",
    "early": "accepted before any namespace had it",
    "syphon": "taken out of the backlog before it was home",
    "diverted": "sent to the backlog, though its entity had not failed over",
    "renamed": "the contents of a message under another message id",
    "ping": "a ping that a receiver could see",
    "phantom": "delivered, but never sent or refused",
    "altered": "arrived with other contents",
    "overlap": "two holders of one lock at the same time",
    "duplicate": "delivered or stored again without a reason",
    "order": "out of order",
    "settle": "a settlement that does not follow the rules",
    "count": "a delivery count that does not follow the rules",
    "time": "too early, or after it expired",
    "incomplete": "the final look did not reach the end, so nothing is proved",
}


@dataclass(slots=True)
class HistoryVerdict:
    """The outcome of a check: how much was looked at, and every broken promise."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.broken

    def convict(self, kind: str, queue: str, key: str, text: str) -> None:
        """Note one broken promise; only the first few of a kind keep their text."""
        assert kind in KINDS
        self.broken[kind] += 1
        if self.broken[kind] <= limits.VERDICT_EXAMPLES_MAX:
            self.findings.append(Finding(kind, queue, key, text))

    def text(self, examples: int = 3) -> str:
        """A short explanation for people, worst kind first."""
        seen = ", ".join(
            f"{count:,} {name.replace('_', ' ')}" for name, count in self.counts.items()
        )
        if self.ok:
            return f"ok: {seen}"
        lines = [f"BROKEN: {seen}"]
        for kind, meaning in KINDS.items():
            if self.broken[kind]:
                lines.append(f"  {self.broken[kind]:,} {kind} ({meaning})")
                shown = [found for found in self.findings if found.kind == kind]
                lines += [
                    f"    {found.key or '-'} in {found.queue or '-'}: {found.text}"
                    for found in shown[:examples]
                ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """One object: `ok`, `counts`, `broken` per kind, and the kept findings."""
        return json.dumps(
            {
                "ok": self.ok,
                "counts": dict(self.counts),
                "broken": dict(self.broken),
                "findings": [
                    {
                        "kind": found.kind,
                        "queue": found.queue,
                        "key": found.key,
                        "text": found.text,
                    }
                    for found in self.findings
                ],
            }
        )
