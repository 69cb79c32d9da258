"""A program that uses the real store, for power-loss tests.

Run it as `python -m tests.faults.store_workload FOLDER NOTES FULL|NORMAL|OFF COMMITS`.
It sends, locks, completes, abandons, defers, schedules and dead-letters in groups as
the server does, and notes each fact that it acknowledges: a message, its lock, its
delivery count, that it is deferred, a session's state. `inspect` opens what is left
with the store itself and says which facts are there.
"""

from __future__ import annotations

import os
import random
import sys
from itertools import count
from pathlib import Path

from twinbus import limits
from twinbus.clock import Now
from twinbus.store.base import (
    DEAD_LETTER,
    FOREVER_MS,
    EndedLock,
    Lock,
    Stored,
    id_of,
)
from twinbus.store.records import Record
from twinbus.store.sqlite.packs import packs_in
from twinbus.store.sqlite.store import SqliteStore

# Below the recorded folder, so that making it is part of the run.
_FOLDER = "namespace"
# Small, so that a short run passes many checkpoints.
_CHECKPOINT_PAGES = 40
_NOW_MS = 1_700_000_000_000


def body_of(number: int) -> bytes:
    """The contents follow from the number in them, so that a reader can tell damage."""
    chance = random.Random(number)
    return number.to_bytes(4) + chance.randbytes(chance.choice((40, 900, 5000)))


def open_store(root: Path, synchronous: str, nonces: count[int]) -> SqliteStore:
    store = SqliteStore.open(root / _FOLDER, new_nonce=nonces.__next__)
    pragma = store._file.connection.execute
    pragma(f"PRAGMA synchronous={synchronous}")
    pragma(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}").fetchall()
    return store


