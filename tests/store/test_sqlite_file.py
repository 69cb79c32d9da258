"""What only a SQLite file can do: belong to one process, fill a disk, be damaged."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites.store_suite import LATER, NOW, bodies, locks, record, records
from twinbus.clock import Now
from twinbus.errors import Bug, ConfigError, QuotaExceeded, StoreFault
from twinbus.store import migrations
from twinbus.store.base import (
    DiskFault,
    OutboxCounts,
    Store,
)
from twinbus.store.records import Record
from twinbus.store.sqlite.file import FILE_NAME
from twinbus.store.sqlite.store import SqliteStore
from twinbus.store.tables.entities import ENTITY_MAX


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with a queue of two messages."""
    store = SqliteStore.open(tmp_path / "data")
    store.begin()
    queue = store.insert_entity("queue", "orders", "{}", NOW)
    store.append(queue, records("ab"), Now.at(NOW))
    store.commit()
    store.close()
    return tmp_path / "data"


def change_file(folder: Path, statement: str, *values: int) -> None:
    with sqlite3.connect(folder / FILE_NAME) as connection:
        connection.execute(statement, values)
    connection.close()


def contents(store: Store) -> str:
    """The bodies in the first queue."""
    queue = store.entities()[0].id
    store.begin()
    found = bodies(store.peek(queue, 1, 1000, Now.at(NOW), None))
    store.rollback()
    return found


