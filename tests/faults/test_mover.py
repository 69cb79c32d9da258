"""Messages that cross shards arrive once and in order, wherever the server is killed.

Three kills in a row each: at steps of the mover, at system calls of a shard, and after
some number of sends. `make campaigns` tries many more. Servers whose mover lacks
one of its rules are convicted by the same experiment.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import mover_points
from tests.faults.kills import Kill, Outcome, campaign, trials

# In the first start of a shard, its set-up makes up to 90 writes and few syncs.
KILLS = {
    "steps": [Kill("apply", 12), Kill("forget", 9), Kill("apply", 5)],
    "calls": [Kill("pwrite64", 150, 2), Kill("fdatasync", 12, 3), Kill("sends", 40)],
}
MORE_KILLS = [
    [Kill("pwrite64", 150, 2), Kill("fdatasync", 9, 2), Kill("sends", 40)],
    [Kill("fdatasync", 12, 3), Kill("pwrite64", 90, 0), Kill("sends", 90)],
    [Kill("pwrite64", 120, 1), Kill("fdatasync", 7, 1), Kill("forget", 7)],
]
BROKEN = {
    "doubling": ([Kill("forget", 10)], "applied twice"),
}
MORE_BROKEN = {
    "losing": ([Kill("apply", 10)], "missing"),
    "turning": ([Kill("apply", 10)], "out of order"),
}
CAMPAIGN = 60


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("mover")
    return trials(mover_points.__name__, folder, KILLS, BROKEN)


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


@pytest.mark.campaign
def test_servers_with_more_broken_movers_are_convicted(tmp_path: Path) -> None:
    found = trials(mover_points.__name__, tmp_path, {}, MORE_BROKEN)

    for mover, (_, charge) in MORE_BROKEN.items():
        assert any(charge in text for text in found[mover].problems), found[mover]


def _random_kill(chance: random.Random) -> Kill:
    kind = chance.choice(["apply", "forget", "sends", "pwrite64", "fdatasync"])
    when_max = {"pwrite64": 600, "fdatasync": 60, "sends": 300}.get(kind, 60)
    return Kill(
        kind, chance.randint(1, when_max), chance.randrange(mover_points.SHARDS)
    )


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_messages_cross_once_and_in_order_after_very_many_kills(tmp_path: Path) -> None:
    chance = random.Random(4)
    plans = [[_random_kill(chance) for _ in range(5)] for _ in range(CAMPAIGN)]

    bad, reached = campaign(mover_points.__name__, tmp_path, [*MORE_KILLS, *plans])

    assert bad == {}
    assert reached > CAMPAIGN * 3
