"""What a message costs the server as each official client encodes it.

Owns the figures `encoding_*`: processor time of the server for one message in and out.
The messages are those that the real clients sent (`tests/wire/recorded`), carried by
Qpid Proton, so that nothing but the encoding of the message differs.
"""

from __future__ import annotations

from statistics import median

from bench.figures import Results
from bench.plan import Plan
from bench.processes import twinbus, worker
from bench.proton import idle_cpu_seconds
from bench.proton_engine import library
from bench.proton_worker import COMMANDS, RECORDED
from bench.target import Missing

WORST = "encoding_worst_vs_best"
# The difference is small beside the noise of a round: so there are more of them.
_ROUNDS_FACTOR = 4


def encodings(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    client = library()
    if isinstance(client, Missing):
        results.miss(client, WORST)
        return
    names = [*RECORDED, "proton"]
    spent: dict[str, list[float]] = {name: [] for name in names}
    log = plan.folder / "encodings-worker.log"
    with (
        twinbus(plan.folder / "encodings") as target,
        worker(target, log, "bench.proton_worker") as child,
    ):
        for number in range(_ROUNDS_FACTOR * plan.rounds + 1):
            for name in reversed(names) if number & 1 else names:
                before = idle_cpu_seconds(target.pid)
                for do in COMMANDS:
                    child.ask(do=do, count=plan.messages, encoding=name)
                used = idle_cpu_seconds(target.pid) - before
                spent[name].append(used / plan.messages * 1e6)
    # The first round is for the caches.
    counted = {name: values[1:] for name, values in spent.items()}
    for name, values in counted.items():
        results.add(f"encoding_{name}_server_cpu_us", values)
    # By their medians: in one round of a busy machine another is the worst each time.
    best, *_, worst = sorted(counted.values(), key=median)
    pairs = zip(worst, best, strict=True)
    results.add(WORST, [one / max(other, 0.001) for one, other in pairs])
