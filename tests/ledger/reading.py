"""Reads a ledger as a reader does: visible files, rows as dictionaries."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from twinbus.ledger.schema import EVENTS_FOLDER, GAP

Row = dict[str, Any]


def files(folder: Path) -> list[Path]:
    """The files of a table that a reader sees."""
    return sorted(
        path
        for path in folder.glob("day=*/*.parquet")
        if not path.name.startswith((".", "_"))
    )


def rows(folder: Path) -> list[Row]:
    """All operations."""
    return [row for path in files(folder) for row in _rows_of(path)]


def events(folder: Path) -> list[Row]:
    """All events of pairs."""
    return rows(folder / EVENTS_FOLDER)


def _rows_of(path: Path) -> list[Row]:
    return pq.ParquetFile(path).read().to_pylist()  # type: ignore[no-any-return]


def totals(folder: Path, *columns: str) -> dict[tuple[Any, ...], int]:
    """Billable operations by some columns, without gaps."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows(folder):
        if row["operation"] != GAP:
            found[tuple(row[name] for name in columns)] += row["operations"]
    return dict(found)


def gaps(folder: Path) -> list[Row]:
    """The rows that say what is missing."""
    return [row for row in rows(folder) if row["operation"] == GAP]
