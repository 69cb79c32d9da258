"""What shards are worth: a server with one and one with four, and partitioned queues.

Owns the figures `shards_*` and `partitioned_*`. Eight clients, in two processes, have a
queue each. First a server with one shard and one with four take turns; then
ordinary and partitioned queues do, in the server with four.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, resident_mib, twinbus, worker
from bench.target import Target

SHARDS = 4
CLIENTS = 8
PROCESSES = 2
PLAIN = [f"plain{number}" for number in range(CLIENTS)]
PARTED = [f"parted{number}" for number in range(CLIENTS)]


@dataclass(slots=True)
class Load:
    """Clients at a number of queues, and what they measured."""

    children: Sequence[Child]
    sent: list[float] = field(default_factory=list)
    received: list[float] = field(default_factory=list)

    def round(self, count: int) -> None:
        """Fill the queues and empty them again; the count is for each queue."""
        self.sent.append(self._rate("send", count))
        self.received.append(self._rate("receive", count))

    def _rate(self, do: str, count: int) -> float:
        for child in self.children:
            child.tell(do=do, count=count)
        seconds = max(float(child.read()["seconds"]) for child in self.children)
        return CLIENTS * count / seconds


def shards(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    queues: list[str | dict[str, Any]] = [*PLAIN]
    queues += [{"name": name, "enable_partitioning": True} for name in PARTED]
    with ExitStack() as stack:
        one, four = (
            stack.enter_context(
                twinbus(
                    plan.folder / f"shards-{count}",
                    queues=queues,
                    options=("--shards", str(count)),
                )
            )
            for count in (1, SHARDS)
        )
        log = plan.folder / "shards-worker.log"
        single = _load(stack, one, PLAIN, log)
        several = _load(stack, four, PLAIN, log)
        _alternate(plan, several, single)
        more_mib = resident_mib(four.pid) - resident_mib(one.pid)
        results.add("shards_memory_mib", [more_mib / (SHARDS - 1)])
        _compare(
            results, ("shards_send_4_vs_1", "shards_receive_4_vs_1"), several, single
        )
        for name, load in (("shards_1", single), (f"shards_{SHARDS}", several)):
            _add(results, name, load)
        plain = _load(stack, four, PLAIN, log)
        parted = _load(stack, four, PARTED, log)
        _alternate(plan, parted, plain)
        names = ("partitioned_send_ratio", "partitioned_receive_ratio")
        _compare(results, names, parted, plain)
        _add(results, "partitioned", parted)
    results.facts["shards_clients"] = CLIENTS


def _load(stack: ExitStack, target: Target, queues: Sequence[str], log: Path) -> Load:
    parts = [",".join(queues[start::PROCESSES]) for start in range(PROCESSES)]
    module = "bench.shards_worker"
    return Load([stack.enter_context(worker(target, log, module, p)) for p in parts])


def _alternate(plan: Plan, *loads: Load) -> None:
    """Let loads take turns, after a round in which both sides get warm."""
    count = max(plan.messages // CLIENTS, 1)
    for number in range(plan.rounds + 1):
        for load in reversed(loads) if number & 1 else loads:
            load.round(count)
    for load in loads:
        del load.sent[0], load.received[0]


def _compare(results: Results, names: tuple[str, str], ours: Load, other: Load) -> None:
    results.ratio(names[0], ours.sent, other.sent)
    results.ratio(names[1], ours.received, other.received)


def _add(results: Results, name: str, load: Load) -> None:
    results.add(f"{name}_send_per_second", load.sent)
    results.add(f"{name}_receive_per_second", load.received)
