"""The journal: receipts outlive the process that wrote them, and are found again.

Runs on both kinds of storage: a folder, whose files are appended to, and storage that
takes only whole files.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from twinbus.errors import ArgumentError
from twinbus.pairing.pump.settling import Receipt
from twinbus.spark.syphon_job import journal
from twinbus.spark.syphon_job.journal import KnownReceipts, QueueJournal
from twinbus.spark.syphon_job.storage import (
    FolderStorage,
    RolledStorage,
    Storage,
    storage_at,
)

PAIR = "secondary/contoso"
FOLDER = journal.receipts_folder(PAIR, 3)
TIME_MS = 1_700_000_000_000


def _rolled(path: Path) -> Storage:
    return RolledStorage(fs.SubTreeFileSystem(str(path), fs.LocalFileSystem()))


@pytest.fixture(params=[FolderStorage, _rolled], ids=["appended", "rolled"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    make: Callable[[Path], Storage] = request.param
    return make(tmp_path)


def receipt(sequence: int, enqueued_ms: int = TIME_MS, path: str = "orders") -> Receipt:
    return Receipt(sequence, enqueued_ms, path, 100 + sequence)


def write(storage: Storage, series: str, *chunks: list[Receipt]) -> None:
    attempt = QueueJournal(storage, FOLDER, series)
    for chunk in chunks:
        asyncio.run(attempt.record(chunk))
    attempt.close()


def fresh(storage: Storage) -> QueueJournal:
    """The journal as the next attempt sees it."""
    return QueueJournal(storage, FOLDER, "next")


def test_a_receipt_is_found_by_the_next_attempt(storage: Storage) -> None:
    write(storage, "first", [receipt(1), receipt(2)], [receipt(3)])

    found = [fresh(storage).sent_before(number, TIME_MS) for number in range(5)]

    assert found == [False, True, True, True, False]


def test_a_queue_that_was_made_anew_is_not_taken_for_the_old_one(
    storage: Storage,
) -> None:
    write(storage, "first", [receipt(1)])

    assert not fresh(storage).sent_before(1, TIME_MS + 1)


def test_the_same_number_of_two_lives_of_a_queue_is_known_for_both(
    storage: Storage,
) -> None:
    write(storage, "first", [receipt(1), receipt(1, TIME_MS + 5)])

    known = fresh(storage)

    assert known.sent_before(1, TIME_MS)
    assert known.sent_before(1, TIME_MS + 5)
    assert not known.sent_before(1, TIME_MS + 6)


def test_an_attempt_knows_its_own_receipts(storage: Storage) -> None:
    attempt = fresh(storage)
    asyncio.run(attempt.record([receipt(7)]))

    assert attempt.sent_before(7, TIME_MS)
    attempt.close()


def test_receipts_of_another_attempt_are_seen_while_it_still_writes(
    storage: Storage,
) -> None:
    other = QueueJournal(storage, FOLDER, "other")
    known = KnownReceipts(storage, FOLDER)
    asyncio.run(other.record([receipt(1)]))
    known.refresh()
    asyncio.run(other.record([receipt(2), receipt(3)]))
    known.refresh()
    other.close()

    assert [known.has(number, TIME_MS) for number in (1, 2, 3, 4)] == [
        *(True, True, True, False)
    ]
    assert len(known) == 3


def test_no_file_is_made_for_nothing(storage: Storage) -> None:
    write(storage, "idle", [])

    assert storage.entries(FOLDER) == []


@pytest.mark.parametrize("lost_bytes", [1, 9, 64, 300])
def test_a_torn_end_costs_only_the_receipts_in_it(
    tmp_path: Path, lost_bytes: int
) -> None:
    storage = FolderStorage(tmp_path)
    write(storage, "torn", [receipt(1), receipt(2)], [receipt(3), receipt(4)])
    [entry] = storage.entries(FOLDER)
    os.truncate(tmp_path / entry.name, entry.size_bytes - lost_bytes)

    known = fresh(storage)

    assert known.sent_before(1, TIME_MS)
    assert known.sent_before(2, TIME_MS)
    assert not known.sent_before(4, TIME_MS)


def test_an_end_that_never_reached_the_disk_is_passed_over(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    write(storage, "zeros", [receipt(1)])
    [entry] = storage.entries(FOLDER)
    # The file has grown, and what should be in it is not there.
    os.truncate(tmp_path / entry.name, entry.size_bytes + 500)
    write(storage, "later", [receipt(2)])

    known = fresh(storage)

    assert known.sent_before(1, TIME_MS)
    assert known.sent_before(2, TIME_MS)
    assert not known.sent_before(0, 0)


def test_a_killed_process_leaves_every_receipt_that_it_was_told_is_kept(
    tmp_path: Path,
) -> None:
    code = f"""
import asyncio, sys
from twinbus.pairing.pump.settling import Receipt
from twinbus.spark.syphon_job.journal import QueueJournal
from twinbus.spark.syphon_job.storage import storage_at
attempt = QueueJournal(storage_at({str(tmp_path)!r}), {FOLDER!r}, "victim")
number = 0
while True:
    number += 1
    asyncio.run(attempt.record([Receipt(number, {TIME_MS}, "orders", 1)]))
    print(number, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(20):
            line = child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        told = [line, *child.stdout.readlines()]

    known = fresh(storage_at(str(tmp_path)))

    last = int(told[-1])
    assert all(known.sent_before(number, TIME_MS) for number in range(1, last + 1))


# -- packing -------------------------------------------------------------------------


def test_packed_receipts_are_kept_and_no_longer_looked_up(storage: Storage) -> None:
    write(storage, "a", [receipt(1), receipt(2, path="events")])
    write(storage, "b", [receipt(3)])
    before = journal.all_receipts(storage, PAIR)[3]

    assert journal.pack(storage, PAIR, 3) == 3

    assert storage.entries(FOLDER) == []
    after = journal.all_receipts(storage, PAIR)[3]
    assert _rows(after) == _rows(before)
    assert not fresh(storage).sent_before(1, TIME_MS)


def _rows(table: Any) -> list[Any]:
    return sorted(table.to_pylist(), key=lambda row: row["sequence"])


def test_packing_again_after_a_crash_in_between_doubles_nothing(
    tmp_path: Path,
) -> None:
    storage = FolderStorage(tmp_path)
    write(storage, "a", [receipt(1)])
    [entry] = storage.entries(FOLDER)
    content = (tmp_path / entry.name).read_bytes()
    journal.pack(storage, PAIR, 3)
    # As if it had died before the file was removed.
    (tmp_path / entry.name).write_bytes(content)

    journal.pack(storage, PAIR, 3)

    assert len(journal.all_receipts(storage, PAIR)[3]) == 1


def test_a_file_that_is_still_written_is_not_packed(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    busy = QueueJournal(storage, FOLDER, "busy")
    asyncio.run(busy.record([receipt(1)]))

    assert journal.pack(storage, PAIR, 3) == 0
    busy.close()
    assert journal.pack(storage, PAIR, 3) == 1


# -- places --------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["{}", "file://{}"])
def test_a_folder_is_named_by_path_or_address(tmp_path: Path, location: str) -> None:
    found = storage_at(location.format(tmp_path))

    assert isinstance(found, FolderStorage)
    assert found.root == tmp_path


def test_an_unknown_address_is_refused_with_its_text() -> None:
    with pytest.raises(ArgumentError, match=r"nowhere://x.*no place for a journal"):
        storage_at("nowhere://x/y")
