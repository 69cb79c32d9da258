"""`twinbus namespace copy`: from a folder into PostgreSQL, with all that it holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run import Run
from tests.postgres import shared_server
from tests.store.test_postgres import Shared
from tests.suites.store_suite import bodies, record, records
from twinbus.clock import Now
from twinbus.store.base import Lock, Store
from twinbus.store.sqlite.store import SqliteStore

# The steady clock of the folder is a minute behind.
WALL, STEADY = 1_700_000_100_000, 1_700_000_040_000
NOW = Now(STEADY, WALL)
UNTIL = STEADY + 30_000


@pytest.fixture
def database() -> Shared:
    return Shared(shared_server().new_database())


def fill(store: Store) -> tuple[int, Lock]:
    """A queue with a message in every state; returns it, and a lock that is held."""
    store.begin()
    queue = store.insert_entity("queue", "orders", '{"a": 1}', WALL)
    gone = store.insert_entity("queue", "gone", "{}", WALL)
    store.delete_entity(gone)
    store.append(queue, records("abcd", deliveries=2), NOW)
    store.append(
        queue, [record("s", session="s", expires_ms=WALL + 9), *records("e")], NOW
    )
    store.append(queue, [record("p", due_ms=WALL + 5)], NOW)
    nonce, [first, second, third] = store.lock(queue, 3, UNTIL, NOW)
    store.defer(Lock(second.id, nonce), NOW)
    store.release([Lock(third.id, nonce)], NOW, count=True)
    store.accept_session(queue, "s", UNTIL, NOW)
    store.put_session_state(queue, "s", b"state", NOW)
    store.remember(queue, ["id"], UNTIL, NOW)
    store.put_setting("name", "value")
    store.put_setting("clock", f"{STEADY} {WALL}")
    store.commit()
    return queue, Lock(first.id, nonce)


def copy(run: Run, data: Path, url: str) -> dict[str, object]:
    result = run("namespace", "copy", "--from", data, "--to", url, "--json")
    assert result.code == 0, result.err
    found: dict[str, object] = json.loads(result.out)
    return found


def test_everything_is_there_after_a_copy(
    run: Run, tmp_path: Path, database: Shared
) -> None:
    store = SqliteStore.open(tmp_path / "contoso")
    queue, lock = fill(store)
    counts, entities = store.counts(queue), store.entities()
    store.begin()
    peeked = store.peek(queue, 1, 100, NOW, None)
    store.rollback()
    store.close()

    told = copy(run, tmp_path, database.url)

    assert told == {"copied": "contoso", "entities": 1, "messages": 7, "rows": 17}
    node = database.node()
    # In the database steady time is wall time.
    now = Now.at(WALL)
    node.begin()
    assert node.entities() == entities
    assert node.counts(queue) == counts
    assert node.peek(queue, 1, 100, now, None) == peeked
    assert node.held(lock, Now.at(WALL + 29_999)) is not None
    assert node.held(lock, Now.at(WALL + 30_000)) is None
    assert node.remember(queue, ["id"], WALL, Now.at(WALL + 29_999)) == [False]
    assert node.session_state(queue, "s") == b"state"
    assert node.setting("name") == "value"
    assert node.setting("clock") is None
    assert bodies(node.lock(queue, 10, WALL + 1_000, now)[1]) == "cdse"
    assert node.insert_entity("queue", "next", "{}", WALL) == queue + 8
    node.rollback()
    node.close()


def test_messages_in_packs_and_their_locks_are_copied(
    run: Run, tmp_path: Path, database: Shared
) -> None:
    store = SqliteStore.open(tmp_path / "contoso")
    store.begin()
    queue = store.insert_entity("queue", "orders", "{}", WALL)
    store.append(queue, records("a"), NOW)
    store.append(queue, records("bcdefghijklm"), NOW)
    nonce, messages = store.lock(queue, 7, UNTIL, NOW)
    held = [Lock(message.id, nonce) for message in messages]
    assert store.complete(held[:3], NOW) == [True] * 3
    store.put_setting("clock", f"{STEADY} {WALL}")
    counts = store.counts(queue)
    store.commit()
    store.close()

    told = copy(run, tmp_path, database.url)

    assert told["messages"] == 10
    node, now = database.node(), Now.at(WALL)
    node.begin()
    assert node.counts(queue) == counts
    assert bodies(node.peek(queue, 1, 100, now, None)) == "defghijklm"
    assert bodies(node.lock(queue, 100, WALL + 1_000, now)[1]) == "hijklm"
    assert node.complete(held, now) == [False] * 3 + [True] * 4
    node.rollback()
    node.close()


def test_a_namespace_that_is_there_is_left_alone(
    run: Run, tmp_path: Path, database: Shared
) -> None:
    store = SqliteStore.open(tmp_path / "contoso")
    fill(store)
    store.close()
    copy(run, tmp_path, database.url)

    result = run("namespace", "copy", "--from", tmp_path, "--to", database.url)

    assert result.code == 2
    assert "There is a namespace contoso in" in result.err


def test_a_folder_that_a_server_has_is_refused(
    run: Run, tmp_path: Path, database: Shared
) -> None:
    store = SqliteStore.open(tmp_path / "contoso")

    result = run("namespace", "copy", "--from", tmp_path, "--to", database.url)

    assert result.code == 2
    assert "in use by process" in result.err
    store.close()


def test_a_row_that_cannot_be_kept_leaves_the_database_empty(
    run: Run, tmp_path: Path, database: Shared
) -> None:
    store = SqliteStore.open(tmp_path / "contoso")
    queue, _ = fill(store)
    store.begin()
    store.append(queue, [record("x", session="s\0")], NOW)
    store.commit()
    store.close()

    result = run("namespace", "copy", "--from", tmp_path, "--to", database.url)

    assert result.code == 2
    assert "cannot be kept in PostgreSQL" in result.err
    node = database.node()
    assert node.entities() == []
    node.close()
