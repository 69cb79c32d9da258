"""What a copy of a message for a subscription costs, against a send to a queue.

Owns the figures `topic_*`. The subscriptions have an SQL filter each that takes every
message. Processor time of the server is compared, which hardly depends on the disk.
"""

from __future__ import annotations

from typing import Any

from bench.figures import Results
from bench.plan import Plan
from bench.processes import twinbus, worker
from bench.proton import idle_cpu_seconds
from bench.proton_engine import library
from bench.target import QUEUE, Missing

COPIES = (10, 100)
_FILTER = "sys.MessageId > '{number:x}' OR sys.MessageId LIKE '{number:04x}%' OR 1 = 1"


def topics(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    names = [f"topic_{copies}_copy_vs_send" for copies in COPIES]
    client = library()
    if isinstance(client, Missing):
        results.miss(client, *names)
        return
    log = plan.folder / "topics-worker.log"
    made = [_topic(copies) for copies in COPIES]
    with (
        twinbus(plan.folder / "topics", topics=made) as target,
        worker(target, log, "bench.proton_worker") as child,
    ):

        def cpu_us(entity: str, count: int) -> float:
            before = idle_cpu_seconds(target.pid)
            child.ask(do="send", count=count, entity=entity)
            return (idle_cpu_seconds(target.pid) - before) / count * 1e6

        cpu_us(QUEUE, plan.messages)
        for copies, name in zip(COPIES, names, strict=True):
            ratios, each = [], []
            for _ in range(plan.rounds):
                send = cpu_us(QUEUE, plan.messages)
                copy = cpu_us(f"topic{copies}", plan.messages // copies) / copies
                each.append(copy)
                ratios.append(copy / send)
            results.add(name, ratios)
            results.add(f"topic_{copies}_copy_cpu_us", each)


def _topic(copies: int) -> dict[str, Any]:
    subscriptions = [
        {
            "name": f"s{number}",
            "rules": [
                {"name": "all", "filter": {"sql": _FILTER.format(number=number)}}
            ],
        }
        for number in range(copies)
    ]
    return {"name": f"topic{copies}", "subscriptions": subscriptions}
