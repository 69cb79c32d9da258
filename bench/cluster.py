"""A namespace on three nodes, beside a quorum queue of RabbitMQ and raw `COPY`.

Owns the figures `cluster_*`. Three clients, one at each node, fill one queue and empty
it again, all at once. The client is Qpid Proton's, as in `bench.proton`; servers,
database and standby share the machine. Told with each rate of ours: processor time per
message of the nodes and of PostgreSQL with its standby. Further rounds have one client,
at one node, or a transaction that stays open in the database.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster_gaps import gap_of_a_killed_node, gap_of_a_promotion
from bench.cluster_site import NODES, Site, cluster_site
from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, worker
from bench.proton_engine import library
from bench.proton_worker import COMMANDS
from bench.rabbitmq import make_quorum_queue, rabbitmq_nodes
from bench.target import QUEUE, Missing, Target

_QUORUM = ("cluster_send_vs_quorum", "cluster_receive_vs_quorum")
_RAW = ("cluster_send_vs_copy", "cluster_pinned_receive_ratio")
# These rounds are short, and the rates of a busy machine vary.
_PINNED_ROUNDS_FACTOR = 3


@dataclass(slots=True)
class Side:
    """Clients of one kind of server, and what was measured, by name."""

    clients: Sequence[Child]
    site: Site | None = None
    values: dict[str, list[float]] = field(default_factory=dict)

    def round(self, count: int) -> None:
        """Fill the queue and empty it again, with all clients at once."""
        for do in COMMANDS:
            before = self._spent()
            seconds = self._seconds(do, count // len(self.clients))
            self._add(f"{do}_per_second", count / seconds)
            for name, more in zip(
                ("nodes", "database"), self._spent(before), strict=False
            ):
                self._add(f"{do}_{name}_cpu_us", more / count * 1e6)

    def _seconds(self, do: str, count: int) -> float:
        for client in self.clients:
            client.tell(do=do, count=count)
        return max(float(client.read()["seconds"]) for client in self.clients)

    def _spent(self, since: Sequence[float] = (0.0, 0.0)) -> list[float]:
        if self.site is None:
            return []
        now = (self.site.nodes_cpu_seconds(), self.site.database_cpu_seconds())
        return [one - other for one, other in zip(now, since, strict=True)]

    def _add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)


def cluster(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    client = library()
    if isinstance(client, Missing):
        results.miss(client, *_QUORUM, *_RAW)
        return
    # A share for each client.
    count = plan.messages // NODES * NODES
    with ExitStack() as stack:
        site = stack.enter_context(cluster_site(plan.folder / "cluster"))
        log = plan.folder / "cluster-worker.log"
        ours = Side(_clients(stack, site.targets, log), site)
        one = Side(_clients(stack, site.targets[:1], log), site)
        results.facts["cluster_load_before"] = os.getloadavg()[0]
        _pinned(plan, results, ours, count)
        sides = {"cluster": ours, "cluster_one_node": one}
        peers = _quorum(plan, stack, results)
        if peers:
            sides["quorum"] = Side(_clients(stack, peers, log))
        copied: list[tuple[float, float]] = []
        for number in range(plan.rounds + 1):
            for name in reversed(sides) if number & 1 else sides:
                sides[name].round(count)
            copied.append(site.copy(count))
            if not number:
                # Caches and the peer's compiler are warm now.
                copied.clear()
                for side in sides.values():
                    side.values.clear()
        _gaps(plan, results, site)
    _report(results, sides, copied)


def _clients(stack: ExitStack, targets: Sequence[Target], log: Path) -> list[Child]:
    module = "bench.proton_worker"
    return [stack.enter_context(worker(target, log, module)) for target in targets]


def _quorum(plan: Plan, stack: ExitStack, results: Results) -> list[Target]:
    """A broker with a quorum queue; none if there can be none."""
    found: list[Target] | Missing = Missing("rabbitmq", "left out by --no-peers")
    if plan.peers:
        found = stack.enter_context(rabbitmq_nodes(plan.folder / "quorum", NODES))
    if isinstance(found, Missing):
        results.miss(found, *_QUORUM)
        return []
    return make_quorum_queue(found, QUEUE)


def _pinned(plan: Plan, results: Results, ours: Side, count: int) -> None:
    """Rounds with and without a transaction that stays open, in turns."""
    assert ours.site is not None
    free, pinned = Side(ours.clients, ours.site), Side(ours.clients, ours.site)
    ours.round(count)
    for number in range(_PINNED_ROUNDS_FACTOR * plan.rounds):
        for side in (pinned, free) if number & 1 else (free, pinned):
            with ours.site.pinned() if side is pinned else nullcontext():
                side.round(count)
    for figure, name in (
        ("receive_per_second", "cluster_pinned_receive_ratio"),
        ("receive_database_cpu_us", "cluster_pinned_receive_cpu_ratio"),
    ):
        if all(free.values[figure]):
            results.ratio(name, pinned.values[figure], free.values[figure])
    for figure, values in pinned.values.items():
        results.add(f"cluster_pinned_{figure}", values)


def _gaps(plan: Plan, results: Results, site: Site) -> None:
    # The last node is killed first, and the primary last: each only once.
    seconds = plan.cluster_gap_seconds
    gap = gap_of_a_killed_node(site, seconds)
    results.add("cluster_gap_killed_node_ms", [gap * 1000])
    gap = gap_of_a_promotion(site, seconds)
    results.add("cluster_gap_promotion_ms", [gap * 1000])


def _report(
    results: Results, sides: dict[str, Side], copied: list[tuple[float, float]]
) -> None:
    ours = sides["cluster"].values
    if "quorum" in sides:
        theirs = sides["quorum"].values
        for do, name in zip(COMMANDS, _QUORUM, strict=True):
            results.ratio(name, ours[f"{do}_per_second"], theirs[f"{do}_per_second"])
    rates, spent = ([each[part] for each in copied] for part in (0, 1))
    results.ratio("cluster_send_vs_copy", ours["send_per_second"], rates)
    for name, side in sides.items():
        for figure, values in side.values.items():
            results.add(f"{name}_{figure}", values)
    results.add("copy_rows_per_second", rates)
    results.add("copy_database_cpu_us", spent)