def run_child(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, with the folder as its argument."""
    return subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


# -- settings and schema -------------------------------------------------------------


def test_every_commit_is_synced_to_a_write_ahead_log(folder: Path) -> None:
    store = SqliteStore.open(folder)

    def pragma(name: str) -> object:
        return store._connection.execute(f"PRAGMA {name}").fetchone()[0]

    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == 2
    assert pragma("page_size") == 8192
    store.close()


def test_a_new_file_has_the_newest_schema(folder: Path) -> None:
    newest = migrations.migrations("sqlite")[-1].number
    connection = sqlite3.connect(folder / FILE_NAME)

    assert connection.execute("PRAGMA user_version").fetchone() == (newest,)
    connection.close()


def test_a_newer_schema_is_refused_by_naming_both(folder: Path) -> None:
    change_file(folder, "PRAGMA user_version = 99")
    newest = migrations.migrations("sqlite")[-1].number

    with pytest.raises(ConfigError, match=rf"schema 99.*up to {newest}\."):
        SqliteStore.open(folder)

    # It was refused, not locked.
    change_file(folder, f"PRAGMA user_version = {newest}")
    SqliteStore.open(folder).close()


@pytest.mark.parametrize("schema", range(1, len(migrations.migrations("sqlite"))))
def test_a_file_with_an_older_schema_opens_and_works(
    tmp_path: Path, schema: int
) -> None:
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    for step in migrations.migrations("sqlite")[:schema]:
        connection.executescript(step.sql)
    connection.execute(f"PRAGMA user_version = {schema}")
    connection.executescript(
        "INSERT INTO entity VALUES (4, 'queue', 'orders', '{}', 1, 1);"
        "INSERT INTO container VALUES (4, 2, 0, 2, 0, 0, 2, 1, 0);"
        "INSERT INTO message (id, enqueued_ms, state, deliveries, head, bare) VALUES "
        "(4 << 40 | 1, 1, 0, 0, x'', x'61'), (4 << 40 | 2, 1, 0, 0, x'', x'62');"
    )
    connection.close()

    store = SqliteStore.open(tmp_path)

    assert contents(store) == "ab"
    assert store.stored_bytes() == 2
    assert store.quarantined() == 0
    assert (store.outbox(), store.applied(1), store.mirrored()) == ({}, 0, [])
    store.begin()
    assert store.append(4, records("c"), Now.at(NOW)) == 3
    assert store.post(1, "send", b"x") == 1
    store.put_applied(1, 1)
    store.commit()
    store.close()
    store = SqliteStore.open(tmp_path)
    assert contents(store) == "abc"
    assert store.outbox() == {1: OutboxCounts(1, 1, 1)}
    assert store.applied(1) == 1
    store.close()


def test_only_missing_migrations_are_pending() -> None:
    steps = migrations.migrations("sqlite")

    assert migrations.pending("sqlite", 0, "x") == steps
    assert migrations.pending("sqlite", len(steps), "x") == []


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    change_file(tmp_path, "CREATE TABLE theirs (a)")

    with pytest.raises(ConfigError, match="another program"):
        SqliteStore.open(tmp_path)


def test_a_store_in_memory_works_and_is_gone_when_closed() -> None:
    for _ in range(2):
        store = SqliteStore.memory()
        store.begin()
        queue = store.insert_entity("queue", "orders", "{}", NOW)
        assert store.append(queue, records("ab"), Now.at(NOW)) == 1
        store.commit()
        assert store.recover()
        assert contents(store) == "ab"
        store.close()


def test_nonces_can_be_given(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path, new_nonce=iter([5, 6]).__next__)
    store.begin()
    queue = store.insert_entity("queue", "orders", "{}", NOW)
    store.append(queue, records("ab"), Now.at(NOW))

    assert store.lock(queue, 1, LATER, Now.at(NOW))[0] == 5
    assert store.lock(queue, 1, LATER, Now.at(NOW))[0] == 6
    store.close()


# -- one process ---------------------------------------------------------------------


def test_a_second_open_is_refused_by_naming_the_process(folder: Path) -> None:
    store = SqliteStore.open(folder)

    with pytest.raises(ConfigError, match=f"in use by process {os.getpid()}; stop it"):
        SqliteStore.open(folder)

    store.close()
    SqliteStore.open(folder).close()


def test_a_second_process_is_refused(folder: Path) -> None:
    store = SqliteStore.open(folder)
    child = run_child(
        "import sys, pathlib\n"
        "from twinbus.store.sqlite.store import SqliteStore\n"
        "SqliteStore.open(pathlib.Path(sys.argv[1]))\n",
        folder,
    )

    assert f"is in use by process {os.getpid()}" in child.stderr
    assert contents(store) == "ab"
    store.close()


def test_a_process_that_died_does_not_block_the_folder(folder: Path) -> None:
    child = run_child(
        "import os, signal, sys, pathlib\n"
        "from twinbus.store.sqlite.store import SqliteStore\n"
        "store = SqliteStore.open(pathlib.Path(sys.argv[1]))\n"
        "store.begin()\n"
        "store.put_setting('name', 'committed')\n"
        "store.commit()\n"
        "store.begin()\n"
        "store.put_setting('name', 'not committed')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n",
        folder,
    )
    assert child.returncode < 0

    store = SqliteStore.open(folder)

    assert store.setting("name") == "committed"
    store.close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot be used"):
        SqliteStore.open(tmp_path / "file" / "data")


# -- faults --------------------------------------------------------------------------


def test_a_full_database_refuses_and_recovers(folder: Path) -> None:
    store = SqliteStore.open(folder)
    queue = store.entities()[0].id
    counts = store.counts(queue)
    store._connection.execute("PRAGMA max_page_count = 40").fetchall()
    store.begin()
    store.append(queue, records("x"), Now.at(NOW))

    with pytest.raises(StoreFault, match="Free some space"):
        store.append(queue, [Record(b"", bytes(1 << 20))], Now.at(NOW))
    store.rollback()

    assert store.counts(queue) == counts
    with pytest.raises(StoreFault, match="Free some space"):
        store.begin()
    # The limit of this test ends with the connection, as if there was space again.
    assert store.recover()
    assert contents(store) == "ab"
    store.begin()
    assert store.append(queue, [record("c")], Now.at(NOW)) == 3
    store.commit()
    assert contents(store) == "abc"
    store.close()


def test_a_checkpoint_moves_the_log_into_the_file(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    store.begin()
    queue = store.insert_entity("queue", "orders", "{}", NOW)
    store.append(queue, [record("a" * 1000)], Now.at(NOW))
    store.commit()
    file = tmp_path / FILE_NAME
    assert b"a" * 1000 not in file.read_bytes()

    store.checkpoint()

    assert b"a" * 1000 in file.read_bytes()
    store.close()


def test_on_a_full_disk_a_checkpoint_leaves_the_log(folder: Path) -> None:
    store = SqliteStore.open(folder)
    store.rehearse(DiskFault("full"))

    store.checkpoint()

    store.rehearse(None)
    assert contents(store) == "ab"
    store.close()


def test_a_checkpoint_on_a_disk_that_fails_stops_the_store(folder: Path) -> None:
    store = SqliteStore.open(folder)
    store.rehearse(DiskFault("down"))

    with pytest.raises(StoreFault):
        store.checkpoint()

    with pytest.raises(StoreFault):
        store.begin()
    store.rehearse(None)
    assert store.recover()
    assert contents(store) == "ab"
    store.close()


def test_the_outbox_recovers_with_the_store(folder: Path) -> None:
    store = SqliteStore.open(folder)
    store.begin()
    store.post(1, "send", b"a")
    store.put_applied(2, 5)
    store.commit()
    before = store.outbox()
    store.begin()
    store.post(1, "send", b"lost")
    store.forget_posted(1, 1)
    store.put_applied(2, 6)
    store.rehearse(DiskFault("full"))

    with pytest.raises(StoreFault, match="Free some space"):
        store.commit()

    assert (store.outbox(), store.applied(2)) == (before, 5)
    store.rehearse(None)
    assert store.recover()
    assert (store.outbox(), store.applied(2)) == (before, 5)
    store.begin()
    assert store.post(1, "send", b"b") == 2
    store.put_applied(2, 6)
    store.commit()
    store.close()
    store = SqliteStore.open(folder)
    assert store.outbox() == {1: OutboxCounts(2, 2, 2)}
    assert store.applied(2) == 6
    store.close()


def test_a_read_of_the_outbox_does_not_walk_over_all_of_it(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    store.begin()
    for _ in range(5_000):
        store.post(1, "send", bytes(100))
        store.post(2, "send", bytes(100))
    store.commit()
    steps = 0

    def count_steps() -> int:
        nonlocal steps
        steps += 1
        return 0

    store.begin()
    store._connection.set_progress_handler(count_steps, 10)
    read = store.posted(2, 5, 1_000)
    store.forget_posted(2, 5)
    steps_here = steps
    store.outbox()
    store.applied(1)

    assert [row.number for row in read] == [1, 2, 3, 4, 5]
    assert steps_here < 50
    assert steps == steps_here
    store.close()


# Makes a disk of 4 MiB that only this process sees, fills it, and frees it again.
FULL_DISK = """
import pathlib, subprocess, sys
from twinbus.clock import Now
from twinbus.errors import StoreFault
from twinbus.store.records import Record
from twinbus.store.sqlite.store import SqliteStore

folder = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], check=True)
ballast = folder / "ballast"
ballast.write_bytes(bytes(2 << 20))
store = SqliteStore.open(folder / "data")
store.begin()
queue = store.insert_entity("queue", "orders", "{}", 1)
store.commit()
committed = 0
# A recovery may find space: reopening moves the log into the database.
full = False
while not full:
    store.begin()
    try:
        store.append(queue, [Record(b"", bytes(16384))], Now.at(1))
        store.commit()
        committed += 1
    except StoreFault as fault:
        assert "Free some space" in fault.text, fault.text
        store.rollback()
        assert store.counts(queue).active == committed
        full = not store.recover()
assert committed > 1
try:
    store.begin()
    raise AssertionError
except StoreFault as fault:
    assert "Free some space" in fault.text, fault.text
ballast.unlink()
assert store.recover()
store.begin()
assert store.append(queue, [Record(b"", b"")], Now.at(1)) == committed + 1
store.commit()
store.close()
store = SqliteStore.open(folder / "data")
store.begin()
assert len(store.peek(queue, 1, 1000, Now.at(1), None)) == committed + 1
store.close()
print("recovered")
"""


def test_a_full_disk_refuses_until_there_is_space(tmp_path: Path) -> None:
    # A user may mount in a namespace of its own; where not even that is allowed, the
    # text of `unshare` is the reason of the failure.
    child = subprocess.run(
        ["unshare", "-rm", sys.executable, "-c", FULL_DISK, tmp_path],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )

    assert child.stdout == "recovered\n", child.stderr


# No file may grow beyond 1 MiB: the commit that needs more fails in the middle.
FAILING_WRITE = """
import pathlib, resource, signal, sys
from twinbus.clock import Now
from twinbus.errors import StoreFault
from twinbus.store.records import Record
from twinbus.store.sqlite.store import SqliteStore

store = SqliteStore.open(pathlib.Path(sys.argv[1]))
queue = store.entities()[0].id
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
before = store.counts(queue)
store.begin()
store.append(queue, [Record(b"", bytes(1 << 21))], Now.at(1))
try:
    store.commit()
except StoreFault as fault:
    print(fault.text)
assert store.counts(queue) == before
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
print(store.recover())
try:
    store.begin()
except StoreFault:
    print("refused")
