"""A lean client that is not ours: our server, RabbitMQ and Artemis, in turns.

Owns the figures `proton_*`. The client is Qpid Proton's engine in C with as little
Python around it as possible (`bench.proton_worker`), so that the servers are the limit,
and none has a client made for it. Told with each rate: processor time per message of
the server's processes and of the client. The peers meet our own client too, and what
they are compared by is the rate with the client that is better for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.artemis import artemis
from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, cpu_seconds, twinbus, worker
from bench.proton_engine import library
from bench.proton_worker import COMMANDS
from bench.rabbitmq import rabbitmq
from bench.target import Missing, Target

OURS = "twinbus"
PEERS: dict[str, Callable[[Path], AbstractContextManager[Target | Missing]]] = {
    "rabbitmq": rabbitmq,
    "artemis": artemis,
}
_WITHOUT_CONFIRMATION = {"artemis"}
_RAW = tuple(f"proton_{OURS}_{do}_per_second" for do in COMMANDS)
# A round takes two or three seconds, so there can be more of them.
_ROUNDS_FACTOR = 2
# Rounds that are not counted: caches, page tables and the peers' compilers get warm.
_WARM_UP_ROUNDS = 3
# A server may still write when its client has left, ours after 0.1 s: its time is read
# when it is idle.
_IDLE_SECONDS = 0.25
_IDLE_SHARE = 0.15
_IDLE_SECONDS_MAX = 5.0


@dataclass(slots=True)
class Side:
    """One server with its client, and what was measured, by the end of its name."""

    target: Target
    client: Child
    # Our own client, for a peer; where acceptances are not confirmed it only sends.
    other: Child | None = None
    confirms: bool = True
    values: dict[str, list[float]] = field(default_factory=dict)

    def round(self, count: int) -> None:
        """Fill the queue and empty it again, with each client."""
        for do in COMMANDS:
            before = idle_cpu_seconds(self.target.pid)
            took = self.client.ask(do=do, count=count)
            spent = idle_cpu_seconds(self.target.pid) - before
            self._add(f"{do}_per_second", count / took["seconds"])
            self._add(f"{do}_server_cpu_us", spent / count * 1e6)
            self._add(f"{do}_client_cpu_us", took["cpu_seconds"] / count * 1e6)
        if self.other is not None:
            self._add("send_own_client_per_second", self.other.rate("send", count))
            if self.confirms:
                rate = self.other.rate("receive", count)
                self._add("receive_own_client_per_second", rate)
            else:
                self.client.ask(do="receive", count=count)

    def best(self, do: str) -> list[float]:
        """The rates with the client that is better for the server."""
        rates = self.values[f"{do}_per_second"]
        return max(
            rates, self.values.get(f"{do}_own_client_per_second", rates), key=median
        )

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


def _ratios(peer: str) -> list[str]:
    return [f"proton_{do}_vs_{peer}" for do in COMMANDS]


def proton(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    engine = library()
    if isinstance(engine, Missing):
        ratios = [name for peer in PEERS for name in _ratios(peer)]
        results.miss(engine, *ratios, *_RAW)
        return
    with ExitStack() as stack:
        targets = {OURS: stack.enter_context(twinbus(plan.folder / "proton"))}
        for name, start in PEERS.items():
            peer: Target | Missing = Missing(name, "left out by --no-peers")
            if plan.peers:
                peer = stack.enter_context(start(plan.folder / f"proton-{name}"))
            if isinstance(peer, Missing):
                results.miss(peer, *_ratios(name))
            else:
                targets[name] = peer
        log = plan.folder / "proton-worker.log"
        sides: dict[str, Side] = {}
        for name, target in targets.items():
            client = stack.enter_context(worker(target, log, "bench.proton_worker"))
            sides[name] = Side(target, client)
            if name != OURS:
                sides[name].other = stack.enter_context(worker(target, log))
                sides[name].confirms = name not in _WITHOUT_CONFIRMATION
        for side in sides.values():
            for _ in range(_WARM_UP_ROUNDS if plan.warm_up else 1):
                side.round(plan.messages)
            side.values.clear()
        for number in range(_ROUNDS_FACTOR * plan.rounds):
            for name in reversed(sides) if number & 1 else sides:
                sides[name].round(plan.messages)
    _report(sides, results)


def _report(sides: dict[str, Side], results: Results) -> None:
    for peer in sides.keys() - {OURS}:
        for do, name in zip(COMMANDS, _ratios(peer), strict=True):
            results.ratio(name, sides[OURS].best(do), sides[peer].best(do))
    for name, side in sides.items():
        for figure, values in side.values.items():
            results.add(f"proton_{name}_{figure}", values)
