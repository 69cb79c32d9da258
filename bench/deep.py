"""A deep queue: what a million messages cost a receive, the memory, and a start.

Owns the figures `deep_*` and `start_*`. The queues are filled through the store, before
the server starts; the rest goes over the wire. What a round receives is sent again, so
the depths stay what they are.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

from bench.figures import Results
from bench.messages import messages
from bench.plan import Plan
from bench.processes import (
    NAMESPACE,
    resident_mib,
    start_seconds,
    twinbus,
    worker,
)
from bench.target import QUEUE
from twinbus.clock import Now
from twinbus.server.setup.namespaces import open_namespace
from twinbus.store.records import Record
from twinbus.wire.message.sections import parse

_GROUP = 2_000
# A round is short, because the shallow queue holds no more, and neighbours differ by a
# fifth: so there are many.
_ROUNDS_FACTOR = 12
# Until the server of the deep queue has its page cache full, it asks the system for
# memory, 10,000 pages in four rounds.
_WARM_ROUNDS = 5


def fill(folder: Path, count: int, queue: str = QUEUE) -> None:
    """Keep messages in the queue of a data folder that a server has made."""
    with twinbus(folder, queues=(queue,)):
        pass
    namespace = open_namespace(folder / "data", NAMESPACE).first
    store = namespace.store
    try:
        entity = namespace.entities.find(queue)
        assert entity is not None
        parsed = [parse(message) for message in messages(_GROUP)]
        records = [Record(message.head(), message.bare) for message in parsed]
        for start in range(0, count, _GROUP):
            store.begin()
            store.append(entity.id, records[: count - start], Now.at(_now_ms()))
            store.commit()
    finally:
        store.close()


def _now_ms() -> int:
    return int(time.time() * 1000)


def deep(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    empty = plan.folder / "empty"
    folders = {"shallow": plan.folder / "shallow", "deep": plan.folder / "deep"}
    fill(folders["shallow"], plan.shallow)
    fill(folders["deep"], plan.deep)
    # What was written goes to the disk now, and not while something is measured.
    os.sync()
    _starts(plan, results, empty, folders["deep"])
    rates: dict[str, list[float]] = {name: [] for name in folders}
    memory: list[float] = []
    with ExitStack() as stack:
        idle = stack.enter_context(twinbus(empty))
        targets = {n: stack.enter_context(twinbus(f)) for n, f in folders.items()}
        clients = {
            name: stack.enter_context(worker(target, folders[name] / "worker.log"))
            for name, target in targets.items()
        }
        warm_rounds = _WARM_ROUNDS if plan.warm_up else 1
        for number in range(_ROUNDS_FACTOR * plan.rounds + warm_rounds):
            for name in reversed(clients) if number & 1 else clients:
                rate = clients[name].rate("receive", plan.deep_messages)
                clients[name].rate("send", plan.deep_messages)
                if number >= warm_rounds:
                    rates[name].append(rate)
            more = resident_mib(targets["deep"].pid) - resident_mib(idle.pid)
            memory.append(more)
    results.ratio("deep_receive_ratio", rates["deep"], rates["shallow"])
    results.add("deep_receive_per_second", rates["deep"])
    results.add("shallow_receive_per_second", rates["shallow"])
    results.add("deep_memory_mib", memory[warm_rounds:])
    results.facts["deep_messages"] = plan.deep
    results.facts["shallow_messages"] = plan.shallow


def _starts(plan: Plan, results: Results, empty: Path, full: Path) -> None:
    starts: dict[str, list[float]] = {"empty": [], "at_million": []}
    for number in range(plan.rounds):
        # A folder that was never used: its making is part of an empty start.
        starts["empty"].append(start_seconds(empty / str(number)))
        starts["at_million"].append(start_seconds(full))
    for name, seconds in starts.items():
        results.add(f"start_seconds_{name}", seconds)
