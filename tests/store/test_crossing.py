"""Between two stores nothing is lost, doubled or turned round, wherever it breaks off.

A mover breaks off before each of its calls in turn: what is not committed is gone, and
a mover of the same kind goes on with the files. Movers with one rule left out are
convicted by the same judge, or it would prove nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from tests.suites.crossing import (
    PAIRS,
    DoublingMover,
    LosingMover,
    Mover,
    Stores,
    TurningMover,
    problems,
)
from twinbus.store.base import Store
from twinbus.store.opening import open_store

# For each pair: more than one round moves.
ROWS = 3


class BrokenOff(Exception):
    """The process would be gone now."""


class Countdown:
    """Breaks off before the call with this number."""

    def __init__(self, number: int) -> None:
        self.left = number

    def tick(self) -> None:
        if self.left == 0:
            raise BrokenOff
        self.left -= 1


class Breaking:
    """A store that breaks off before some call of its methods."""

    def __init__(self, store: Store, countdown: Countdown) -> None:
        self.store = store
        self.countdown = countdown

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        def call(*args: object) -> object:
            self.countdown.tick()
            return method(*args)

        return method if name == "close" else call


def stores_of(root: Path) -> Stores:
    return Stores(lambda number: open_store(root / str(number)))


def breaking_stores(root: Path, countdown: Countdown) -> Stores:
    def open_one(number: int) -> Store:
        return cast("Store", Breaking(open_store(root / str(number)), countdown))

    return Stores(open_one)


def work(stores: Stores, mover: Mover) -> None:
    """Post rows while some are moved, then move the rest."""
    for number in range(ROWS):
        for pair in PAIRS:
            stores.post(pair, f"{pair[0]}/{pair[1]}/{number}".encode())
        mover.round(PAIRS[number % len(PAIRS)])
    mover.run()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of three stores before anything has crossed."""
    root = tmp_path_factory.mktemp("made") / "stores"
    stores = stores_of(root)
    stores.make_logs()
    stores.close()
    return root


Kind = Callable[[Stores], Mover]


def breaks_off(root: Path, kind: Kind, point: int) -> bool:
    """Work until that call; False if the work ends before."""
    stores = breaking_stores(root, Countdown(point))
    try:
        work(stores, kind(stores))
    except BrokenOff:
        return True
    finally:
        stores.close()
    return False


def verdict(root: Path, kind: Kind) -> list[str]:
    """Judge what is left, go on with it, and judge the end."""
    stores = stores_of(root)
    found = stores.problems(bytes.decode, ended=False)
    kind(stores).run()
    found += stores.problems(bytes.decode, ended=True)
    stores.close()
    return found


def verdicts(folder: Path, made: Path, kind: Kind, step: int = 1) -> list[list[str]]:
    """What is wrong after breaking off at each point, up to the end of the work."""
    found = []
    for point in count(0, step):
        root = folder / str(point)
        shutil.copytree(made, root)
        if not breaks_off(root, kind, point):
            break
        found.append(verdict(root, kind))
    return found


def test_a_mover_that_breaks_off_anywhere_loses_and_doubles_nothing(
    tmp_path: Path, made: Path
) -> None:
    found = verdicts(tmp_path, made, Mover)

    assert len(found) > 100
    assert [texts for texts in found if texts] == []


@pytest.mark.parametrize(
    ("kind", "charge"),
    [
        (DoublingMover, "applied twice"),
        (LosingMover, "missing"),
        (TurningMover, "out of order"),
    ],
)
def test_a_mover_without_one_of_the_rules_is_convicted(
    tmp_path: Path, made: Path, kind: type[Mover], charge: str
) -> None:
    found = verdicts(tmp_path, made, kind, step=3)

    charges = [text for texts in found for text in texts]
    assert charges
    assert all(charge in text for text in charges), charges


# -- the judge -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("applied", "found"),
    [
        ("abc", []),
        ("ab", ["missing: c"]),
        ("ac", ["missing: b"]),
        ("", ["missing: a, b, c"]),
        ("abbc", ["applied twice: b"]),
        ("abcab", ["applied twice: a, b"]),
        ("acb", ["out of order: b"]),
        ("cba", ["out of order: b, a"]),
        ("abcd", ["never posted: d"]),
        ("bb", ["missing: a, c", "applied twice: b"]),
    ],
)
def test_the_judge_names_each_kind_of_problem(
    applied: Sequence[str], found: list[str]
) -> None:
    assert problems("abc", applied) == found


@pytest.mark.parametrize(
    ("applied", "found"),
    [("", []), ("ab", []), ("ac", ["missing: b"]), ("ba", ["out of order: a"])],
)
def test_before_the_end_only_a_gap_is_missing(
    applied: Sequence[str], found: list[str]
) -> None:
    assert problems("abc", applied, ended=False) == found
