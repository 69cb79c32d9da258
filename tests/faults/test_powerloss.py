"""After a power loss everything acknowledged is there, and nothing removed is back.

The same tool that acquits the store's settings must convict weaker ones, or it proves
nothing. The small tests below it show what the model of the disk may do.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import pytest

from tests.faults import bare_workload, store_workload
from tests.faults.powerloss import Acknowledged, Disk, Inspect, Report, replay
from tests.faults.syscalls import (
    Call,
    Create,
    Note,
    NotReplayable,
    Reader,
    Remove,
    Rename,
    Sync,
    Truncate,
    Write,
    record,
)

INSPECT: dict[str, Inspect] = {
    "bare_workload": bare_workload.inspect,
    "store_workload": store_workload.inspect,
}


def _run(folder: Path, program: str, synchronous: str, commits: int) -> list[Call]:
    root, notes = folder / "root", folder / "notes"
    root.mkdir()
    command = [sys.executable, "-m", f"tests.faults.{program}"]
    arguments = [str(root), str(notes), synchronous, str(commits)]
    return record([*command, *arguments], root, notes)


def _lose_power(folder: Path, program: str, synchronous: str, images: int) -> Report:
    calls = _run(folder, program, synchronous, commits=150)
    report = replay(calls, INSPECT[program], images)
    print(program, synchronous, report.text())
    return report


def test_the_store_survives_a_power_loss(tmp_path: Path) -> None:
    report = _lose_power(tmp_path, "store_workload", "FULL", images=2000)

    assert report.acknowledged > 500
    assert not report.bad, report.text()


@pytest.mark.parametrize(
    ("program", "synchronous"),
    [
        ("store_workload", "NORMAL"),
        pytest.param("store_workload", "OFF", marks=pytest.mark.campaign),
        ("bare_workload", "NORMAL"),
    ],
)
def test_a_weaker_setting_is_convicted(
    tmp_path: Path, program: str, synchronous: str
) -> None:
    report = _lose_power(tmp_path, program, synchronous, images=300)

    assert len(report.bad) > 60, report.text()
    assert any("lost" in image.text for image in report.bad)


def test_the_same_settings_without_our_store_survive_too(tmp_path: Path) -> None:
    report = _lose_power(tmp_path, "bare_workload", "FULL", images=300)

    assert not report.bad, report.text()


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("commits", [60, 150, 400])
def test_the_store_survives_very_many_power_losses(
    tmp_path: Path, commits: int
) -> None:
    calls = _run(tmp_path, "store_workload", "FULL", commits)

    for seed in range(5):
        report = replay(calls, store_workload.inspect, images=4000, seed=seed)

        assert not report.bad, f"seed {seed}: {report.text()}"


# -- the model of the disk -------------------------------------------------------


def _found(
    folder: Path, calls: list[Call], mode: str, seed: int = 0
) -> dict[str, bytes]:
    disk = Disk()
    for call in calls:
        disk.apply(call)
    target = Path(tempfile.mkdtemp(dir=folder))
    disk.image(target, mode, random.Random(seed))
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file()
    }


def test_an_unsynced_name_may_be_missing(tmp_path: Path) -> None:
    calls: list[Call] = [Create("a"), Write("a", 0, b"x"), Sync("a", 2)]

    assert _found(tmp_path, calls, "none") == {}
    assert _found(tmp_path, calls, "all") == {"a": b"x"}


def test_a_synced_name_may_be_without_contents(tmp_path: Path) -> None:
    calls: list[Call] = [Create("a"), Write("a", 0, b"x"), Sync("", 2)]

    assert _found(tmp_path, calls, "none") == {"a": b""}


def test_a_sync_covers_only_what_came_before_it_began(tmp_path: Path) -> None:
    calls: list[Call] = [
        Create("a"),
        Sync("", 1),
        Write("a", 0, b"old"),
        Write("a", 0, b"new"),
        # It began before the second write and ended after it.
        Sync("a", 3),
    ]

    assert _found(tmp_path, calls, "none") == {"a": b"old"}


def test_a_rename_may_be_undone_but_not_half_done(tmp_path: Path) -> None:
    before: list[Call] = [
        *(Create("a"), Write("a", 0, b"1"), Sync("a", 2)),
        *(Create("b"), Write("b", 0, b"2"), Sync("b", 5), Sync("", 6)),
    ]
    calls = [*before, Rename("b", "a")]

    assert _found(tmp_path, calls, "none") == {"a": b"1", "b": b"2"}
    assert _found(tmp_path, calls, "all") == {"a": b"2"}
    seen = [_found(tmp_path, calls, "names", seed) for seed in range(20)]
    assert {len(names) for names in seen} == {1, 2}
    assert all(names["a"] == (b"1" if "b" in names else b"2") for names in seen)
    assert _found(tmp_path, [*before, Remove("a")], "all") == {"b": b"2"}


def test_folders_have_names_of_their_own(tmp_path: Path) -> None:
    calls: list[Call] = [
        Create("d", folder=True),
        Create("d/a"),
        Write("d/a", 0, b"x"),
        Sync("d/a", 3),
        Sync("d", 4),
    ]

    # The folder's own name is in its parent, which was not synced.
    assert _found(tmp_path, calls, "none") == {}
    assert _found(tmp_path, [*calls, Sync("", 5)], "all") == {"d/a": b"x"}


def test_a_write_is_torn_only_between_sectors(tmp_path: Path) -> None:
    disk = Disk()
    for call in (Create("a"), Sync("", 1), Write("a", 256, b"x" * 1024)):
        disk.apply(call)
    seen = set()

    for seed in range(200):
        target = tmp_path / str(seed)
        target.mkdir()
        disk.image(target, "torn", random.Random(seed))
        seen.add((target / "a").read_bytes())

    parts = [slice(256, 512), slice(512, 1024), slice(1024, 1280)]
    for contents in seen:
        assert all(len(set(contents[part])) <= 1 for part in parts)
    assert len(seen) == 8


def test_a_cut_file_may_keep_its_tail(tmp_path: Path) -> None:
    calls: list[Call] = [
        *(Create("a"), Write("a", 0, b"long"), Sync("a", 2), Sync("", 3)),
        Truncate("a", 1),
    ]

    assert _found(tmp_path, calls, "none") == {"a": b"long"}
    assert _found(tmp_path, calls, "all") == {"a": b"l"}


# -- what was acknowledged -------------------------------------------------------


@pytest.mark.parametrize(
    ("present", "wrong"),
    [
        ({"2"}, ""),
        ({"2", "3"}, ""),
        ({"2", "4"}, ""),
        (set[str](), "1 lost (2)"),
        ({"1", "2"}, "1 back again (1)"),
        ({"2", "9"}, "1 never sent (9)"),
    ],
)
def test_what_is_found_is_compared_with_what_was_said(
    present: set[str], wrong: str
) -> None:
    said = Acknowledged()
    # 1 came and went, 2 is there, 3 is about to go, 4 is about to come.
    for line in ("? +1 +2 +3", "! +1 +2 +3", "? -1", "! -1", "? -3 +4"):
        said.note(line + "\n")

    assert said.compare(present) == wrong


# -- reading strace --------------------------------------------------------------


def _hex(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def _read(*lines: str) -> list[Call]:
    reader = Reader(Path("/disk"), Path("/notes"), lambda path: path.endswith("-shm"))
    return reader.read([line + "\n" for line in lines])


def _open(name: str, flags: str = "O_RDWR|O_CREAT") -> str:
    path = _hex(f"/disk/{name}")
    return f'1 openat(AT_FDCWD<{_hex("/")}>, "{path}", {flags}, 0644) = 3<{path}>'


def test_calls_of_threads_are_put_together_again() -> None:
    file = f"3<{_hex('/disk/a')}>"

    calls = _read(
        _open("a"),
        f'1 pwrite64({file}, "{_hex("x")}", 1, 0) = 1',
        f"2 fdatasync({file} <unfinished ...>",
        f'1 pwrite64({file}, "{_hex("y")}", 1, 1) = 1',
        "2 <... fdatasync resumed>)         = 0",
        f'1 write(4<{_hex("/notes")}>, "{_hex("! +1")}", 4) = 4',
    )

    writes = [Write("a", 0, b"x"), Write("a", 1, b"y")]
    assert calls == [Create("a"), *writes, Sync("a", 2), Note("! +1")]


def test_plain_writes_go_where_the_file_stands() -> None:
    file = f"3<{_hex('/disk/a')}>"
    text = f'write({file}, "{_hex("xy")}", 2) = 2'

    calls = _read(
        _open("a"), f"1 {text}", f"1 lseek({file}, 9, SEEK_SET) = 9", f"1 {text}"
    )
    appended = _read(_open("a", "O_CREAT|O_APPEND"), f"1 {text}", f"1 {text}")

    assert calls == [Create("a"), Write("a", 0, b"xy"), Write("a", 9, b"xy")]
    assert appended[1:] == [Write("a", 0, b"xy"), Write("a", 2, b"xy")]


@pytest.mark.parametrize(
    "line",
    [
        f"1 fallocate(3<{_hex('/disk/a')}>, 0, 0, 100) = 0",
        f'1 rename("{_hex("/tmp/x")}", "{_hex("/disk/a")}") = 0',
        f'1 pwrite64(3<{_hex("/disk/a")}>, "{_hex("x")}"..., 9, 0) = 9',
    ],
)
def test_what_cannot_be_replayed_is_refused(line: str) -> None:
    with pytest.raises(NotReplayable):
        _read(line)


def test_other_files_failed_calls_and_shared_memory_do_not_matter() -> None:
    calls = _read(
        _open("a-shm"),
        _open("b").replace("/disk", "/elsewhere").replace(_hex("/disk"), _hex("/tmp")),
        f"1 fallocate(3<{_hex('/tmp/a')}>, 0, 0, 100) = 0",
        f'1 unlink("{_hex("/disk/b")}") = -1 ENOENT (No such file or directory)',
        f"1 fsync(5<{_hex('socket:[123]')}>) = 0",
        "1 +++ exited with 0 +++",
    )

    assert calls == []
