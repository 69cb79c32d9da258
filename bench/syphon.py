"""The Spark syphon beside RabbitMQ's shovel, and two of its tasks beside one.

Owns the figures `syphon_*`, `shovel_*` and `pump_*`. Ten backlog queues are brought
home; both servers, Spark and its workers share the machine. In every round each side
has its turn with as many messages of 1 KiB. Time runs from the first moved message to
the last, so that no start is counted, but every pause between is.

Two tasks are set beside one twice: as it is, where servers and tasks compete for the
processors, and with servers that are far away, where they do not (`far`). For each part
its processor time is told, and with it what the limit is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, cpu_seconds, running, twinbus, worker
from bench.rabbitmq import rabbitmq
from bench.shovel import Shovels
from bench.syphon_backlog import QUEUES, Backlog
from bench.target import Missing, Target

TWO = "syphon"
ONE = "syphon_one_task"
PUMP = "pump"
PEER = "shovel"
FAR = "_far"
_MASTERS = {TWO: "local[2,4]", ONE: "local[1,4]"}
_VS_PEER = "syphon_vs_shovel"
# The way is long, so fewer are enough.
_FAR_DIVISOR = 4


class Mover(Protocol):
    """A way to move messages."""

    def prepare(self) -> None:
        """Put as many as there are where they come from."""

    def move(self) -> None:
        """Move them; returns when all are moved and settled."""

    def seconds(self) -> float:
        """How long that took, from the first message to the last."""


@dataclass(slots=True)
class Side:
    """A mover, and what was measured."""

    mover: Mover
    count: int
    # The processes that do it, by what they are.
    parts: dict[str, int]
    rates: list[float] = field(default_factory=list)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)

    def round(self) -> None:
        """Move once, and note how fast, and at what cost."""
        self.mover.prepare()
        before = {name: cpu_seconds(pid) for name, pid in self.parts.items()}
        self.mover.move()
        for name, pid in self.parts.items():
            cpu_us = (cpu_seconds(pid) - before[name]) / self.count * 1e6
            self.cpu_us.setdefault(name, []).append(cpu_us)
        self.rates.append(self.count / self.mover.seconds())

    def forget(self) -> None:
        """The round was there to get warm."""
        self.rates.clear()
        self.cpu_us.clear()


@dataclass(frozen=True, slots=True)
class Pair:
    """Our two servers, and how a syphon gets to them."""

    primary: Target
    secondary: Target
    way_home: Target
    way_back: Target


@dataclass(frozen=True, slots=True)
class Draining:
    """A process that drains the backlog when it is asked to."""

    child: Child
    pair: Pair
    backlog: Backlog

    def prepare(self) -> None:
        self.backlog.fill()

    def move(self) -> None:
        self.child.ask(
            primary=self.pair.way_home.connection_string,
            secondary=self.pair.way_back.connection_string,
        )

    def seconds(self) -> float:
        return self.backlog.way_home_seconds()


def _side(child: Child, pair: Pair, count: int) -> Side:
    backlog = Backlog(pair.primary, pair.secondary, count)
    parts = {"primary": pair.primary.pid, "secondary": pair.secondary.pid}
    parts["syphon"] = child.process.pid
    return Side(Draining(child, pair, backlog), backlog.count, parts)


@contextmanager
def _far(target: Target, log: Path) -> Iterator[Target]:
    """The same server, seen from far away."""
    text = target.connection_string
    assert text is not None
    with worker(target, log, "bench.syphon_far") as child:
        port = int(child.ask()["port"])
        text = text.replace(f":{target.port}", f":{port}")
        yield replace(target, port=port, connection_string=text)


def syphon(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    folder = plan.folder / "syphon"
    log = folder / "children.log"
    with ExitStack() as stack:
        primary = stack.enter_context(twinbus(folder / "primary"))
        secondary = stack.enter_context(twinbus(folder / "secondary", queues=QUEUES))
        sparks: dict[str, Child] = {}
        for name, master in _MASTERS.items():
            spark = running(log, "bench.syphon_spark", str(folder / name), master)
            sparks[name] = stack.enter_context(spark)
        pump = running(log, "bench.syphon_pump", str(folder / PUMP))
        ours = {**sparks, PUMP: stack.enter_context(pump)}
        near = Pair(primary, secondary, primary, secondary)
        count = plan.syphon_messages
        sides = {name: _side(child, near, count) for name, child in ours.items()}
        with _peer(plan, folder / "rabbitmq") as peer:
            if isinstance(peer, Missing):
                results.miss(peer, _VS_PEER)
            else:
                sides[PEER] = peer
            _rounds(plan, sides)
        home = stack.enter_context(_far(primary, log))
        back = stack.enter_context(_far(secondary, log))
        far = Pair(primary, secondary, home, back)
        count //= _FAR_DIVISOR
        far_sides = {name: _side(child, far, count) for name, child in sparks.items()}
        _rounds(replace(plan, warm_up=False), far_sides)
    results.facts["syphon_messages"] = plan.syphon_messages
    if PEER in sides:
        results.ratio(_VS_PEER, sides[TWO].rates, sides[PEER].rates)
    results.ratio("syphon_one_task_vs_pump", sides[ONE].rates, sides[PUMP].rates)
    _report(results, sides)
    _report(results, far_sides, FAR)


@contextmanager
def _peer(plan: Plan, folder: Path) -> Iterator[Side | Missing]:
    if not plan.peers:
        yield Missing("rabbitmq", "left out by --no-peers")
        return
    with rabbitmq(folder) as target:
        if isinstance(target, Missing):
            yield target
            return
        shovels = Shovels(target, folder, len(QUEUES), plan.syphon_messages)
        yield Side(shovels, shovels.count, {"broker": target.pid})
        shovels.close()


def _rounds(plan: Plan, sides: dict[str, Side]) -> None:
    for number in range(plan.rounds + plan.warm_up):
        for name, side in sides.items():
            side.round()
            print(f"  {name}: {side.rates[-1]:,.0f}/s", flush=True)
            if plan.warm_up and not number:
                side.forget()


def _report(results: Results, sides: dict[str, Side], suffix: str = "") -> None:
    name = f"syphon_two_tasks_vs_one{suffix}"
    results.ratio(name, sides[TWO].rates, sides[ONE].rates)
    for name, side in sides.items():
        results.add(f"{name}{suffix}_per_second", side.rates)
        for part, cpu_us in side.cpu_us.items():
            results.add(f"{name}{suffix}_cpu_us_{part}", cpu_us)
        # How busy the parts keep the machine while messages move.
        spent = [sum(each) for each in zip(*side.cpu_us.values(), strict=True)]
        cores = [
            cpu_us * rate / 1e6 for cpu_us, rate in zip(spent, side.rates, strict=True)
        ]
        results.add(f"{name}{suffix}_cores", cores)