class Workload:
    """Random commands in groups; facts are noted before and after each commit."""

    def __init__(self, store: SqliteStore, notes: int, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.notes = notes
        self.sent = count()
        self.states = count()
        self.state = ""
        self.held: list[tuple[Lock, Stored]] = []
        self.facts: list[str] = []
        store.begin()
        self.queue = store.insert_entity("queue", "q", "{}", _NOW_MS)
        store.commit()

    def step(self) -> None:
        """One group: what a turn of the server's loop does."""
        self.facts = []
        self.store.begin()
        for _ in range(self.chance.randint(1, 4)):
            self.chance.choices(
                (self._send, self._lock, self._settle, self._set_state), (3, 3, 5, 1)
            )[0]()
        if self.chance.random() < 0.5:
            self.store.seal()
        self._say("?")
        self.store.commit()
        self._say("!")
        if self.chance.random() < 0.1:
            # As when a shard is idle.
            self.store.checkpoint()

    def _say(self, mark: str) -> None:
        os.write(self.notes, f"{mark} {' '.join(self.facts)}\n".encode())

    def _send(self) -> None:
        due_ms = _NOW_MS + 1 if self.chance.random() < 0.1 else None
        records = [
            Record(b"", body_of(next(self.sent)), due_ms=due_ms)
            for _ in range(self.chance.randint(1, 4))
        ]
        first = self.store.append(self.queue, records, Now.at(_NOW_MS))
        for number in range(len(records)):
            self.facts.append(f"+m{id_of(self.queue, first + number)}")

    def _lock(self) -> None:
        limit = self.chance.randint(1, 5)
        nonce, found = self.store.lock(
            self.queue, limit, FOREVER_MS - 1, Now.at(_NOW_MS)
        )
        for message in found:
            self.held.append((Lock(message.id, nonce), message))
            self.facts.append(f"+l{message.id}/{nonce}")

    def _settle(self) -> None:
        if not self.held:
            return
        # The first ones leave a pack as it is, others make rows of it.
        place = self.chance.choice((0, self.chance.randrange(len(self.held))))
        lock, message = self.held.pop(place)
        if f"+l{lock.id}/{lock.nonce}" in self.facts:
            # In one group a fact may come or go, not both: notes have no order inside.
            self.held.append((lock, message))
            return
        self.facts.append(f"-l{lock.id}/{lock.nonce}")
        self.chance.choices(
            (self._complete, self._abandon, self._defer, self._bury), (5, 2, 1, 1)
        )[0](lock, message)

    def _complete(self, lock: Lock, message: Stored) -> None:
        assert self.store.complete([lock], Now.at(_NOW_MS)) == [True]
        self._gone(message)

    def _abandon(self, lock: Lock, message: Stored) -> None:
        (ended,) = self.store.release([lock], Now.at(_NOW_MS), count=True)
        self._counted(ended)

    def _defer(self, lock: Lock, message: Stored) -> None:
        ended = self.store.defer(lock, Now.at(_NOW_MS))
        assert ended is not None
        self._counted(ended)
        self.facts.append(f"+d{lock.id}")

    def _counted(self, ended: EndedLock) -> None:
        self.facts.append(f"+c{ended.id}/{ended.deliveries}")
        if ended.deliveries > 1:
            self.facts.append(f"-c{ended.id}/{ended.deliveries - 1}")

    def _bury(self, lock: Lock, message: Stored) -> None:
        """Dead-letter: out of one container and into another, or neither."""
        assert self.store.complete([lock], Now.at(_NOW_MS)) == [True]
        dead = self.queue + DEAD_LETTER
        record = Record(message.head, message.bare, origin=message.sequence)
        sequence = self.store.append(dead, [record], Now.at(_NOW_MS))
        buried = self.store.find(dead, [sequence])[0]
        self._gone(message)
        self.facts.append(f"+m{buried.id}")

    def _gone(self, message: Stored) -> None:
        self.facts.append(f"-m{message.id}")
        if message.deliveries:
            self.facts.append(f"-c{message.id}/{message.deliveries}")

    def _set_state(self) -> None:
        if any(fact.startswith("+s") for fact in self.facts):
            return
        if self.state:
            self.facts.append(f"-s{self.state}")
        self.state = str(next(self.states))
        state = self.state.encode()
        self.store.put_session_state(self.queue, "a", state, Now.at(_NOW_MS))
        self.facts.append(f"+s{self.state}")


def run(root: Path, notes: Path, synchronous: str, commits: int) -> None:
    limits.PACK_MESSAGES_MIN = 2
    nonces = count(1)
    store = open_store(root, synchronous, nonces)
    with notes.open("ab", buffering=0) as said:
        workload = Workload(store, said.fileno(), commits)
        for commit in range(commits):
            if commit and commit % (commits // 3) == 0:
                store.close()
                store = workload.store = open_store(root, synchronous, nonces)
            workload.step()
    store.close()


def inspect(root: Path) -> set[str]:
    """The facts that are there. Raises if the store is damaged or inconsistent."""
    if not (root / _FOLDER).exists():
        return set()
    store = SqliteStore.open(root / _FOLDER)
    try:
        return _facts(store)
    finally:
        store.close()


def _facts(store: SqliteStore) -> set[str]:
    query = store._file.connection.execute
    (verdict,) = query("PRAGMA quick_check(1)").fetchone()
    assert verdict == "ok", verdict
    facts = {f"l{lock}/{nonce}" for lock, nonce in query("SELECT id, nonce FROM lock")}
    packs = [*packs_in(store._file.connection, 0, FOREVER_MS)]
    for pack in packs:
        if pack.nonce is not None:
            ids = range(pack.first, pack.last + 1)
            facts |= {f"l{key}/{pack.nonce}" for key in ids}
    facts |= {f"s{bytes(state).decode()}" for (state,) in query(_STATES)}
    counted: dict[int, int] = {}
    packed = [(m.id, 0, 0, m.bare) for pack in packs for m in pack.messages()]
    for name, state, deliveries, bare in [*query(_MESSAGES), *packed]:
        number = int.from_bytes(bare[:4])
        assert bare == body_of(number), f"the contents of {name} are damaged"
        facts.add(f"m{name}")
        if state == 1:
            facts.add(f"d{name}")
        if deliveries:
            facts.add(f"c{name}/{deliveries}")
        counted[name >> 40] = counted.get(name >> 40, 0) + 1
    for row in store.entities():
        for container in (row.id, row.id + DEAD_LETTER):
            counts = store.counts(container)
            total = counts.active + counts.deferred + counts.scheduled
            assert total == counted.get(container, 0), "the counters are wrong"
    return facts


_STATES = "SELECT state FROM session_state"
_MESSAGES = (
    "SELECT id, state, deliveries, bare FROM message "
    "UNION ALL SELECT id, 2, deliveries, bare FROM scheduled"
)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
