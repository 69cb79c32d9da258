"""Our client beside the official one, both with many tasks, against one server.

Owns the figures `client_*`. In every round each client gets its turn at the same server
process, so that whatever else the machine does meets both. Batches hold 100 messages of
1 KiB. What a client costs is told, too: processor time of its own process, which says
more than rates where a server or a neighbour is the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, twinbus, worker
from bench.task_worker import BATCH

OURS = "twinbus"
SDK = "sdk"
_MODULE = "bench.task_worker"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A way of sending: messages a call, tasks at once."""

    name: str
    size: int
    tasks: int
    # What a worker is told besides.
    more: Mapping[str, object] = field(default_factory=dict)


PATTERNS = (
    Pattern("batches", BATCH, 8),
    Pattern("single", 1, 64),
    # One batch after the other: what one round trip costs.
    Pattern("serial_batches", BATCH, 1),
)


@dataclass(slots=True)
class Side:
    """One client, and what it measured."""

    client: Child
    count: int
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)

    def send(self, pattern: Pattern, tasks_max: int) -> None:
        """One round of sends."""
        size, tasks = pattern.size, min(pattern.tasks, tasks_max)
        name = f"send_{pattern.name}"
        self._run(name, do="send", size=size, tasks=tasks, **pattern.more)

    def receive(self) -> None:
        """One round of receives."""
        self._run("receive", do="receive")

    def forget(self) -> None:
        """The round was there to make the links and to get warm."""
        self.rates.clear()
        self.cpu_us.clear()

    def _run(self, name: str, **command: object) -> None:
        took = self.client.ask(count=self.count, **command)
        self.rates.setdefault(name, []).append(self.count / took["seconds"])
        cpu_us = took["cpu_seconds"] / self.count * 1e6
        self.cpu_us.setdefault(name, []).append(cpu_us)


def clients(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    log = plan.folder / "clients-worker.log"
    with (
        twinbus(plan.folder / "clients") as target,
        worker(target, log, _MODULE, "twinbus") as ours,
        worker(target, log, _MODULE, "sdk") as theirs,
    ):
        sides = {
            OURS: Side(ours, plan.client_messages),
            SDK: Side(theirs, plan.sdk_messages),
        }
        for number in range(plan.rounds + 1):
            for side in sides.values():
                for pattern in PATTERNS:
                    side.send(pattern, plan.tasks_max)
                    side.receive()
                if not number:
                    side.forget()
    for name, rates in sides[OURS].rates.items():
        results.ratio(f"client_{name}_vs_sdk", rates, sides[SDK].rates[name])
    for name, side in sides.items():
        for figure, values in side.rates.items():
            results.add(f"{name}_client_{figure}_per_second", values)
        for figure, values in side.cpu_us.items():
            results.add(f"{name}_client_{figure}_cpu_us", values)
