"""Overload: what accepted sends take with and without throttling.

Owns the figures `load_*`. The queue `loud` is flooded; `quiet` has one client that
sends one message at a time. Full load is what the server takes without throttling; the
overload has four times as many clients. Each way has a server of its own, and they are
flooded in turns, so that what disturbs the machine disturbs all alike.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, twinbus, worker

FLOODER, NEIGHBOUR = "loud", "quiet"
# Clients of the flooded queue at full load. With sixteen sends of 4 KiB each they have
# half a megabyte on its way.
_CLIENTS = 8
_OVERLOAD = 4
# A little above what waits at full load, so that the overload is above it.
_THRESHOLD = ("--throttle-pending", str(320 * 1024))
# Off for development, unless it is asked for.
_COMMIT = ("--throttle-commit", "0.25")
_OFF = ("--throttle-pending", "0", "--throttle-lag", "0")
# Of four shards, the first has a slow disk.
_SHARDS = 4
_SLOW_SECONDS = 0.5

Ways = dict[str, tuple[int, tuple[str, ...]]]
_WAYS: Ways = {
    "full": (_CLIENTS, _OFF),
    "overload": (_CLIENTS * _OVERLOAD, _OFF),
    "throttled": (_CLIENTS * _OVERLOAD, _THRESHOLD),
}


def throttling(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    values: dict[str, list[float]] = {}
    with ExitStack() as stack:
        floods = {way: _started(plan, stack, way) for way in _WAYS}
        for _ in range(plan.throttling_rounds):
            for way, (clients, _options) in _WAYS.items():
                queues = {FLOODER: clients, NEIGHBOUR: 1}
                seconds = plan.throttling_seconds
                answer = floods[way].ask(queues=queues, seconds=seconds)
                for name, value in _figures(answer, seconds).items():
                    values.setdefault(f"{way}_{name}", []).append(value)
    for way in ("overload", "throttled"):
        for name in (FLOODER, NEIGHBOUR):
            pairs = zip(
                values[f"{way}_{name}_p99_ms"],
                values[f"full_{name}_p99_ms"],
                strict=True,
            )
            values[f"{way}_{name}_p99_vs_full"] = [one / full for one, full in pairs]
    for name, found in values.items():
        results.add(f"load_{name}", found)
    ratios = [_partitioned(plan, number) for number in range(plan.rounds)]
    results.add("partitioned_throttled_ratio", ratios)


def _started(plan: Plan, stack: ExitStack, way: str) -> Child:
    """A server for one way, and the process of its clients."""
    folder = plan.folder / f"throttling-{way}"
    queues, options = (FLOODER, NEIGHBOUR), _WAYS[way][1]
    target = stack.enter_context(twinbus(folder, queues=queues, options=options))
    log = folder / "flood.log"
    return stack.enter_context(worker(target, log, "bench.flood_worker"))


def _figures(answer: dict[str, Any], seconds: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for queue, taken in answer["accepted"].items():
        # If none has ended, one has taken all of the time.
        known = taken or [seconds * 1000]
        cuts = statistics.quantiles([*known, known[-1]], n=100, method="inclusive")
        found[f"{queue}_p50_ms"] = cuts[49]
        found[f"{queue}_p99_ms"] = cuts[98]
        found[f"{queue}_per_second"] = len(taken) / seconds
        found[f"{queue}_denied"] = answer["denied"].get(queue, 0)
    return found


def _partitioned(plan: Plan, number: int) -> float:
    """Denied of a partitioned queue, as a part of what an ordinary one is denied.

    Both are flooded in the same way, one after the other, while the disk of one shard
    is slow. The ordinary queue is in that shard.
    """
    denied = []
    for queue in ("plain", "parted"):
        folder = plan.folder / f"throttling-{number}-{queue}"
        with (
            twinbus(
                folder,
                queues=("plain", {"name": "parted", "enable_partitioning": True}),
                options=("--faults", "--shards", str(_SHARDS), *_COMMIT),
            ) as target,
            worker(target, folder / "flood.log", "bench.flood_worker") as flood,
        ):
            assert target.connection_string is not None
            _slow_disk(target.connection_string, target.http_port)
            answer = flood.ask(
                queues={queue: _CLIENTS}, seconds=3 * plan.throttling_seconds
            )
            count = answer["denied"].get(queue, 0)
            denied.append(count / max(count + len(answer["accepted"][queue]), 1))
    plain, parted = denied
    return parted / plain if plain else 1.0


def _slow_disk(connection_string: str, http_port: int) -> None:
    command = [
        sys.executable,
        "-m",
        "twinbus.cli.main",
        "fault",
        "add",
        "storage-slow",
        "0",
    ]
    command += ["--delay", str(_SLOW_SECONDS), "--connection-string", connection_string]
    command += ["--url", f"http://127.0.0.1:{http_port}", "--json"]
    done = subprocess.run(command, check=True, capture_output=True)
    assert json.loads(done.stdout)


__all__ = ["throttling"]
