"""What the ledger costs: processor time of the server for a message, with and without.

Owns the figures `ledger_*`. Two servers, alike but for the ledger, are filled and
emptied in turns of short parts, so that what disturbs the machine disturbs both alike.
Processor time is that of the scheduler, in nanoseconds, of all threads of the server.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, run_ns, twinbus, worker
from bench.target import Target

_PARTS = 10
_WAYS = {"off": ("--no-ledger",), "on": ()}


def ledger(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    count = max(plan.messages // _PARTS, 1)
    values: dict[str, list[float]] = {}
    with ExitStack() as stack:
        sides = {way: _started(plan, stack, way) for way in _WAYS}
        for number in range(plan.rounds + plan.warm_up):
            spent = _round(sides, count)
            if number >= plan.warm_up:
                for name, value in spent.items():
                    values.setdefault(name, []).append(value)
    for do in ("send", "receive"):
        on, off = values[f"{do}_on"], values[f"{do}_off"]
        results.add(f"ledger_{do}_cpu_us", on)
        results.add(f"no_ledger_{do}_cpu_us", off)
    both = zip(values["both_on"], values["both_off"], strict=True)
    results.add("ledger_overhead_percent", [100 * (on / off - 1) for on, off in both])


def _started(plan: Plan, stack: ExitStack, way: str) -> tuple[Target, Child]:
    folder = plan.folder / f"ledger-{way}"
    target = stack.enter_context(twinbus(folder, options=_WAYS[way]))
    return target, stack.enter_context(worker(target, folder / "client.log"))


def _round(sides: dict[str, tuple[Target, Child]], count: int) -> dict[str, float]:
    """Microseconds for a message of each way, sends and receives apart."""
    spent_ns = {f"{do}_{way}": 0 for do in ("send", "receive") for way in sides}
    for part in range(_PARTS):
        # Each way is first in half of the parts.
        for way in sorted(sides, reverse=bool(part % 2)):
            target, client = sides[way]
            for do in ("send", "receive"):
                before_ns = run_ns(target.pid)
                client.ask(do=do, count=count)
                spent_ns[f"{do}_{way}"] += run_ns(target.pid) - before_ns
    found = {name: ns / 1000 / count / _PARTS for name, ns in spent_ns.items()}
    for way in sides:
        found[f"both_{way}"] = found[f"send_{way}"] + found[f"receive_{way}"]
    return found
