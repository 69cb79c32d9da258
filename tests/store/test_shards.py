"""Shards on disk: made, added, opened with one missing, and refused by mistake."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.suites.store_suite import LATER, NOW, records
from twinbus import limits
from twinbus.clock import Now
from twinbus.errors import ConfigError, StoreFault, StoreInUse
from twinbus.store.base import Store, shard_of_nonce
from twinbus.store.opening import open_store, read_setting
from twinbus.store.shards import (
    SETTING,
    OpenedShard,
    find_namespaces,
    open_shards,
    read_record,
    shard_folders,
)
from twinbus.store.sqlite.file import FILE_NAME


@contextmanager
def shards_in(
    folder: Path | None, count: int | None = None, folders: list[Path] | None = None
) -> Iterator[list[OpenedShard]]:
    """The shards of a namespace, closed at the end."""
    shards = open_shards(folder, count, folders)
    try:
        yield shards
    finally:
        for shard in shards:
            if shard.store is not None:
                shard.store.close()


def make(folder: Path, count: int | None = None) -> None:
    """A namespace whose shards have a setting each, `name`, with their number."""
    with shards_in(folder, count) as shards:
        for shard in shards:
            assert shard.store is not None
            put(shard.store, "name", str(shard.number))


def put(store: Store, name: str, value: str) -> None:
    store.begin()
    store.put_setting(name, value)
    store.commit()


def names(shards: list[OpenedShard]) -> list[str | None]:
    stores = [shard.store for shard in shards]
    return [None if store is None else store.setting("name") for store in stores]


def listing(folder: Path) -> dict[str, str]:
    """All files below a folder, with what is in them."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else ""
        for path in folder.rglob("*")
    }


