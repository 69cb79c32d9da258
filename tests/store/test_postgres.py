"""The behaviour suite on PostgreSQL, and what only a shared database can do."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import psycopg
import pytest

from tests.postgres import shared_server
from tests.suites import (
    store_history,
)
from tests.suites.store_all import SUITES
from tests.suites.store_suite import Backend
from twinbus import limits
from twinbus.store.base import Store
from twinbus.store.opening import random_nonce
from twinbus.store.postgres.database import Database, schema_name
from twinbus.store.postgres.store import PostgresStore

TABLES = (
    "turn",
    "setting",
    "entity",
    "container",
    "message",
    "mark",
    "scheduled",
    "lock",
    "returned",
    "session",
    "session_state",
    "duplicate",
    "quarantine",
    "outbox",
    "outbox_target",
    "applied",
    "mirror",
)


class Shared:
    """A shard in a database."""

    def __init__(self, url: str, shard: int = 0) -> None:
        self.url = url
        self.shard = shard

    def open(self) -> Store:
        return self.node()

    def node(self) -> PostgresStore:
        database = Database(self.url, "contoso", self.shard)
        return PostgresStore.open(database, partial(random_nonce, self.shard))

    def run(self, text: str) -> list[tuple[object, ...]]:
        """Run a statement behind the back of the nodes."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            schema = schema_name("contoso", self.shard)
            connection.execute(
                "SELECT set_config('search_path', %s, false)", (f'"{schema}"',)
            )
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        self.run(f"TRUNCATE {', '.join(TABLES)}")
        self.run("UPDATE shard SET folded = 0")
        self.run("UPDATE last_entity SET id = 0")


class Nodes:
    """Several nodes that take turns, as one store: each turn is the next node's."""

    def __init__(self, shared: Shared, count: int) -> None:
        self._nodes = [shared.node() for _ in range(count)]
        self._turns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes[self._turns % len(self._nodes)], name)

    def begin(self) -> None:
        self._turns += 1
        self._nodes[self._turns % len(self._nodes)].begin()

    def close(self) -> None:
        for node in self._nodes:
            node.close()


class SharedByThree(Shared):
    """The same, used by three nodes."""

    def open(self) -> Store:
        return cast("Store", Nodes(self, 3))


@pytest.fixture(scope="module")
def database() -> Shared:
    shared = Shared(shared_server().new_database())
    shared.node().close()
    return shared


@pytest.fixture
def backend(database: Shared) -> Backend:
    database.empty()
    return database


# Each finds rows that break a rule of the schema. Counters are in the log of turns.
BROKEN = {
    "a lock without a message": """
        SELECT id FROM lock WHERE id NOT IN (SELECT id FROM message)""",
    "a mark without a message": """
        SELECT id FROM mark WHERE id NOT IN (SELECT id FROM message)""",
    "a returned message that is not ready": """
        SELECT id FROM returned WHERE id NOT IN (SELECT id FROM kept WHERE state = 0)
        OR id IN (SELECT id FROM lock)""",
    "a lock that waits for a session which is not held": """
        SELECT id FROM lock WHERE until_ms = 1::bigint << 62
        AND nonce NOT IN (SELECT nonce FROM session WHERE nonce IS NOT NULL)""",
    "a session that was not counted": """
        SELECT container, name FROM session WHERE
        (active, messages) <> (
            (SELECT count(*) FROM kept
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
    "a gap in the log of turns": """
        SELECT number FROM turn WHERE number > (SELECT min(number) FROM turn)
        AND number - 1 NOT IN (SELECT number FROM turn)""",
}


def check_rows(database: Shared) -> None:
    """Nothing is left over, and what is counted twice agrees."""
    for rule, query in BROKEN.items():
        assert database.run(query) == [], rule


globals().update(SUITES)


@pytest.fixture(params=[256, 3])
def fold_turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is folded after so many turns, and old ones are forgotten at once."""
    monkeypatch.setattr(limits, "PG_FOLD_TURNS", request.param)
    monkeypatch.setattr(limits, "PG_LOG_KEPT_MS", 0)


@pytest.mark.usefixtures("fold_turns")
@pytest.mark.parametrize("kind", [Shared, SharedByThree])
def test_histories_of_seeds_are_those_of_the_model(
    database: Shared, kind: type[Shared]
) -> None:
    for seed in range(4):
        database.empty()
        store_history.walk(kind(database.url), seed, steps=150)
        check_rows(database)


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_many_more_histories_are_those_of_the_model(database: Shared) -> None:
    for seed in range(1_000, 1_300):
        database.empty()
        store_history.walk(SharedByThree(database.url), seed, steps=300)
        check_rows(database)
