"""A disk that fails under a running server: strace answers calls on some files.

Owns the strace process. It lets the calls of one kind hang or fail, on chosen files and
for as long as the block lasts. Knows nothing about servers or clients.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Longer than any test: it ends when strace lets go.
HANG_SECONDS = 3600
HANG = f"delay_enter={HANG_SECONDS}s"
FAIL = "error=EIO"


class TracedDisk:
    """strace on a running process: calls of one kind on some files do not succeed."""

    def __init__(self, pid: int, call: str, what: str, files: list[Path]) -> None:
        self._call = call
        options = ["-f", "-p", str(pid), "-e", f"trace={call}"]
        options += ["-e", f"inject={call}:{what}", "-e", "signal=none"]
        options += [word for file in files for word in ("-P", str(file))]
        self._process = subprocess.Popen(["strace", *options], stderr=subprocess.PIPE)
        self._said = b""
        self._wait_for(b" attached")

    def wait_for_call(self) -> None:
        """Wait until the process has made a call that does not succeed."""
        self._wait_for(f"{self._call}(".encode())

    def _wait_for(self, text: bytes) -> None:
        assert self._process.stderr is not None
        while text not in self._said:
            piece = os.read(self._process.stderr.fileno(), 65536)
            assert piece, f"strace has ended: {self._said.decode(errors='replace')}"
            self._said += piece

    def release(self) -> None:
        """Let the calls succeed, and no longer look at the process."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.communicate()


@contextmanager
def sick_disk(pid: int, call: str, what: str, folder: Path) -> Iterator[TracedDisk]:
    """Let calls on the database in a folder hang or fail until the block ends."""
    files = [folder / name for name in ("messages.db", "messages.db-wal")]
    disk = TracedDisk(pid, call, what, files)
    try:
        yield disk
    finally:
        disk.release()


__all__ = ["FAIL", "HANG", "HANG_SECONDS", "TracedDisk", "sick_disk"]
