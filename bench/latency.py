"""How long a send takes, beside RabbitMQ and with the same client.

Owns the figures `latency_*` (one, eight or 64 sends at once on one connection) and
`crowd_*` (many connections that send at a steady rate, with the memory and the
processor time that they cost the server).
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, resident_mib, twinbus, worker
from bench.proton import OURS, idle_cpu_seconds
from bench.proton_engine import library
from bench.rabbitmq import rabbitmq
from bench.target import Missing, Target

AT_ONCE = (1, 8, 64)
PEER = "rabbitmq"
_PERCENTILES = {"p50": 50, "p99": 99}
_RATIOS = [f"latency_{n}_{p}_vs_{PEER}" for n in AT_ONCE for p in _PERCENTILES]
_CROWD_MESSAGES_PER_SECOND = 20


@dataclass(slots=True)
class Side:
    """One server with its client, and what was measured, by the end of its name."""

    target: Target
    client: Child
    values: dict[str, list[float]] = field(default_factory=dict)

    def round(self, plan: Plan) -> None:
        """One round of awaited sends."""
        for at_once in AT_ONCE:
            count = max(plan.messages // 20, 100) * min(at_once, 4)
            answer = self.client.ask(do="awaited", count=count, at_once=at_once)
            self._add(f"latency_{at_once}", answer["milliseconds"])

    def crowd(self, plan: Plan) -> None:
        """Many connections at a steady rate."""
        before = resident_mib(self.target.pid)
        self.client.ask(do="open", connections=plan.crowd_connections)
        held = resident_mib(self.target.pid) - before
        self._note("crowd_kib_per_connection", held * 1024 / plan.crowd_connections)
        rate = _CROWD_MESSAGES_PER_SECOND * plan.crowd_connections
        count = int(rate * plan.crowd_seconds)
        spent = idle_cpu_seconds(self.target.pid)
        answer = self.client.ask(do="crowd", count=count, per_second=rate)
        spent = idle_cpu_seconds(self.target.pid) - spent
        self._note("crowd_server_cpu_us", spent / count * 1e6)
        self._note("crowd_denied_percent", 100 * answer["denied"] / count)
        self._add("crowd", answer["milliseconds"])
        self.client.ask(do="close")

    def _add(self, name: str, milliseconds: list[float]) -> None:
        cuts = statistics.quantiles(milliseconds, n=100)
        for percentile, number in _PERCENTILES.items():
            self._note(f"{name}_{percentile}", cuts[number - 1])

    def _note(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)


def latency(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    client = library()
    if isinstance(client, Missing):
        results.miss(client, *_RATIOS)
        return
    with ExitStack() as stack:
        peer: Target | Missing = Missing(PEER, "left out by --no-peers")
        if plan.peers:
            peer = stack.enter_context(rabbitmq(plan.folder / "latency-rabbitmq"))
        targets = {OURS: stack.enter_context(twinbus(plan.folder / "latency"))}
        if isinstance(peer, Missing):
            results.miss(peer, *_RATIOS)
        else:
            targets[PEER] = peer
        log, module = plan.folder / "latency-worker.log", "bench.latency_worker"
        sides = {
            name: Side(target, stack.enter_context(worker(target, log, module)))
            for name, target in targets.items()
        }
        for side in sides.values():
            side.round(plan)
            side.values.clear()
        for number in range(plan.rounds):
            for name in reversed(sides) if number & 1 else sides:
                sides[name].round(plan)
        for side in sides.values():
            side.crowd(plan)
    if PEER in sides:
        for ratio in _RATIOS:
            figure = ratio.removesuffix(f"_vs_{PEER}")
            results.ratio(ratio, sides[OURS].values[figure], sides[PEER].values[figure])
    for name, side in sides.items():
        for figure, values in side.values.items():
            start, _, end = figure.partition("_")
            unit = "_ms" if figure.endswith(tuple(_PERCENTILES)) else ""
            results.add(f"{start}_{name}_{end}{unit}", values)
    results.facts["crowd_connections"] = plan.crowd_connections
