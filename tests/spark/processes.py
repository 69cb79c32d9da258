"""The Python workers below a process, found in /proc.

A worker is a child of a daemon that Spark's Java has started, with the module that it
runs on its command line. Workers of tasks run `pyspark.worker`; others plan.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_PARENT = re.compile(r"PPid:\s+(\d+)")
_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


class Worker(NamedTuple):
    """A process that runs tasks."""

    pid: int
    # The most memory that it ever had.
    peak_mb: float


def workers(root: int) -> list[Worker]:
    """The workers of tasks below a process."""
    parents: dict[int, int] = {}
    found: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            status = (folder / "status").read_text()
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            # It has ended meanwhile.
            continue
        parent, peak = _PARENT.search(status), _PEAK.search(status)
        if parent is not None:
            parents[int(folder.name)] = int(parent[1])
        if peak is not None and b"pyspark.worker" in words:
            found[int(folder.name)] = int(peak[1]) / 1024
    return [
        Worker(pid, mb)
        for pid, mb in found.items()
        # The daemon has the same command line.
        if parents[pid] in found and _is_below(pid, root, parents)
    ]


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != root:
        pid = parents[pid]
    return pid == root
