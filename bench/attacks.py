"""The longest round trip of an honest client beside each attack, and the memory.

Owns the figures `attack_*`. Each attack has a server of its own, one honest client and
one process that attacks; the honest client starts first. `none` is without an attack.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.attacker import ATTACKS, FULL, TOPIC
from bench.deep import fill
from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, peak_mib, resident_mib, running, twinbus, worker
from bench.target import QUEUE, Target

_QUEUES = (QUEUE, FULL)
_SUBSCRIPTIONS = 500
_CHEAP_RULES = 1_000
_COSTLY_RULES = 200
_FILLED = ("purge", "delete")
NONE = "none"


def attacks(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    table = Table(
        "attack", "longest ms", "p99 ms", "round trips", "peak MiB", "after MiB"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    longest = []
    for name in (NONE, *ATTACKS):
        taken, peak, after = _beside(name, plan)
        p99 = statistics.quantiles([*taken, taken[-1]], n=100, method="inclusive")[98]
        results.add(f"attack_{name}_longest_ms", [max(taken)])
        results.add(f"attack_{name}_p99_ms", [p99])
        results.add(f"attack_{name}_peak_mib", [peak])
        longest.append(max(taken))
        figures = (max(taken), p99, len(taken), peak, after)
        table.add_row(name, *(f"{each:,.0f}" for each in figures))
    results.add("attack_longest_ms", [max(longest)])
    results.facts["attack_messages"] = plan.attack_messages
    Console().print(table)


def _beside(name: str, plan: Plan) -> tuple[list[float], float, float]:
    """Round trips in milliseconds, and the memory at its peak and when it is over."""
    folder = plan.folder / f"attack-{name}"
    if name in _FILLED:
        fill(folder, plan.attack_messages, FULL)
    topics = _topics(name, plan.attack_scale)
    with (
        twinbus(folder, queues=_QUEUES, topics=topics) as target,
        worker(target, folder / "honest.log", "bench.honest_worker") as honest,
    ):
        taken = _measure(name, plan, target, honest)
        # Some round trips more, in which the server can give memory back.
        honest.ask(seconds=1)
        return taken, peak_mib(target.pid), resident_mib(target.pid)


def _measure(name: str, plan: Plan, target: Target, honest: Child) -> list[float]:
    if name == NONE:
        return list(honest.ask(seconds=plan.attack_seconds)["milliseconds"])
    log = Path(plan.folder / f"attack-{name}" / "attacker.log")
    arguments = (name, str(plan.attack_seconds), str(plan.attack_scale))
    with running(log, "bench.attacker", *arguments, target.text()) as attacker:
        honest.tell(seconds=plan.attack_seconds)
        attacker.tell()
        taken = honest.read()["milliseconds"]
        attacker.read()
    return list(taken)


def _topics(name: str, scale: float) -> list[dict[str, Any]]:
    """The topic that an attack sends to."""
    subscriptions: list[dict[str, Any]] = [{"name": "all"}]
    if name == "many_subscriptions":
        count = int(_SUBSCRIPTIONS * scale)
        subscriptions = [{"name": f"s{number}"} for number in range(count)]
    elif name == "many_rules":
        rules = [f"x = {number}" for number in range(int(_CHEAP_RULES * scale))]
        subscriptions = [{"name": "all", "rules": _rules(rules)}]
    elif name == "costly_rules":
        costly = " OR ".join(["a LIKE '%a_b_z%'", "b LIKE '%a_b_z%'"] * 4)
        rules = [costly] * int(_COSTLY_RULES * scale)
        subscriptions = [{"name": "all", "rules": _rules(rules)}]
    return [{"name": TOPIC, "subscriptions": subscriptions}]


def _rules(texts: list[str]) -> list[dict[str, Any]]:
    return [
        {"name": f"r{number}", "filter": {"sql": text}}
        for number, text in enumerate(texts)
    ]
