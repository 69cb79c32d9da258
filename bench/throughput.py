"""Sends and receives of one client: our server, RabbitMQ, and the limit, in turns.

Owns the figures `server_*`. In every round each server gets its turn, so that whatever
else the machine does meets all of them. One process sends, another receives.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Results
from bench.plan import Plan
from bench.processes import Child, limit, twinbus, worker
from bench.rabbitmq import rabbitmq
from bench.target import Missing, Target

OURS = "twinbus"
PEER = "rabbitmq"
LIMIT = "limit"
# A round takes a sixth of a second, and the ratio of neighbours is between 0.5 and 0.9:
# with five of them the median moves by a tenth from run to run.
_ROUNDS_FACTOR = 4
# Servers write on when clients have their answers: not in the round of another one.
_IDLE_SECONDS = 0.3


@dataclass(slots=True)
class Pair:
    """The two clients of one server, and what they measured."""

    sender: Child
    receiver: Child
    sent: list[float] = field(default_factory=list)
    received: list[float] = field(default_factory=list)

    def round(self, count: int) -> None:
        """Fill the queue and empty it again."""
        self.sent.append(self.sender.rate("send", count))
        self.received.append(self.receiver.rate("receive", count))


def throughput(plan: Plan, results: Results) -> None:
    """Measure the figures of this file."""
    with ExitStack() as stack:
        peer: Target | Missing = Missing(PEER, "left out by --no-peers")
        if plan.peers:
            peer = stack.enter_context(rabbitmq(plan.folder / PEER))
        targets = {
            OURS: stack.enter_context(twinbus(plan.folder / OURS)),
            LIMIT: stack.enter_context(limit(plan.folder / LIMIT)),
        }
        if isinstance(peer, Missing):
            names = ("server_send_vs_rabbitmq", "server_receive_vs_rabbitmq")
            results.miss(peer, *names)
        else:
            targets[PEER] = peer
        pairs = {
            name: _pair(stack, target, plan.folder / f"{name}-worker.log")
            for name, target in targets.items()
        }
        for pair in pairs.values():
            # Caches, page tables and the peer's compiler get warm.
            pair.round(plan.messages)
            pair.sent.clear()
            pair.received.clear()
        for _ in range(_ROUNDS_FACTOR * plan.rounds):
            for pair in pairs.values():
                pair.round(plan.messages)
                time.sleep(_IDLE_SECONDS)
    _report(pairs, results)


def _pair(stack: ExitStack, target: Target, log: Path) -> Pair:
    sender = stack.enter_context(worker(target, log))
    return Pair(sender, stack.enter_context(worker(target, log)))


def _report(pairs: dict[str, Pair], results: Results) -> None:
    ours = pairs[OURS]
    for name in (PEER, LIMIT):
        if name in pairs:
            other = pairs[name]
            results.ratio(f"server_send_vs_{name}", ours.sent, other.sent)
            results.ratio(f"server_receive_vs_{name}", ours.received, other.received)
    for name, pair in pairs.items():
        results.add(f"{name}_send_per_second", pair.sent)
        results.add(f"{name}_receive_per_second", pair.received)
