"""How much is measured: the numbers of one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run, and where it may write."""

    folder: Path
    peers: bool = True
    rounds: int = 5
    # Whether a round that is not counted comes first, where that is up to the plan.
    warm_up: bool = True
    messages: int = 20_000
    # The two depths between which a receive may not slow down.
    shallow: int = 10_000
    deep: int = 1_000_000
    deep_messages: int = 8_000
    sdk_messages: int = 6_000
    client_messages: int = 20_000
    tasks_max: int = 64
    # Of each part of a comparison, and the parts of a round: many short turns, so that
    # what disturbs the machine disturbs both sides alike.
    pairing_messages: int = 400
    pairing_parts: int = 100
    # Of one drain, over ten backlog queues.
    syphon_messages: int = 100_000

    # Ticks of pages that follow, in a round without other work.
    console_ticks: int = 10

    # Rows of the ledgers that are reported.
    report_rows: tuple[int, ...] = (10_000_000, 30_000_000, 100_000_000)

    # Connections that are open at the same time, and how long they send.
    crowd_connections: int = 1000
    crowd_seconds: float = 10

    # How long each attack is, and the messages of a queue that is purged or deleted.
    attack_seconds: float = 12
    attack_messages: int = 300_000
    # How long each flood is.
    throttling_seconds: float = 3
    # More rounds than others have: they are short, and the tails are noisy.
    throttling_rounds: int = 9
    # How long sends go on before a node or the primary dies, and after it.
    cluster_gap_seconds: float = 10

    # Of the other numbers of an attack.
    attack_scale: float = 1

    @classmethod
    def quick(cls, folder: Path, peers: bool) -> Plan:
        """Small enough for a test that asks only whether the bench still runs."""
        return cls(
            folder,
            peers,
            rounds=1,
            warm_up=False,
            console_ticks=1,
            messages=400,
            shallow=500,
            deep=2_000,
            deep_messages=300,
            sdk_messages=20,
            client_messages=200,
            tasks_max=4,
            pairing_messages=100,
            pairing_parts=2,
            syphon_messages=1_000,
            report_rows=(60_000, 120_000),
            crowd_connections=20,
            crowd_seconds=0.5,
            attack_seconds=0.5,
            attack_messages=1_000,
            attack_scale=0.02,
            throttling_seconds=1,
            throttling_rounds=1,
            cluster_gap_seconds=1,
        )
