"""What crosses from one store to another: a judge, a small mover, and broken movers.

Owns `problems`, which says what is wrong with what arrived. The stores here keep a log
beside the outbox: the source appends each body to a queue in the transaction that posts
it, the target in the one that applies it. So both logs are what a crash left, and the
judge needs no memory of the run. Knows no database and no server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from twinbus.clock import Now
from twinbus.store.base import (
    Posted,
    Store,
)
from twinbus.store.records import Record

NOW = Now.at(1_000)
ALL = 100_000
# So few that a short run has several rounds.
ROWS_MAX = 2
BYTES_MAX = 8_000
# Two sources have the same target, one source has two targets, and one store is both.
PAIRS = ((1, 3), (2, 3), (1, 2))
STORES = (1, 2, 3)


def problems(
    posted: Sequence[str], applied: Sequence[str], *, ended: bool = True
) -> list[str]:
    """What is wrong with the rows of one source that one target has applied.

    Both are in their order, and each row has a name of its own. Until the run has
    `ended`, the last rows may still be on their way; a gap is wrong at any time.
    """
    times = Counter(applied)
    at = {name: number for number, name in enumerate(posted)}
    known = [at[name] for name in dict.fromkeys(applied) if name in at]
    until = len(posted) if ended else max(known, default=-1) + 1
    found = {
        "missing": [name for name in posted[:until] if name not in times],
        "applied twice": [name for name in times if times[name] > 1],
        "never posted": [name for name in times if name not in at],
        "out of order": [
            posted[number] for before, number in pairwise(known) if number < before
        ],
    }
    return [f"{what}: {', '.join(names)}" for what, names in found.items() if names]


# -- stores ----------------------------------------------------------------------------


class Stores:
    """Three stores, with a log for each pair in the source and in the target."""

    def __init__(self, open_one: Callable[[int], Store]) -> None:
        self.all = {number: open_one(number) for number in STORES}
        self._logs: dict[tuple[int, str], int] = {}

    def close(self) -> None:
        for store in self.all.values():
            store.close()

    def make_logs(self) -> None:
        for number, store in self.all.items():
            store.begin()
            for source, target in PAIRS:
                if number in (source, target):
                    store.insert_entity("queue", f"{source} to {target}", "{}", 0)
            store.commit()

    def are_made(self) -> bool:
        return all(store.entities() for store in self.all.values())

    def log(self, number: int, pair: tuple[int, int]) -> int:
        """The queue in which a store notes what crosses."""
        if not self._logs:
            for at, store in self.all.items():
                self._logs |= {(at, row.key): row.id for row in store.entities()}
        return self._logs[number, f"{pair[0]} to {pair[1]}"]

    def post(self, pair: tuple[int, int], body: bytes) -> None:
        source, target = pair
        store, log = self.all[source], self.log(source, pair)
        store.begin()
        store.append(log, [Record(b"", body)], NOW)
        store.post(target, "send", body)
        store.commit()

    def noted(self, number: int, pair: tuple[int, int]) -> list[bytes]:
        """What a store has noted of a pair, in order."""
        store, log = self.all[number], self.log(number, pair)
        store.begin()
        messages = store.peek(log, 1, ALL, NOW, None)
        store.rollback()
        return [message.bare for message in messages]

    def problems(self, name_of: Callable[[bytes], str], *, ended: bool) -> list[str]:
        """What is wrong with what has crossed."""
        found = []
        for pair in PAIRS:
            source, target = pair
            posted = [name_of(body) for body in self.noted(source, pair)]
            applied = [name_of(body) for body in self.noted(target, pair)]
            wrong = problems(posted, applied, ended=ended)
            found += [f"{source} to {target}: {text}" for text in wrong]
            left = self.all[source].outbox().get(target)
            if ended and left is not None and left.rows:
                found.append(f"{source} to {target}: {left.rows} rows were left")
        return found


# -- movers ----------------------------------------------------------------------------


class Mover:
    """Moves rows as it should be done."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores

    def run(self) -> None:
        """Move everything."""
        for pair in PAIRS:
            while self.round(pair):
                pass

    def round(self, pair: tuple[int, int]) -> bool:
        """Move some rows; False if none waits."""
        rows = self.read(pair)
        if rows:
            self.apply(pair, rows)
            self.forget(pair, rows[-1].number)
        return bool(rows)

    def read(self, pair: tuple[int, int]) -> list[Posted]:
        source, target = pair
        store = self.stores.all[source]
        store.begin()
        rows = store.posted(target, ROWS_MAX, BYTES_MAX)
        store.rollback()
        return rows

    def apply(self, pair: tuple[int, int], rows: Sequence[Posted]) -> None:
        source, target = pair
        store = self.stores.all[target]
        store.begin()
        new = self.choose(rows, store.applied(source))
        if new:
            log = self.stores.log(target, pair)
            store.append(log, [Record(b"", row.body) for row in new], NOW)
        if rows[-1].number > store.applied(source):
            store.put_applied(source, rows[-1].number)
        store.commit()

    def choose(self, rows: Iterable[Posted], applied: int) -> list[Posted]:
        """Those that are not applied yet."""
        return [row for row in rows if row.number > applied]

    def forget(self, pair: tuple[int, int], until: int) -> None:
        source, target = pair
        store = self.stores.all[source]
        store.begin()
        store.forget_posted(target, until)
        store.commit()


class DoublingMover(Mover):
    """Does not ask what was applied."""

    def choose(self, rows: Iterable[Posted], applied: int) -> list[Posted]:
        return list(rows)


class LosingMover(Mover):
    """Forgets rows before the target has committed them."""

    def round(self, pair: tuple[int, int]) -> bool:
        rows = self.read(pair)
        if rows:
            self.forget(pair, rows[-1].number)
            self.apply(pair, rows)
        return bool(rows)


class TurningMover(Mover):
    """Applies the rows of a round in the wrong order."""

    def choose(self, rows: Iterable[Posted], applied: int) -> list[Posted]:
        return super().choose(rows, applied)[::-1]


MOVERS: dict[str, type[Mover]] = {
    "right": Mover,
    "doubling": DoublingMover,
    "losing": LosingMover,
    "turning": TurningMover,
}
