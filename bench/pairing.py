"""What pairing costs while all is well, and how its sender stands beside the SDK's.

Owns the figures `paired_*`. The overhead is processor time of the client's process for
each message, paired over alone, in one process and in turns. One pair of turns says
little on a busy machine, where it differs from the next by ten times the figure. So the
turns are short and many, and the figure of a round is the median over all of its pairs;
its spread is that of the rounds.

Rates are told beside the official client's, against the same server process, and with
the making of messages. A `ServiceBusMessage` of the official client takes longer to
make than to send, and both clients make one; with messages that are made (`made_`) the
senders alone are compared. The paired sender is also given dicts (`dict_`) and messages
of our own class (`light_`), which are cheap to make; beside those stands the rate of
the official client with messages of its own.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from statistics import median

from bench.clients import PATTERNS, SDK, Pattern, Side
from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, twinbus, worker

_PAIRED = "paired"
_SINGLE = Pattern("single", 1, 64)
_BATCHES = Pattern("batches", 100, 8)
# Messages that were made before.
_MADE = (
    Pattern("made_batches", 100, 8, {"made": True}),
    Pattern("made_single", 1, 64, {"made": True}),
)
# Messages that only the paired sender can send without the official constructor.
_OWN = (
    Pattern("dict_batches", 100, 8, {"kind": "dict"}),
    Pattern("light_batches", 100, 8, {"kind": "light"}),
    Pattern("light_single", 1, 64, {"kind": "light"}),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared. Without ids, the paired sender gives each message one."""

    name: str
    pattern: Pattern
    ids: bool = True


def pairing(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    log = plan.folder / "pairing-worker.log"
    with (
        twinbus(plan.folder / "primary") as primary,
        twinbus(plan.folder / "secondary", https=True) as secondary,
        worker(primary, log) as emptying,
        worker(
            secondary, log, "bench.pair_worker", json.dumps(asdict(primary))
        ) as paired,
        worker(primary, log, "bench.task_worker", "sdk") as theirs,
    ):
        clients = (paired, emptying)
        _overhead(plan, results, Comparison("", _SINGLE), clients)
        _overhead(plan, results, Comparison("_batches", _BATCHES), clients)
        _overhead(plan, results, Comparison("_new_ids", _SINGLE, ids=False), clients)
        _rates(plan, results, (paired, theirs, emptying))


def _overhead(
    plan: Plan, results: Results, what: Comparison, clients: tuple[Child, Child]
) -> None:
    paired, emptying = clients
    percents: list[float] = []
    costs: dict[str, list[float]] = {"alone_us": [], "paired_us": []}
    for number in range(plan.rounds + 1):
        took = paired.ask(
            do="compare",
            count=plan.pairing_messages,
            size=what.pattern.size,
            tasks=min(what.pattern.tasks, plan.tasks_max),
            parts=plan.pairing_parts,
            ids=what.ids,
        )
        sent = 2 * plan.pairing_parts * plan.pairing_messages
        emptying.ask(do="receive", count=sent)
        if not number:
            # The first round makes the links.
            continue
        for name, values in took.items():
            costs[name] += values
        pairs = zip(took["paired_us"], took["alone_us"], strict=True)
        percents.append(median(100 * (one / other - 1) for one, other in pairs))
    results.add(f"paired_overhead{what.name}_percent", percents)
    for side, values in costs.items():
        results.add(f"factory_{side.removesuffix('_us')}{what.name}_cpu_us", values)


def _rates(plan: Plan, results: Results, clients: tuple[Child, Child, Child]) -> None:
    paired, theirs, emptying = clients
    sides = {
        _PAIRED: Side(paired, plan.client_messages),
        SDK: Side(theirs, plan.sdk_messages),
    }
    patterns = [*(each for each in PATTERNS if each.tasks > 1), *_MADE]
    for number in range(plan.rounds + 1):
        for name, side in sides.items():
            for pattern in [*patterns, *_OWN] if name == _PAIRED else patterns:
                side.send(pattern, plan.tasks_max)
                emptying.ask(do="receive", count=side.count)
            if not number:
                side.forget()
    for name, rates in sides[_PAIRED].rates.items():
        official = sides[SDK].rates[name.replace("dict_", "").replace("light_", "")]
        results.ratio(f"paired_{name}_vs_sdk", rates, official)
        results.add(f"paired_{name}_per_second", rates)
