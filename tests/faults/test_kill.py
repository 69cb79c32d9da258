"""A server that is killed at any write point loses nothing and brings nothing back.

The official client sends, receives and settles meanwhile, and the history checker
decides. `make campaigns` tries many more points of each kind.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.killpoints import Outcome, Point, census, experiment, points

# While the data folder is being made, in the middle of the work, and late.
POINTS = [
    Point("unlink", 1),
    Point("fdatasync", 50),
    Point("pwrite64", 500),
    Point("write", 20),
]
# Those are in the campaign, beside the points that the census gives.
MORE_POINTS = [
    Point("ftruncate", 1),
    Point("fdatasync", 4),
    Point("pwrite64", 150),
    Point("write", 120),
]
# The clients wait more than they work, so several experiments fit on one core.
AT_ONCE = 4


def _run_all(folder: Path, chosen: list[Point]) -> dict[Point, Outcome]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda point: experiment(folder / str(point), point), chosen)
        outcomes = dict(zip(chosen, found, strict=True))
    for outcome in outcomes.values():
        print(outcome.text())
    return outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[Point, Outcome]:
    return _run_all(tmp_path_factory.mktemp("kill"), POINTS)


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_nothing_is_lost_when_the_server_is_killed(
    outcomes: dict[Point, Outcome], point: Point
) -> None:
    outcome = outcomes[point]

    assert outcome.reached, f"the story never came to {point}"
    assert not outcome.broken, outcome.text()


def test_a_server_that_forgets_everything_is_convicted(tmp_path: Path) -> None:
    point = Point("fdatasync", 50)

    outcome = experiment(tmp_path / "forgetful", point, forget=True)

    assert outcome.broken.get("lost", 0) > 0, outcome.text()


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_nothing_is_lost_at_very_many_points(tmp_path: Path) -> None:
    chosen = points(census(tmp_path / "census"), per_call=18)
    assert len(chosen) >= 50

    found = _run_all(tmp_path, list(dict.fromkeys([*MORE_POINTS, *chosen])))

    bad = [outcome.text() for outcome in found.values() if outcome.broken]
    assert not bad, "\n".join(bad)
    reached = sum(outcome.reached for outcome in found.values())
    assert reached >= 50, f"only {reached} of {len(found)} points came"
