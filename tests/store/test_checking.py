"""The check of files beside the server that has them."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

from twinbus import limits
from twinbus.clock import Now
from twinbus.store.records import Record
from twinbus.store.shards import open_shards
from twinbus.store.sqlite.checking import check_store, check_stores
from twinbus.store.sqlite.file import FILE_NAME
from twinbus.store.sqlite.store import SqliteStore


def filled(folder: Path, messages: int) -> SqliteStore:
    store = SqliteStore.open(folder)
    store.begin()
    queue = store.insert_entity("queue", "q", "{}", 0)
    # Each in a row of its own, since it was delivered before.
    records = [Record(b"head", bytes(1000), deliveries=1)] * messages
    store.append(queue, records, Now.at(0))
    store.commit()
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return store


def test_a_damaged_page_is_found_while_the_store_is_open(tmp_path: Path) -> None:
    store = filled(tmp_path / "contoso", 100)
    (before,) = check_stores(tmp_path, 10)

    with (tmp_path / "contoso" / FILE_NAME).open("r+b") as file:
        # The last page is a leaf of messages.
        file.seek(-limits.SQLITE_PAGE_BYTES, 2)
        file.write(bytes(limits.SQLITE_PAGE_BYTES))
    (after,) = check_stores(tmp_path, 10)
    store.close()

    assert (before["sound"], before["problems"]) == (True, [])
    assert after["sound"] is False
    assert after["problems"]


def test_a_shard_elsewhere_is_checked_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    folders = [tmp_path / "a" / "x", tmp_path / "b" / "x"]
    for shard in open_shards(tmp_path / "data" / "contoso", None, folders):
        assert shard.store is not None
        shard.store.close()

    found = check_stores(tmp_path / "data", 10)

    links = [tmp_path / "data" / "contoso" / f"shard-{number}" for number in (0, 1)]
    assert [one["file"] for one in found] == [str(link / FILE_NAME) for link in links]
    assert all(one["sound"] for one in found)
    assert len(check_stores(tmp_path, 10)) == 2


def test_a_check_ends_at_its_time(tmp_path: Path) -> None:
    store = filled(tmp_path, 20_000)

    found = check_store(tmp_path / FILE_NAME, monotonic())
    store.close()

    assert found["sound"] is None
    assert found["problems"] == ["interrupted"]


def test_a_file_of_another_program_is_not_sound(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"something else" * 100)

    (found,) = check_stores(tmp_path, 10)

    assert found["sound"] is False
    assert found["problems"] == ["file is not a database"]
