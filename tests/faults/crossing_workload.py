"""A program that moves rows between real stores, for power-loss and kill tests.

Run it as
`python -m tests.faults.crossing_workload FOLDER NOTES FULL|NORMAL|OFF COMMITS MOVER`.
It posts rows between three stores in one folder while a mover moves them, and notes
each row that it acknowledges. `inspect` opens what is left, lets the mover go on to the
end, and says which rows have arrived; the judge of `suites/crossing.py` raises if one
is missing, doubled or out of order.
"""

from __future__ import annotations

import os
import random
import sys
from functools import partial
from pathlib import Path

from tests.faults.powerloss import Inspect
from tests.faults.store_workload import body_of
from tests.suites.crossing import MOVERS, PAIRS, STORES, Stores
from twinbus.store.sqlite.store import SqliteStore

# Small, so that a short run passes many checkpoints.
_CHECKPOINT_PAGES = 20
# A fact of its own: before it, there may be any part of the stores.
_MADE = "made"
_TURNS = 3


def _open(root: Path, synchronous: str, number: int) -> SqliteStore:
    store = SqliteStore.open(root / str(number))
    pragma = store._file.connection.execute
    pragma(f"PRAGMA synchronous={synchronous}")
    pragma(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}").fetchall()
    return store


def _name_of(body: bytes) -> str:
    number = int.from_bytes(body[:4])
    assert body == body_of(number), f"the body of {number} is damaged"
    return str(number)


def run(root: Path, notes: Path, synchronous: str, commits: int, mover: str) -> None:
    chance = random.Random(commits)
    open_one = partial(_open, root, synchronous)
    with notes.open("ab", buffering=0) as said:
        say = partial(os.write, said.fileno())
        stores = Stores(open_one)
        say(f"? +{_MADE}\n".encode())
        stores.make_logs()
        say(f"! +{_MADE}\n".encode())
        for number in range(commits):
            if number and number % (commits // _TURNS) == 0:
                stores.close()
                stores = Stores(open_one)
            say(f"? +{number}\n".encode())
            stores.post(chance.choice(PAIRS), body_of(number))
            say(f"! +{number}\n".encode())
            MOVERS[mover](stores).round(chance.choice(PAIRS))
        MOVERS[mover](stores).run()
    stores.close()


def inspect_with(mover: str) -> Inspect:
    """An `inspect` that goes on with this mover."""
    return partial(_inspect, mover)


def _inspect(mover: str, root: Path) -> set[str]:
    """The rows that have arrived. Raises if a store or what crossed is not sound."""
    if not all((root / str(number)).exists() for number in STORES):
        return set()
    stores = Stores(partial(_open, root, "OFF"))
    try:
        return _arrived(stores, mover) if stores.are_made() else set()
    finally:
        stores.close()


def _arrived(stores: Stores, mover: str) -> set[str]:
    wrong = stores.problems(_name_of, ended=False)
    MOVERS[mover](stores).run()
    wrong += stores.problems(_name_of, ended=True)
    assert not wrong, "; ".join(wrong)
    return {_MADE} | {
        _name_of(body) for pair in PAIRS for body in stores.noted(pair[1], pair)
    }


if __name__ == "__main__":
    _folder, _notes, _synchronous, _commits, _mover = sys.argv[1:]
    run(Path(_folder), Path(_notes), _synchronous, int(_commits), _mover)