def refused(
    top: Path, folder: Path, count: int | None = None, folders: list[Path] | None = None
) -> str:
    """What opening is refused with; no file below `top` was made or changed."""
    before = listing(top)
    with pytest.raises(ConfigError) as error:
        open_shards(folder, count, folders)
    assert listing(top) == before
    assert "\n" not in error.value.text
    return error.value.text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A namespace with three shards."""
    make(tmp_path / "contoso", 3)
    return tmp_path / "contoso"


# -- making and opening --------------------------------------------------------------


def test_a_new_namespace_has_one_shard_in_its_own_folder(tmp_path: Path) -> None:
    with shards_in(tmp_path / "contoso") as shards:
        assert [shard.number for shard in shards] == [0]

    assert (tmp_path / "contoso" / FILE_NAME).exists()
    assert not list(tmp_path.rglob("shard-*"))


def test_a_folder_without_a_record_becomes_shard_0(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "name", "old")
    store.close()

    with shards_in(tmp_path) as shards:
        assert names(shards) == ["old"]

    record = read_record(read_setting(tmp_path, SETTING))
    assert record is not None
    assert (record.number, record.folders) == (0, (".",))


def test_the_number_of_shards_is_kept(folder: Path) -> None:
    with shards_in(folder) as shards:
        assert names(shards) == ["0", "1", "2"]
    with shards_in(folder, 3) as shards:
        assert names(shards) == ["0", "1", "2"]

    for number in range(3):
        place = folder / f"shard-{number}" if number else folder
        record = read_record(read_setting(place, SETTING))
        assert record is not None
        assert record.number == number
        assert record.folders == (".", "shard-1", "shard-2")


def test_a_moved_namespace_is_opened_with_all_shards(folder: Path) -> None:
    moved = folder.rename(folder.with_name("moved"))

    with shards_in(moved) as shards:
        assert names(shards) == ["0", "1", "2"]


def test_each_shard_has_a_folder_that_is_given(tmp_path: Path) -> None:
    folders = [tmp_path / "disk1" / "a", tmp_path / "disk2" / "b"]
    with shards_in(tmp_path / "contoso", None, folders) as shards:
        assert len(shards) == 2

    # Without the list: from shard 0 on, and from the folder of the namespace.
    for place in (folders[0], tmp_path / "contoso"):
        with shards_in(place) as shards:
            assert len(shards) == 2
    record = read_record(read_setting(folders[1], SETTING))
    assert record is not None
    assert record.folders == tuple(str(each) for each in folders)
    assert shard_folders(tmp_path / "contoso") == folders
    assert find_namespaces(tmp_path) == [tmp_path / "contoso"]


def test_without_the_list_and_its_disks_no_new_namespace_is_made(
    tmp_path: Path,
) -> None:
    home, folders = tmp_path / "contoso", [tmp_path / "a", tmp_path / "b"]
    with shards_in(home, None, folders) as shards:
        for shard in shards:
            assert shard.store is not None
            put(shard.store, "name", str(shard.number))

    with damage(folders[0], "folder missing"):
        with shards_in(home) as shards:
            assert names(shards) == [None, "1"]
        folders[1].rename(tmp_path / "away")
        for given in (None, folders):
            text = refused(tmp_path, home, None, given)
            assert f"There is no store in {folders[0]}, where shard 0 was." in text


def test_links_follow_the_folders_that_are_given(tmp_path: Path) -> None:
    home, old, new = tmp_path / "contoso", tmp_path / "old", tmp_path / "new"
    with shards_in(home, None, [old]):
        assert shard_folders(home) == [old]
    old.rename(new)

    with shards_in(home, None, [new]):
        assert shard_folders(home) == [new]
    for path in new.iterdir():
        path.rename(home / path.name)
    with shards_in(home, None, [home]):
        assert shard_folders(home) == [home]


def test_folders_that_were_moved_are_found_where_they_are_given(folder: Path) -> None:
    disk = folder.parent / "disk"
    (folder / "shard-2").rename(disk)
    folders = [folder, folder / "shard-1", disk]

    for given in (folders, None):
        with shards_in(folder, None, given) as shards:
            assert names(shards) == ["0", "1", "2"]


def test_given_folders_on_one_disk_are_told_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    with shards_in(tmp_path, 2):
        assert not caplog.messages

    with shards_in(tmp_path / "contoso", None, folders):
        (told,) = caplog.messages
    assert told.startswith(f"shards in {folders[0]} and {folders[1]} are on one disk")


def test_shards_in_memory_are_made_in_any_number() -> None:
    with shards_in(None, 2) as shards:
        assert [shard.number for shard in shards] == [0, 1]
        assert all(shard.store for shard in shards)


@pytest.mark.parametrize("in_memory", [False, True])
def test_nonces_carry_the_number_of_the_shard(tmp_path: Path, in_memory: bool) -> None:
    with shards_in(None if in_memory else tmp_path, limits.SHARDS_MAX) as shards:
        for shard in shards:
            store = shard.store
            assert store is not None
            store.begin()
            queue = store.insert_entity("queue", "orders", "{}", NOW)
            store.append(queue, records("a"), Now.at(NOW))
            nonce, _ = store.lock(queue, 1, LATER, Now.at(NOW))
            store.commit()

            assert shard_of_nonce(nonce) == shard.number
            assert nonce < 1 << 63


# -- adding --------------------------------------------------------------------------


def test_shards_are_added_beside_those_that_are_there(folder: Path) -> None:
    with shards_in(folder, 5) as shards:
        assert names(shards) == ["0", "1", "2", None, None]
    with shards_in(folder) as shards:
        assert len(shards) == 5


# Ends without a word after so many commits: the first is that of shard 0's record.
KILLED = """
import os, pathlib, signal, sys
from twinbus.store.sqlite.store import SqliteStore
from twinbus.store.shards import open_shards

left = int(sys.argv[2])
commit = SqliteStore.commit

def counted(store):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    commit(store)

