"""Measure: `python -m bench [--only server] [--deep N] [--quick] [--no-peers]`.

Runs the workloads, prints a table and writes one flat JSON object. Owns the list of
workloads; each is a function that adds figures to the results.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.attacks import attacks
from bench.clients import clients
from bench.cluster import cluster
from bench.console import console
from bench.deep import deep
from bench.encodings import encodings
from bench.figures import Results
from bench.latency import latency
from bench.ledger import ledger
from bench.machine import machine
from bench.pairing import pairing
from bench.plan import Plan
from bench.proton import proton
from bench.reports import reports
from bench.sdk import sdk
from bench.shards import shards
from bench.syphon import syphon
from bench.throttling import throttling
from bench.throughput import throughput
from bench.topics import topics

DEPTH_MIN, DEPTH_MAX = 10_000, 10_000_000
LATEST = Path(__file__).resolve().parent / "latest.json"

Workload = Callable[[Plan, Results], None]

WORKLOADS: dict[str, Sequence[Workload]] = {
    "server": (throughput, deep, sdk),
    "shards": (shards,),
    "cluster": (cluster,),
    "ledger": (ledger,),
    "console": (console,),
    "proton": (proton,),
    "encodings": (encodings,),
    "latency": (latency,),
    "topics": (topics,),
    "client": (clients,),
    "pairing": (pairing,),
    "syphon": (syphon,),
    "reports": (reports,),
    "attacks": (attacks,),
    "throttling": (throttling,),
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", choices=WORKLOADS, help="run one workload")
    parser.add_argument(
        "--quick", action="store_true", help="small numbers: does it still run?"
    )
    parser.add_argument(
        "--no-peers", action="store_true", help="leave the other products out"
    )
    parser.add_argument("--json", type=Path, default=LATEST, help="where results go")
    parser.add_argument(
        "--folder", type=Path, help="where data goes: the disk that is measured"
    )
    parser.add_argument(
        "--deep", type=_depth, help=f"messages of the deep queue, {DEPTH_MAX} at most"
    )
    return parser.parse_args()


def _depth(text: str) -> int:
    """No less than a round receives, and no more than the queue can hold."""
    count = int(text)
    if not DEPTH_MIN <= count <= DEPTH_MAX:
        raise argparse.ArgumentTypeError(f"it is from {DEPTH_MIN} to {DEPTH_MAX}")
    return count


def main() -> None:
    given = _arguments()
    terminal = Console()
    results = Results(facts=machine())
    results.facts["quick"] = given.quick
    names = [given.only] if given.only else list(WORKLOADS)
    with tempfile.TemporaryDirectory(prefix="twinbus-bench-", dir=given.folder) as name:
        folder, peers = Path(name), not given.no_peers
        plan = Plan.quick(folder, peers) if given.quick else Plan(folder, peers)
        if given.deep:
            plan = replace(plan, deep=given.deep)
        results.facts |= {"rounds": plan.rounds, "messages_per_round": plan.messages}
        for each in names:
            for workload in WORKLOADS[each]:
                terminal.print(f"measuring {each}: {workload.__name__} ...")
                workload(plan, results)
    results.show(terminal)
    results.write(given.json)
    terminal.print(f"written to {given.json}", markup=False)


if __name__ == "__main__":
    main()
