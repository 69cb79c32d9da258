"""The behaviour suite on SQLite, and what only a SQLite file can do."""

from __future__ import annotations

import sqlite3
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.suites import (
    store_history,
)
from tests.suites.store_all import SUITES
from tests.suites.store_suite import Backend
from twinbus.clock import Now
from twinbus.store.base import Store
from twinbus.store.records import Record
from twinbus.store.sqlite.file import FILE_NAME
from twinbus.store.sqlite.store import SqliteStore


class Folder:
    """A data folder of a SQLite store."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> Store:
        return SqliteStore.open(self.path)


# Each finds rows that break a rule of the schema.
BROKEN = {
    "a lock without a message": """
        SELECT id FROM lock WHERE id NOT IN (SELECT id FROM message)""",
    "a message that is ready at its head, but not so": """
        SELECT id FROM returned WHERE id NOT IN (
            SELECT message.id FROM message
            JOIN container ON container.id = message.id >> 40
            WHERE state = 0 AND message.id & ((1 << 40) - 1) <= container.head
        ) OR id IN (SELECT id FROM lock)""",
    "a lock that waits for a session which is not held": """
        SELECT id FROM lock WHERE until_ms = 1 << 62
        AND nonce NOT IN (SELECT nonce FROM session WHERE nonce IS NOT NULL)""",
    "a session that was not counted": """
        SELECT container, name FROM session WHERE
        (active, messages) <> (
            (SELECT count(*) FROM message
             WHERE session = name AND id >> 40 = container AND state = 0),
            (SELECT count(*) FROM message
             WHERE session = name AND id >> 40 = container)
            + (SELECT count(*) FROM scheduled
               WHERE session = name AND id >> 40 = container)
        )""",
    "a session for nothing": """
        SELECT container, name FROM session WHERE messages = 0 AND nonce IS NULL""",
    "a head of a session that is not held": """
        SELECT container, name FROM session WHERE nonce IS NULL AND head > 0""",
    "held sessions that were not counted": """
        SELECT id FROM container WHERE held_sessions <> (
            SELECT count(*) FROM session WHERE container = id AND nonce IS NOT NULL)""",
    "a lock of a pack that is not there": """
        SELECT last FROM pack_lock WHERE last NOT IN (SELECT last FROM pack)""",
    "a lock of more or less than the rest of a pack": """
        SELECT last FROM pack_lock JOIN pack USING (last)
        WHERE pack_lock.first < pack.first OR pack_lock.first > last""",
    "a pack with more or fewer sizes than messages": """
        SELECT last FROM pack WHERE length(sizes) <> 4 * (last - first + 1)""",
    "a pack that is locked above its head, or not locked below it": """
        SELECT last FROM pack JOIN container ON container.id = last >> 40
        WHERE (last & ((1 << 40) - 1) <= container.head) <>
            (last IN (SELECT last FROM pack_lock))
        OR (first & ((1 << 40) - 1) <= container.head) <>
            (last & ((1 << 40) - 1) <= container.head)""",
    "a message in a pack and in a row": """
        SELECT id FROM message JOIN pack ON id BETWEEN first AND last""",
    "a message in two packs": """
        SELECT a.last FROM pack AS a JOIN pack AS b
        ON a.last < b.last AND b.first <= a.last""",
    "rows for another store that were not counted": """
        SELECT target FROM outbox_target AS counted WHERE (rows, size_bytes) <> (
            SELECT count(*), coalesce(sum(length(body)), 0) FROM outbox
            WHERE outbox.target = counted.target)
        UNION SELECT target FROM outbox
        WHERE target NOT IN (SELECT target FROM outbox_target)""",
    "a gap in the numbers for another store": """
        SELECT target FROM outbox_target AS counted WHERE rows > 0
        AND (last_number - rows + 1, last_number) <> (
            SELECT min(number), max(number) FROM outbox
            WHERE outbox.target = counted.target)""",
}


def check_rows(folder: Path) -> None:
    """Nothing is left over, and what is counted twice agrees."""
    connection = sqlite3.connect(folder / FILE_NAME)
    for rule, query in BROKEN.items():
        assert connection.execute(query).fetchall() == [], rule
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Folder(tmp_path / "data")


globals().update(SUITES)


def test_histories_of_seeds_are_those_of_the_model(tmp_path: Path) -> None:
    for seed in range(60):
        folder = Folder(tmp_path / str(seed))
        store_history.walk(folder, seed, steps=150)
        check_rows(folder.path)


def test_histories_of_hypothesis_are_those_of_the_model(tmp_path: Path) -> None:
    folders = (Folder(tmp_path / str(number)) for number in count())
    run_state_machine_as_test(
        store_history.machine(lambda: next(folders)),
        settings=settings(max_examples=25, stateful_step_count=40),
    )


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_many_more_histories_are_those_of_the_model() -> None:
    for seed in range(1_000, 3_000):
        with TemporaryDirectory() as folder:
            store_history.walk(Folder(Path(folder)), seed, steps=300)
            check_rows(Path(folder))


# -- counters against rows -------------------------------------------------------------


def filled(folder: Path, messages: int) -> tuple[SqliteStore, int]:
    """A store with so many active messages in one container, one more scheduled."""
    store = SqliteStore.open(folder)
    store.begin()
    container = store.insert_entity("queue", "q", "{}", 0)
    # Each in a row of its own, since it was delivered before.
    records = [Record(b"head", b"bare", deliveries=1)] * messages
    store.append(container, records, Now.at(0))
    store.append(container, [Record(b"head", b"bare", due_ms=10)], Now.at(0))
    store.commit()
    return store, container


def behind_its_back(folder: Path, statement: str) -> None:
    """Change rows as no code of the store does."""
    other = sqlite3.connect(folder / FILE_NAME)
    with other:
        other.execute(statement)
    other.close()


def audited(store: SqliteStore, container: int, rows_max: int = 100) -> str | None:
    store.begin()
    wrong = store.audit(container, rows_max)
    store.commit()
    return wrong


@pytest.mark.parametrize(
    ("statement", "right"),
    [
        ("DELETE FROM message WHERE id & 1 = 0", (3, 0, 1, 32)),
        ("UPDATE message SET state = 1 WHERE id & 1 = 0", (3, 2, 1, 48)),
        ("DELETE FROM scheduled", (5, 0, 0, 40)),
        ("UPDATE message SET bare = x'00' WHERE id & 1 = 0", (5, 0, 1, 42)),
    ],
)
def test_an_audit_sets_wrong_counters_right(
    tmp_path: Path, statement: str, right: tuple[int, ...]
) -> None:
    store, container = filled(tmp_path, 5)
    assert audited(store, container) is None

    behind_its_back(tmp_path, statement)

    wrong = audited(store, container)
    assert wrong is not None
    assert wrong.startswith(
        "the counters had 5 active, 0 deferred, 1 scheduled with 48"
    )
    assert store.counts(container)[:4] == right
    assert store.stored_bytes() == right[3]
    assert audited(store, container) is None
    store.close()
    # It is on disk, too.
    store = SqliteStore.open(tmp_path)
    assert store.counts(container)[:4] == right
    store.close()


def test_an_audit_of_a_deep_container_looks_at_some_rows(tmp_path: Path) -> None:
    store, container = filled(tmp_path, 50)
    behind_its_back(tmp_path, "DELETE FROM message WHERE id & 1 = 0")

    # At least 20 are there, as counted.
    assert audited(store, container, rows_max=20) is None
    behind_its_back(tmp_path, "UPDATE container SET active = 10 WHERE active > 0")
    store.close()
    store = SqliteStore.open(tmp_path)

    wrong = audited(store, container, rows_max=20)
    assert wrong is not None
    assert wrong.startswith("the counters had 10 active")
    assert store.counts(container).active == 25
    store.close()


def test_a_long_statement_reports_that_it_moves(tmp_path: Path) -> None:
    store, container = filled(tmp_path, 20_000)
    reports: list[None] = []
    store.on_progress(lambda: reports.append(None))
    store.begin()

    assert store.purge(container) == 20_001

    store.rollback()
    assert len(reports) > 10
    store.close()