SqliteStore.commit = counted
open_shards(pathlib.Path(sys.argv[1]), 3)
"""


@pytest.mark.parametrize("commits", range(6))
def test_a_process_that_ends_while_it_adds_leaves_what_can_be_opened(
    tmp_path: Path, commits: int
) -> None:
    store = open_store(tmp_path)
    put(store, "name", "old")
    store.close()
    child = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, str(commits)],
        check=False,
        timeout=60,
    )
    assert child.returncode < 0

    # Shard 0 first: with its record all shards are there.
    with shards_in(tmp_path) as shards:
        assert names(shards) == (["old"] if commits < 4 else ["old", None, None])
        assert not any(shard.problem for shard in shards)
    with shards_in(tmp_path, 4) as shards:
        assert names(shards) == ["old", None, None, None]
        assert not any(shard.problem for shard in shards)


# -- a part is missing ---------------------------------------------------------------


@contextmanager
def read_only(shard: Path) -> Iterator[str]:
    """Let no file of a shard be written; yields what the system says about it.

    Only root may mount, and only root may write in spite of the mode of a file.
    """
    if os.geteuid():
        paths = [*shard.iterdir(), shard]
        modes = {path: path.stat().st_mode for path in paths}
        for path in paths:
            path.chmod(modes[path] & ~0o222)
        yield "Permission denied"
        for path in reversed(paths):
            path.chmod(modes[path])
        return
    subprocess.run(["mount", "--bind", shard, shard], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", shard], check=True)
    try:
        yield "Read-only file system"
    finally:
        subprocess.run(["umount", "-l", shard], check=True)


@contextmanager
def damage(shard: Path, kind: str) -> Iterator[str]:
    """Let a shard be in a bad way; yields what is said about it."""
    file = shard / FILE_NAME
    if kind == "folder missing":
        gone = shard.rename(shard.with_name("gone"))
        yield f"There is no store in {shard}"
        gone.rename(shard)
    elif kind == "file missing":
        gone = file.rename(shard / "gone")
        yield f"There is no store in {shard}"
        gone.rename(file)
    elif kind == "a folder instead of the file":
        gone = file.rename(shard / "gone")
        file.mkdir()
        yield f"{file} cannot be read"
        file.rmdir()
        gone.rename(file)
    elif kind == "damaged":
        content = file.read_bytes()
        file.write_bytes(b"garbage!" * 4096)
        yield f"{file} cannot be read (file is not a database)"
        file.write_bytes(content)
    elif kind == "read-only":
        with read_only(shard) as text:
            yield text
    else:
        store = open_store(shard)
        yield f"in use by process {os.getpid()}"
        store.close()


DAMAGES = (
    "folder missing",
    "file missing",
    "a folder instead of the file",
    "damaged",
    "read-only",
    "in use",
)


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_shard_that_cannot_be_opened_is_left_closed_until_it_can(
    folder: Path, kind: str
) -> None:
    with damage(folder / "shard-1", kind) as text:
        shards = open_shards(folder)
        assert names(shards) == ["0", None, "2"]
        problem = shards[1].problem or ""
        assert problem.startswith("Shard 1 cannot be opened: ")
        assert text in problem
        assert "\n" not in problem
        with pytest.raises((ConfigError, StoreFault)):
            shards[1].reopen()

    store = shards[1].reopen()

    assert store.setting("name") == "1"
    for each in (store, shards[0].store, shards[2].store):
        assert each is not None
        each.close()


@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "in use"])
def test_without_shard_0_the_others_know_how_many_there_are(
    tmp_path: Path, kind: str
) -> None:
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    with shards_in(tmp_path / "contoso", None, folders) as shards:
        for shard in shards:
            assert shard.store is not None
            put(shard.store, "name", str(shard.number))

    with damage(folders[0], kind), shards_in(folders[0], None, folders) as shards:
        assert names(shards) == [None, "1", "2"]


def test_without_the_file_of_shard_0_the_usual_places_are_looked_at(
    folder: Path,
) -> None:
    with damage(folder, "file missing"), shards_in(folder) as shards:
        assert names(shards) == [None, "1", "2"]
        assert not (folder / FILE_NAME).exists()


def test_a_missing_shard_is_not_made_again_when_it_is_tried_again(
    folder: Path,
) -> None:
    gone = (folder / "shard-1").rename(folder / "gone")
    with shards_in(folder) as shards:
        # As the empty folder in which a disk is mounted.
        (folder / "shard-1").mkdir()
        with pytest.raises(ConfigError, match="it is not made again"):
            shards[1].reopen()

        assert not list((folder / "shard-1").iterdir())
    assert gone.exists()


def test_if_no_shard_can_be_opened_the_start_is_refused(folder: Path) -> None:
    with (
        damage(folder / "shard-1", "read-only"),
        damage(folder / "shard-2", "read-only"),
        damage(folder, "damaged") as text,
    ):
        found = refused(folder.parent, folder)

    assert found.startswith("No shard of the namespace can be opened. Shard 0 ")
    assert text in found


def test_one_shard_that_is_damaged_is_refused_as_ever(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b"garbage!" * 4096)

    with pytest.raises(StoreFault, match="There is damage in"):
        open_shards(tmp_path)


def test_shards_are_added_only_while_all_can_be_opened(folder: Path) -> None:
    with damage(folder / "shard-1", "folder missing"):
        assert "where shard 1 was" in refused(folder.parent, folder, 4)


def test_a_namespace_that_another_process_has_is_refused_as_a_whole(
    folder: Path,
) -> None:
    with damage(folder, "in use"), pytest.raises(StoreInUse):
        open_shards(folder)
    with (
        damage(folder, "damaged"),
        damage(folder / "shard-1", "in use"),
        pytest.raises(StoreInUse),
    ):
        open_shards(folder)

    with shards_in(folder) as shards:
        assert names(shards) == ["0", "1", "2"]


# -- mistakes ------------------------------------------------------------------------


def test_fewer_shards_than_there_are_is_refused(folder: Path) -> None:
    text = refused(folder.parent, folder, 2)
    listed = refused(folder.parent, folder, None, [folder, folder / "shard-1"])

    assert text == listed
    assert "has 3 shards, and their number cannot be lowered to 2." in text


@pytest.mark.parametrize("count", [-1, 0, limits.SHARDS_MAX + 1])
def test_a_number_that_is_not_possible_is_refused(folder: Path, count: int) -> None:
    for place in (folder, folder.parent / "new"):
        text = refused(folder.parent, place, count)
        assert text == f"A namespace has 1 to 64 shards; {count} is not possible."


def test_folders_that_are_swapped_are_refused(folder: Path) -> None:
    swapped = [folder, folder / "shard-2", folder / "shard-1"]
    first = [folder / "shard-1", folder, folder / "shard-2"]

    text = refused(folder.parent, folder, None, swapped)
    assert "shard-2 holds shard 2, but it is in the place of shard 1." in text
    assert "holds shard 1, but" in refused(folder.parent, folder, None, first)


@pytest.mark.parametrize("way", ["same", "dots", "link", "new"])
def test_two_shards_in_one_folder_are_refused(tmp_path: Path, way: str) -> None:
    make(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    second = {
        "same": tmp_path / "a",
        "dots": tmp_path / "b" / ".." / "a",
        "link": tmp_path / "link",
        "new": tmp_path / "new",
    }[way]
    folders = [tmp_path / "a", second]
    if way == "new":
        folders = [second, tmp_path / "x" / ".." / "new"]

    text = refused(tmp_path, tmp_path / "contoso", None, folders)

    assert text.startswith("Shards 0 and 1 are in one folder, ")
    assert text.endswith(" Give each shard a folder of its own.")


def test_a_store_of_another_namespace_is_refused(folder: Path) -> None:
    top = folder.parent
    make(top / "other", 2)
    store = open_store(top / "old")
    put(store, "name", "old")
    store.close()
    usual = [folder, folder / "shard-1", folder / "shard-2"]

    for foreign in (top / "other" / "shard-1", top / "old", top / "other"):
        listed = [*usual[:1], foreign, *usual[2:]]
        text = refused(top, folder, None, listed)
        assert f"The store in {foreign} belongs to another namespace" in text
        assert "cannot be shard 3" in refused(top, folder, None, [*usual, foreign])


def test_an_older_store_in_the_place_of_shard_0_is_refused(folder: Path) -> None:
    (folder / FILE_NAME).unlink()
    store = open_store(folder)
    put(store, "name", "old")
    store.close()

    assert "does not belong to the shards" in refused(folder.parent, folder)


def test_shards_of_two_namespaces_without_shard_0_are_refused(folder: Path) -> None:
    top = folder.parent
    make(top / "other", 3)
    listed = [top / "none", folder / "shard-1", top / "other" / "shard-2"]

    assert "belong to different namespaces" in refused(top, folder, None, listed)


def test_shards_of_another_namespace_are_not_taken_over(folder: Path) -> None:
    listed = [folder.parent / "new", folder / "shard-1", folder / "shard-2"]

    text = refused(folder.parent, folder.parent / "new", None, listed)

    assert f"Shard 0 is not in {folder.parent / 'new'}, and the record has" in text


def test_a_shard_is_no_namespace(folder: Path) -> None:
    text = refused(folder.parent, folder / "shard-1", 1)

    assert "holds shard 1, but it is in the place of shard 0" in text


def test_a_shard_of_a_newer_version_is_refused(folder: Path) -> None:
    with sqlite3.connect(folder / "shard-1" / FILE_NAME) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    assert "has schema 99" in refused(folder.parent, folder)


def test_a_database_of_another_program_is_refused(folder: Path) -> None:
    (folder / "disk").mkdir()
    with sqlite3.connect(folder / "disk" / FILE_NAME) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    listed = [folder, folder / "shard-1", folder / "disk"]

    text = refused(folder.parent, folder, None, listed)

    assert "is a database of another program" in text


def test_a_damaged_record_leaves_its_shard_closed(folder: Path) -> None:
    store = open_store(folder / "shard-1")
    put(store, SETTING, json.dumps({"number": 1}))
    store.close()

    with shards_in(folder) as shards:
        assert "record of the shard is damaged" in (shards[1].problem or "")
