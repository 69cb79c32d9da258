"""The official client against our server: raw rates, nothing compared."""

from __future__ import annotations

from bench.figures import Results
from bench.plan import Plan
from bench.processes import twinbus, worker

_COMMANDS = ("send", "receive", "send_single", "receive")
_NAMES = {
    "send": "sdk_send_batches_per_second",
    "send_single": "sdk_send_single_per_second",
    "receive": "sdk_receive_per_second",
}


def sdk(plan: Plan, results: Results) -> None:
    """Measure how fast azure-servicebus is with us."""
    rates: dict[str, list[float]] = {name: [] for name in _NAMES.values()}
    log = plan.folder / "sdk-worker.log"
    with (
        twinbus(plan.folder / "sdk") as target,
        worker(target, log, "bench.sdk_worker") as client,
    ):
        for number in range(plan.rounds + 1):
            for command in _COMMANDS:
                rate = client.rate(command, plan.sdk_messages)
                # The first round makes the links.
                if number:
                    rates[_NAMES[command]].append(rate)
    for name, values in rates.items():
        results.add(name, values)