"""


def test_a_failed_write_stops_the_store_for_good(folder: Path) -> None:
    child = run_child(FAILING_WRITE, folder)

    text, recovered, refused = child.stdout.splitlines()
    assert "Check the disk. A server with one shard must be restarted" in text
    # Clients read the text; the operator finds the path in the log.
    assert FILE_NAME not in text
    assert str(folder / FILE_NAME) in child.stderr
    assert (recovered, refused) == ("False", "refused")
    store = SqliteStore.open(folder)
    assert contents(store) == "ab"
    store.close()


def test_a_file_that_is_no_database_is_named_and_left_alone(folder: Path) -> None:
    file = folder / FILE_NAME
    damaged = b"garbage!" * 4096
    file.write_bytes(damaged)

    with pytest.raises(StoreFault, match=re.escape(str(file))):
        SqliteStore.open(folder)

    assert file.read_bytes() == damaged


def test_a_damaged_page_is_an_error_and_not_an_answer(folder: Path) -> None:
    file = folder / FILE_NAME
    content = bytearray(file.read_bytes())
    # The kind of each page but the first, which holds the schema.
    content[8192::8192] = b"\xff" * (len(content) // 8192 - 1)
    file.write_bytes(content)

    with pytest.raises(StoreFault, match="damage in"):
        SqliteStore.open(folder)

    assert file.read_bytes() == content


def test_damage_that_shows_later_stops_the_store(folder: Path) -> None:
    store = SqliteStore.open(folder)
    queue = store.entities()[0].id
    (root,) = store._connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'message'"
    ).fetchone()
    store.close()
    with (folder / FILE_NAME).open("r+b") as file:
        file.seek((root - 1) * 8192)
        file.write(b"\xff")
    store = SqliteStore.open(folder)
    store.begin()

    with pytest.raises(StoreFault, match="damage in"):
        store.peek(queue, 1, 10, Now.at(NOW), None)
    store.rollback()

    assert not store.recover()
    store.close()


def test_a_change_outside_a_transaction_is_a_bug(folder: Path) -> None:
    store = SqliteStore.open(folder)
    queue = store.entities()[0].id

    with pytest.raises(Bug):
        store.append(queue, records("c"), Now.at(NOW))
    with pytest.raises(Bug):
        store.lock(queue, 1, LATER, Now.at(NOW))
    with pytest.raises(Bug):
        store.insert_entity("queue", "other", "{}", NOW)
    with pytest.raises(Bug):
        store.commit()
    store.begin()
    with pytest.raises(Bug):
        store.begin()
    store.rollback()
    assert contents(store) == "ab"
    store.close()


# -- numbers that run out --------------------------------------------------------------


def test_ids_of_deleted_entities_come_back_when_all_were_used(folder: Path) -> None:
    change_file(folder, "UPDATE sqlite_sequence SET seq = ?", ENTITY_MAX - 4)
    store = SqliteStore.open(folder)
    store.begin()

    last = store.insert_entity("queue", "last", "{}", NOW)
    again = store.insert_entity("queue", "again", "{}", NOW)

    assert (last, again) == (ENTITY_MAX, 8)
    assert store.append(last + 2, [record()], Now.at(NOW)) == 1
    assert store.find(last + 2, [1])[0].container == last + 2
    store.delete_entity(store.entities()[0].id)
    assert store.insert_entity("queue", "first", "{}", NOW) == 4
    store.close()


def test_sequence_numbers_that_are_used_up_are_refused(folder: Path) -> None:
    change_file(folder, "UPDATE container SET last_sequence = ?", (1 << 40) - 3)
    store = SqliteStore.open(folder)
    queue = store.entities()[0].id
    store.begin()

    store.append(queue, records("y"), Now.at(NOW))
    with pytest.raises(QuotaExceeded):
        store.append(queue, records("xy"), Now.at(NOW))
    store.append(queue, records("z"), Now.at(NOW))

    assert store.counts(queue).last_sequence == (1 << 40) - 1
    with pytest.raises(QuotaExceeded):
        store.number(queue, 1)
    store.close()


# -- depth -----------------------------------------------------------------------------


def test_a_receive_does_not_walk_over_scheduled_or_settled_messages(
    tmp_path: Path,
) -> None:
    store = SqliteStore.open(tmp_path)
    store.begin()
    queue = store.insert_entity("queue", "orders", "{}", NOW)
    store.append(queue, records("a"), Now.at(NOW))
    store.append(queue, [record(due_ms=LATER) for _ in range(20_000)], Now.at(NOW))
    store.append(queue, records("b"), Now.at(NOW))
    steps = 0

    def count_steps() -> int:
        nonlocal steps
        steps += 1
        return 0

    store._connection.set_progress_handler(count_steps, 10)
    nonce, held = store.lock(queue, 10, LATER, Now.at(NOW))
    store.complete(locks(nonce, held), Now.at(NOW))
    store.lock(queue, 10, LATER, Now.at(NOW))

    assert bodies(held) == "ab"
    assert steps < 100
    store.close()
