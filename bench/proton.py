"""A lean client that is not ours: our server and RabbitMQ, in turns.

Owns the figures `proton_*`. The client is Qpid Proton's engine in C with as little
Python around it as possible (`bench.proton_worker`), so that the servers are the limit,
and neither has a client made for it. Told with each rate: processor time per message of
the server's processes and of the client.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, cpu_seconds, twinbus, worker
from bench.proton_engine import library
from bench.rabbitmq import rabbitmq
from bench.target import Missing, Target

OURS = "twinbus"
PEER = "rabbitmq"
COMMANDS = ("send", "receive")
_RATIOS = tuple(f"proton_{do}_vs_{PEER}" for do in COMMANDS)
_RAW = tuple(f"proton_{OURS}_{do}_per_second" for do in COMMANDS)
# A round takes two or three seconds, so there can be more of them.
_ROUNDS_FACTOR = 2
# A server may still write when its client has left: its time is read when it is idle.
_IDLE_SECONDS = 0.1
_IDLE_SHARE = 0.15
_IDLE_SECONDS_MAX = 5.0


@dataclass(slots=True)
class Side:
    """One server with its client, and what was measured, by the end of its name."""

    target: Target
    client: Child
    values: dict[str, list[float]] = field(default_factory=dict)

    def round(self, count: int) -> None:
        """Fill the queue and empty it again."""
        for do in COMMANDS:
            before = idle_cpu_seconds(self.target.pid)
            took = self.client.ask(do=do, count=count)
            spent = idle_cpu_seconds(self.target.pid) - before
            self._add(f"{do}_per_second", count / took["seconds"])
            self._add(f"{do}_server_cpu_us", spent / count * 1e6)
            self._add(f"{do}_client_cpu_us", took["cpu_seconds"] / count * 1e6)

    def _add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)


def idle_cpu_seconds(pid: int) -> float:
    """Processor time of a server, read when it has nothing left to do."""
    end = time.monotonic() + _IDLE_SECONDS_MAX
    spent = cpu_seconds(pid)
    while time.monotonic() < end:
        time.sleep(_IDLE_SECONDS)
        before, spent = spent, cpu_seconds(pid)
        if spent - before <= _IDLE_SECONDS * _IDLE_SHARE:
            break
    return spent


def proton(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    client = library()
    if isinstance(client, Missing):
        results.miss(client, *_RATIOS, *_RAW)
        return
    with ExitStack() as stack:
        peer: Target | Missing = Missing(PEER, "left out by --no-peers")
        if plan.peers:
            peer = stack.enter_context(rabbitmq(plan.folder / "proton-rabbitmq"))
        targets = {OURS: stack.enter_context(twinbus(plan.folder / "proton"))}
        if isinstance(peer, Missing):
            results.miss(peer, *_RATIOS)
        else:
            targets[PEER] = peer
        log = plan.folder / "proton-worker.log"
        sides = {
            name: Side(
                target, stack.enter_context(worker(target, log, "bench.proton_worker"))
            )
            for name, target in targets.items()
        }
        for side in sides.values():
            # Caches, page tables and the peer's compiler get warm.
            side.round(plan.messages)
            side.values.clear()
        for number in range(_ROUNDS_FACTOR * plan.rounds):
            for name in reversed(sides) if number & 1 else sides:
                sides[name].round(plan.messages)
    _report(sides, results)


def _report(sides: dict[str, Side], results: Results) -> None:
    if PEER in sides:
        ours, theirs = sides[OURS].values, sides[PEER].values
        for do, name in zip(COMMANDS, _RATIOS, strict=True):
            results.ratio(name, ours[f"{do}_per_second"], theirs[f"{do}_per_second"])
    for name, side in sides.items():
        for figure, values in side.values.items():
            results.add(f"proton_{name}_{figure}", values)
