"""A small file system of its own, which a test can fill. Needs what root may do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A folder on a disk of that size, in the words of `mount`."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave_bytes: int = 0) -> Path:
    """Leave no more than that on the disk of a folder; returns the file that fills."""
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with filler.open("r+b") as file:
        file.truncate(filler.stat().st_size - leave_bytes)
    return filler
