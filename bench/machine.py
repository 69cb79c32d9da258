"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import sqlite3
from datetime import UTC, datetime
from pathlib import Path


def machine() -> dict[str, str | int | float | bool]:
    """The machine and its versions, as facts for the results."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "machine_cpu": _cpu(),
        "machine_cores": os.cpu_count() or 0,
        "machine_memory_mib": pages * page_bytes >> 20,
        "machine_system": platform.platform(),
        # Above the number of cores, other processes were working too.
        "machine_load_before": os.getloadavg()[0],
        "python_version": platform.python_version(),
        "sqlite_version": sqlite3.sqlite_version,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
