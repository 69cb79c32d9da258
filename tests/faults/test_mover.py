"""Messages that cross shards arrive once and in order, wherever the server is killed.

Three kills in a row each: at steps of the mover, at system calls of one shard, and
after some number of sends. `make campaigns` tries many more. Servers whose mover lacks
one of its rules are convicted by the same experiment.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.mover_points import SHARDS, Kill, Outcome, experiment

# In the first start of a shard, its set-up makes up to 90 writes and few syncs.
KILLS = {
    "steps": [Kill("apply", 12), Kill("forget", 9), Kill("apply", 5)],
    "target": [Kill("pwrite64", 150, 2), Kill("fdatasync", 9, 2), Kill("sends", 40)],
    "sources": [Kill("fdatasync", 12, 3), Kill("pwrite64", 90, 0), Kill("sends", 90)],
    "both": [Kill("pwrite64", 120, 1), Kill("fdatasync", 7, 1), Kill("forget", 7)],
}
BROKEN = {
    "doubling": ([Kill("forget", 10)], "applied twice"),
    "losing": ([Kill("apply", 10)], "missing"),
    "turning": ([Kill("apply", 10)], "out of order"),
}
# The clients wait more than they work, so several experiments fit on one core.
AT_ONCE = 4
CAMPAIGN = 60


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("mover")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {
            name: pool.submit(experiment, folder / name, "right", kills)
            for name, kills in KILLS.items()
        } | {
            mover: pool.submit(experiment, folder / mover, mover, kills)
            for mover, (kills, _) in BROKEN.items()
        }
    return {name: each.result() for name, each in running.items()}


@pytest.mark.parametrize("name", KILLS)
def test_messages_cross_once_and_in_order_after_kills(
    outcomes: dict[str, Outcome], name: str
) -> None:
    outcome = outcomes[name]

    assert outcome.problems == []
    assert outcome.reached == len(KILLS[name])
    assert outcome.arrived > 50


@pytest.mark.parametrize("mover", BROKEN)
def test_a_server_with_a_broken_mover_is_convicted(
    outcomes: dict[str, Outcome], mover: str
) -> None:
    _, charge = BROKEN[mover]

    assert any(charge in text for text in outcomes[mover].problems), outcomes[mover]


def _random_kill(chance: random.Random) -> Kill:
    kind = chance.choice(["apply", "forget", "sends", "pwrite64", "fdatasync"])
    when_max = {"pwrite64": 600, "fdatasync": 60, "sends": 300}.get(kind, 60)
    return Kill(kind, chance.randint(1, when_max), chance.randrange(SHARDS))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_messages_cross_once_and_in_order_after_very_many_kills(tmp_path: Path) -> None:
    chance = random.Random(4)
    plans = [[_random_kill(chance) for _ in range(5)] for _ in range(CAMPAIGN)]
    names = [" ".join(map(str, plan)) for plan in plans]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(
            pool.map(
                lambda number: experiment(
                    tmp_path / str(number), "right", plans[number]
                ),
                range(CAMPAIGN),
            )
        )

    reached = sum(outcome.reached for outcome in found)
    print(f"{reached} kills, {sum(outcome.arrived for outcome in found)} messages")
    bad = {name: each for name, each in zip(names, found, strict=True) if each.problems}
    assert bad == {}
    assert reached > CAMPAIGN * 3
