"""The timer and the thread of a ledger."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.ledger.reading import rows, totals
from tests.ledger.site import MINUTE_MS, NOON_MS, Fill, writer
from twinbus import limits
from twinbus.clock import ManualClock
from twinbus.ledger.counts import LedgerPlace
from twinbus.ledger.files import LedgerDisk
from twinbus.ledger.keeper import LedgerKeeper

ORDERS = LedgerPlace("contoso", "server", "orders", "Root", "amqp")


class HangingDisk(LedgerDisk):
    """Writes when it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def write(self, path: Path, fill: Fill) -> None:
        self.go.wait()
        super().write(path, fill)


async def test_counts_belong_to_the_minute_in_which_they_were_made(
    tmp_path: Path,
) -> None:
    clock = ManualClock(NOON_MS + 30_000)
    keeper = LedgerKeeper(writer(tmp_path), clock)
    keeper.start()
    account = keeper.counts.account(ORDERS)

    account.calls("poll", "accepted")
    keeper.tick()
    clock.advance(MINUTE_MS)
    keeper.tick()
    account.calls("poll", "accepted", 2)
    await keeper.written()
    written = rows(tmp_path)
    await keeper.close()

    assert [row["minute"].minute for row in written] == [0]
    assert [row["operations"] for row in rows(tmp_path)] == [1, 2]
    assert [row["minute"].minute for row in rows(tmp_path)] == [0, 1]
    assert (keeper.rows_written, keeper.rows_dropped) == (2, 0)


async def test_a_disk_that_hangs_costs_minutes_and_no_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEDGER_MINUTES_WAITING_MAX", 2)
    clock, disk = ManualClock(NOON_MS), HangingDisk()
    keeper = LedgerKeeper(writer(tmp_path, disk), clock)
    keeper.start()

    for _ in range(4):
        keeper.counts.account(ORDERS).calls("poll", "accepted")
        clock.advance(MINUTE_MS)
        keeper.tick()
    dropped = keeper.rows_dropped
    disk.go.set()
    await keeper.written()
    await keeper.close()

    assert dropped == 2
    assert totals(tmp_path, "operation") == {("poll",): 2}


async def test_a_stop_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEDGER_CLOSE_SECONDS_MAX", 0)
    clock, disk = ManualClock(NOON_MS), HangingDisk()
    keeper = LedgerKeeper(writer(tmp_path, disk), clock)
    keeper.start()
    keeper.counts.account(ORDERS).calls("poll", "accepted")

    await keeper.close()

    disk.go.set()
