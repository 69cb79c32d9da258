"""A store after a failed sync: it goes on only if the disk has what it acknowledged.

A child process has the store; strace lets its syncs fail for a while. While the store
is closed, a test can put an older copy of the database in its place, as a disk does
that has lost what was synced.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.traced_disk import FAIL, sick_disk
from twinbus.clock import Now
from twinbus.store.records import Record
from twinbus.store.sqlite.file import FILE_NAME
from twinbus.store.sqlite.store import SqliteStore

NOW = Now.at(1000)

# Does what each line of its input says, and answers with a line.
CHILD = """
import sys
from pathlib import Path
from twinbus.clock import Now
from twinbus.errors import StoreFault
from twinbus.store.records import Record
from twinbus.store.sqlite.store import SqliteStore

store = SqliteStore.open(Path(sys.argv[1]))
queue = store.entities()[0].id

def send(name):
    try:
        store.begin()
        store.append(queue, [Record(b"", name.encode())], Now.at(1000))
        store.commit()
    except StoreFault as fault:
        return fault.text
    return "accepted"

def look():
    return b" ".join(m.bare for m in store.peek(queue, 1, 100, Now.at(1000), None))

for line in sys.stdin:
    print(eval(line), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store that has a queue with one message."""
    folder = tmp_path / "store"
    store = SqliteStore.open(folder)
    store.begin()
    queue = store.insert_entity("queue", "q", "{}", NOW.wall_ms)
    store.append(queue, [Record(b"", b"first")], NOW)
    store.commit()
    store.close()
    return folder


class Child:
    """The process that has the store."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def do(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self) -> str:
        """Let it end; returns its log."""
        return self._process.communicate()[1]


@contextmanager
def store_of(folder: Path) -> Iterator[Child]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        yield Child(process)


def fail(child: Child, folder: Path) -> None:
    """Let a commit fail, and a first try to recover."""
    with sick_disk(child.pid, "fdatasync", FAIL, folder):
        assert "The disk failed" in child.do("send('in the failed turn')")
        assert child.do("store.recover()") == "False"


def test_a_store_with_tokens_goes_on_when_the_disk_has_what_it_acknowledged(
    folder: Path,
) -> None:
    with store_of(folder) as child:
        child.do("store.keep_tokens()")
        assert child.do("send('acknowledged')") == "accepted"
        fail(child, folder)

        assert child.do("store.recover()") == "True"

        assert child.do("send('after')") == "accepted"
        found = child.do("look()")
    # The failed turn has happened or not; its client was told that it failed.
    names = "first acknowledged in the failed turn after"
    assert found in (f"b'{names}'", f"b'{names.replace('in the failed turn ', '')}'")


def test_a_store_without_tokens_does_not_go_on(folder: Path) -> None:
    with store_of(folder) as child:
        assert child.do("send('acknowledged')") == "accepted"
        fail(child, folder)

        assert child.do("store.recover()") == "False"
        assert "Check the disk. A server with one shard must be restarted" in child.do(
            "send('after')"
        )


def test_a_store_whose_disk_has_lost_an_acknowledged_turn_does_not_go_on(
    folder: Path, tmp_path: Path
) -> None:
    older = shutil.copy(folder / FILE_NAME, tmp_path / "older.db")
    with store_of(folder) as child:
        child.do("store.keep_tokens()")
        assert child.do("send('acknowledged')") == "accepted"
        fail(child, folder)
        newer = shutil.copytree(folder, tmp_path / "newer")
        for file in folder.glob(f"{FILE_NAME}-*"):
            file.unlink()
        shutil.copy(older, folder / FILE_NAME)

        tries = [child.do("store.recover()") for _ in range(3)]
        refused = child.do("send('after')")
        # Where the newer copy comes back, the store does, too.
        shutil.copytree(newer, folder, dirs_exist_ok=True)
        recovered = child.do("store.recover()")
        log = child.end()

    assert tries == ["False", "False", "False"]
    assert "turn 1 was acknowledged, 0 is the last" in refused
    assert "Restore" in refused
    assert recovered == "True"
    # One line says so, not one of each try.
    assert log.count("has lost") == 1
