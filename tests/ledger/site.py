"""A ledger folder with writers, and a disk that dies at a chosen step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from twinbus.ledger.counts import Counted, LedgerCounts, LedgerEvent, LedgerPlace
from twinbus.ledger.files import LedgerDisk
from twinbus.ledger.writer import LedgerOptions, LedgerWriter

# 2026-11-15, 12:00 UTC.
NOON_MS = 1_794_744_000_000
MINUTE_MS = 60_000
DAY_MS = 1440 * MINUTE_MS

Fill = Callable[[BinaryIO], object]


class Killed(BaseException):
    """The process ends here."""


class DyingDisk(LedgerDisk):
    """Ends the process after so many steps; also in the middle of a removal."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def _step(self) -> None:
        if self._left <= 0:
            raise Killed
        self._left -= 1

    def write(self, path: Path, fill: Fill) -> None:
        self._step()
        super().write(path, fill)
        self._step()

    def rename(self, path: Path, name: str) -> None:
        self._step()
        super().rename(path, name)
        self._step()

    def remove(self, folder: Path, names: Iterable[str]) -> None:
        for name in names:
            self._step()
            super().remove(folder, [name])
        self._step()


class FullDisk(LedgerDisk):
    """Has no space while `full`."""

    full = True

    def write(self, path: Path, fill: Fill) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().write(path, fill)


def writer(
    folder: Path, disk: LedgerDisk | None = None, name: str = "node", days: int = 400
) -> LedgerWriter:
    options = LedgerOptions(folder, name, "contoso", "server", days)
    return LedgerWriter(options, disk)


def apart(folder: Path) -> LedgerWriter:
    """As a server has it: a child process compacts."""
    options = LedgerOptions(folder, "node", "contoso", "server", compacts_apart=True)
    return LedgerWriter(options)


def sends(count: int, entity: str = "orders") -> Counted:
    """What a minute with so many sends has counted."""
    counts = LedgerCounts()
    place = LedgerPlace("contoso", "server", entity, "Root", "amqp")
    counts.account(place).run_in("send", "accepted", count, 10 * count)
    return counts.take()


def told(at_ms: int) -> Counted:
    """What a minute with one event has counted."""
    return Counted(
        events=[LedgerEvent(at_ms, "one", "two", "orders", "diverted", 7, 70, "busy")]
    )


def crash(victim: LedgerWriter) -> None:
    """End as a killed process does: the system lets go of its lock."""
    handle, victim._marker = victim._marker, None
    if handle is not None:
        os.close(handle)
