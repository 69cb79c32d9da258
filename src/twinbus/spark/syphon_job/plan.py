"""Which tasks come next: rules without I/O.

Owns the sharing out of work. With order kept, a backlog queue is one task, the deepest
first. Without, the queues are cut into slices, as many as run at once, shared out by
depth; several tasks then compete for one queue. A limit of messages is shared among the
tasks. A queue that was found empty rests for a while, as long as others have work.

Knows nothing about connections, files or Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twinbus import limits
from twinbus.pairing.rules.syphon_rules import TTL_REMAINING
from twinbus.spark.syphon_job.access import Ticket


@dataclass(frozen=True, slots=True)
class SyphonSettings:
    """How a syphon works; the same for all of its tasks. Nothing in it is secret."""

    # What stands for the primary in the paths of backlog queues.
    primary: str
    # The journal's location, and the folder of this pair of namespaces in it.
    journal: str
    pair: str
    # This start of the syphon; names its reports.
    run: str
    # Messages that a task may have in hand, and may send twice if it is killed.
    chunk: int = 2 * limits.SYPHON_CHUNK_MESSAGES
    keep_order: bool = True
    # How many tasks to plan for, if order is not kept.
    parallelism: int = 2
    task_budget_seconds: float = 10.0
    # Messages of one micro-batch, about; None for as many as the budgets allow.
    messages_max: int | None = None
    ttl_rule: str = TTL_REMAINING


@dataclass(frozen=True, slots=True)
class Task:
    """One task: a backlog queue or a slice of one, and what lets the task in."""

    settings: SyphonSettings
    epoch: int
    index: int
    slice: int
    queue: str
    # What the queue holds, as far as the driver knows.
    depth: int
    primary: Ticket
    secondary: Ticket
    messages_max: int | None


@dataclass(slots=True)
class QueueState:
    """What the driver knows of one backlog queue."""

    depth: int = 0
    # Its last tasks ended for want of time or messages, not because it was empty.
    has_more: bool = True
    # When its last task found nothing; by a monotonic clock, in seconds.
    empty_at: float = 0.0


def due(states: Mapping[int, QueueState], now: float) -> list[int]:
    """The queues to plan tasks for, the deepest first."""
    chosen = [
        index
        for index, state in states.items()
        if state.has_more or now - state.empty_at >= limits.SYPHON_EMPTY_SECONDS
    ]
    return sorted(chosen, key=lambda index: (-states[index].depth, index))


def slices(depths: Mapping[int, int], wanted: int) -> list[tuple[int, int]]:
    """Queues and numbers of slices: one for each queue, the rest by depth."""
    counts = dict.fromkeys(depths, 1)
    for _ in range(wanted - len(counts)):
        # The next goes where a slice has most to do.
        deepest = max(counts, key=lambda index: (depths[index] / counts[index], -index))
        counts[deepest] += 1
    return [(index, number) for index in depths for number in range(counts[index])]


def shares(messages_max: int | None, tasks: int) -> Sequence[int | None]:
    """How many messages each task may take; at least one."""
    if messages_max is None:
        return [None] * tasks
    share, rest = divmod(messages_max, tasks)
    return [max(share + (number < rest), 1) for number in range(tasks)]
