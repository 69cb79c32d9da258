"""What is kept for a sick shard comes home once and in order after kills.

Three kills in a row each: while sends are kept, and while they are brought home.
`make campaigns` tries many more, also while both happen at once. Servers whose spool
lacks one of its rules are convicted by the same experiment.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import spool_points
from tests.faults.kills import NEVER, Kill, Outcome, campaign, trials
from tests.faults.spool_points import AWAY, BACK, RETURNS, Round, not_refused

KILLS = {
    "keeping": [
        Round(Kill("spool", 20), AWAY),
        Round(Kill("fdatasync", 12, 0), AWAY),
        Round(Kill("sends", 40), BACK),
    ],
    "bringing home": [
        Round(Kill("sends", 80), AWAY),
        Round(Kill("apply", 5), BACK),
        Round(Kill("forget", 9), BACK),
    ],
}
# They have failed now and then; until that is understood the campaign has them.
UNCLEAR = [
    Round(Kill("apply", 8), RETURNS),
    Round(Kill("fdatasync", 9, 1), RETURNS),
]
BROKEN = {
    "early": ([Round(Kill("sends", 60), AWAY)], "missing"),
    "overtaking": ([Round(NEVER, RETURNS)], "out of order"),
}
CAMPAIGN = 40


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("spool")
    return trials(spool_points.__name__, folder, KILLS, BROKEN)


@pytest.mark.parametrize("name", KILLS)
def test_what_is_kept_for_a_shard_comes_home_once_and_in_order_after_kills(
    outcomes: dict[str, Outcome], name: str
) -> None:
    outcome = outcomes[name]

    assert outcome.problems == []
    assert outcome.reached == len(KILLS[name])
    assert outcome.arrived > 50


@pytest.mark.parametrize("spool", BROKEN)
def test_a_server_with_a_broken_spool_is_convicted(
    outcomes: dict[str, Outcome], spool: str
) -> None:
    _, charge = BROKEN[spool]

    assert any(charge in text for text in outcomes[spool].problems), outcomes[spool]


def test_a_shard_that_is_away_refuses_what_is_no_send(tmp_path: Path) -> None:
    assert not_refused(tmp_path, "right") == {}


def test_a_sick_shard_that_says_that_it_is_busy_is_convicted(tmp_path: Path) -> None:
    found = not_refused(tmp_path, "busy")

    assert "ServiceBusServerBusyError" in found["receive"]


def _random_round(chance: random.Random) -> Round:
    kind = chance.choice(["spool", "apply", "forget", "sends", "pwrite64", "fdatasync"])
    when_max = {"pwrite64": 300, "sends": 150}.get(kind, 60)
    kill = Kill(kind, chance.randint(1, when_max), chance.randrange(2))
    return Round(kill, chance.choice([AWAY, BACK, RETURNS]))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_what_is_kept_comes_home_after_very_many_kills(tmp_path: Path) -> None:
    chance = random.Random(4)
    plans = [[_random_round(chance) for _ in range(4)] for _ in range(CAMPAIGN)]

    bad, reached = campaign(spool_points.__name__, tmp_path, [UNCLEAR, *plans])

    assert bad == {}
    assert reached > CAMPAIGN
