"""The behaviour suite on a store that is one of several shards.

What can matter there: nonces have the number of the shard in their upper bits, and rows
for other shards wait in the outbox. So these are the suites about locks, sessions and
transactions, on shard 3 of 4; the others never see a nonce (`test_sqlite.py` has them
all). Histories are those of the last shard too: it has the largest nonces.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.test_sqlite import check_rows
from tests.suites import (
    store_history,
    store_life,
    store_messages,
    store_savepoints,
    store_sessions,
    store_settling,
    store_times,
)
from tests.suites.store_suite import LATER, NOW, Backend, StoreSuite, at, record
from twinbus import limits
from twinbus.store.base import EntityRow, Lock, Store, shard_of_nonce
from twinbus.store.opening import open_store

SHARD, LAST = 3, limits.SHARDS_MAX - 1
# No suite knows these shards.
_SOURCE, _TARGETS = 40, (0, 41)
_ELSEWHERE = EntityRow(4, "queue", "elsewhere", "{}", NOW, NOW)


class ShardFolder:
    """A data folder of a shard; nothing is in it yet."""

    def __init__(self, path: Path, shard: int) -> None:
        self.path = path
        self.shard = shard

    def open(self) -> Store:
        return open_store(self.path, None, self.shard)


class BusyShardFolder(ShardFolder):
    """A data folder of a shard that has already exchanged rows with others."""

    def open(self) -> Store:
        is_new = not self.path.exists()
        store = super().open()
        if is_new:
            store.begin()
            for target in _TARGETS:
                for body in (b"first", b"second", b"third"):
                    store.post(target, "letter", body)
                store.forget_posted(target, 1)
            store.put_applied(_SOURCE, 5)
            store.mirror(_SOURCE, _ELSEWHERE)
            store.commit()
        return store


@pytest.fixture
def shard() -> int:
    return SHARD


@pytest.fixture
def backend(tmp_path: Path, shard: int) -> Backend:
    return BusyShardFolder(tmp_path / "data", shard)


TestTransactions = store_life.TransactionSuite
TestSavepoints = store_savepoints.SavepointSuite
TestLock = store_messages.LockSuite
TestHold = store_settling.HoldSuite
TestComplete = store_settling.CompleteSuite
TestRelease = store_settling.ReleaseSuite
TestDefer = store_settling.DeferSuite
TestEndLocks = store_times.EndLocksSuite
TestAccept = store_sessions.AcceptSuite
TestSessionLock = store_sessions.SessionLockSuite
TestSessionMessages = store_sessions.SessionMessageSuite


class TestNonces(StoreSuite):
    """Each way to lock something says which shard it was."""

    @pytest.mark.parametrize("shard", [SHARD, LAST])
    def test_every_nonce_names_its_shard(
        self, store: Store, queue: int, other: int, shard: int
    ) -> None:
        store.append(queue, [record("a")], at(NOW))
        store.append(other, [record("b", session="s")], at(NOW))

        nonce, (message,) = store.lock(queue, 1, LATER, at(NOW))
        assert shard_of_nonce(nonce) == shard
        assert store.defer(Lock(message.id, nonce), at(NOW))
        nonce = store.lock_deferred([message.id], LATER, at(NOW))
        assert shard_of_nonce(nonce) == shard
        grant = store.accept_session(other, None, LATER, at(NOW))
        assert grant is not None
        assert shard_of_nonce(grant.nonce) == shard
        nonce, _ = store.lock(other, 1, LATER, at(NOW), grant)
        assert nonce == grant.nonce


@pytest.mark.parametrize("shard", [SHARD, LAST])
def test_histories_of_a_shard_are_those_of_the_model(
    tmp_path: Path, shard: int
) -> None:
    for seed in range(60, 70):
        folder = ShardFolder(tmp_path / str(seed), shard)
        store_history.walk(folder, seed, steps=150)
        check_rows(folder.path)
