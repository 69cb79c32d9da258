"""The reserve of a store: disk space that only receiving and deleting may use.

Owns a file of allocated space beside the database, and the answer to whether messages
may be added. To receive, settle and delete is to write: on a disk that is full of its
own messages a queue could not be emptied. So when the space gets low the file is given
up, and nothing is added until there is twice as much space as the reserve has.

The space of a store is what is free on the disk, what the file holds, and the unused
pages in the database, which never shrinks; but what the log still has to write into the
database is used already. SQLite does not say that the disk is full when that fails: so
the space is measured after every commit, and an error is not waited for.

Where the disk has too little space for the whole file it holds what is there, and it
gives some of it back while the log needs it. Knows nothing of messages.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from twinbus import limits

log = logging.getLogger("twinbus.store")

FILE_NAME = "messages.reserve"


class FileSpace(NamedTuple):
    """What the database has of space, in bytes."""

    # By how much its file grows when the log is written into it.
    growth: int
    # Pages in it that hold nothing.
    unused: int


class Reserve:
    """The reserve of one folder."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._file = folder / FILE_NAME
        disk = os.statvfs(folder)
        share = disk.f_blocks * disk.f_frsize // limits.RESERVE_PART_OF_DISK
        self.size_bytes = min(bytes_max, share)
        # Left beside the file, for the log.
        self._low_bytes = self.size_bytes // 2
        self._can_allocate = True
        self._held = self._file.stat().st_size if self._file.exists() else 0
        # Without a file it may have been given up: sends begin as they resume.
        self.is_given_up = self.size_bytes > 0 and self._held == 0
        # Whether the log has the state.
        self._told = False
        if not self.size_bytes or self._free_bytes() < self._low_bytes:
            self._hold(0)

    @property
    def checkpoint_pages(self) -> int:
        """How long the log may get, so that it fits into what is kept free for it."""
        pages = self.size_bytes // 4 // limits.SQLITE_PAGE_BYTES
        return min(max(pages, 1), limits.SQLITE_CHECKPOINT_PAGES)

    def make_room(self) -> None:
        """The disk was full: give the file up, so that the database can be opened."""
        if self._free_bytes() < self.size_bytes:
            self.is_given_up = True
            self._hold(0)

    def look(self, measure: Callable[[], FileSpace]) -> None:
        """See how much space there is, and hold or give up what follows from it."""
        size = self.size_bytes
        if not size:
            return
        free = self._free_bytes()
        # The usual case, which is a system call and no query.
        if not self.is_given_up and self._held == size and free >= 4 * size:
            return
        growth, unused = measure()
        disk = free + self._held - growth
        room = disk + unused
        if self.is_given_up:
            self.is_given_up = room < 2 * size or disk < size
        else:
            low = self._low_bytes
            self.is_given_up = room < size + low or disk < low
        if self.is_given_up:
            self._hold(0)
        else:
            self._fit(disk)
        self._tell(room)

    def _tell(self, room: int) -> None:
        """Let the log have every change."""
        if self._told != self.is_given_up:
            self._told = self.is_given_up
            text = "sends are refused" if self._told else "sends are accepted again"
            log.warning("%s: %d bytes of space are left: %s", self._folder, room, text)

    def _fit(self, disk: int) -> None:
        """Hold as much as there is, up to the whole."""
        wanted = min(max(disk - self._low_bytes, 0), self.size_bytes)
        is_short = disk - self._held < self._low_bytes // 2
        is_more = wanted > self._held and (
            wanted == self.size_bytes or wanted - self._held >= self._low_bytes // 2
        )
        if is_short or is_more or self._held > self.size_bytes:
            self._hold(wanted)

    def _hold(self, size: int) -> None:
        """Let the file have that size, of space that is really allocated."""
        if size == 0 and self._held:
            self._file.unlink(missing_ok=True)
        elif size < self._held or (size and self._can_allocate):
            try:
                self._allocate(size)
            except OSError as error:
                # The measure works without the file; others may take its space.
                self._can_allocate = False
                self._file.unlink(missing_ok=True)
                text = "%s cannot be allocated (%s)"
                log.warning(text, self._file, error.strerror)
                size = 0
        else:
            return
        self._held = size

    def _allocate(self, size: int) -> None:
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if size < self._held:
                os.ftruncate(descriptor, size)
            else:
                os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)

    def _free_bytes(self) -> int:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize
