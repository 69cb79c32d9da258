"""Rows that can never be sent, kept as a Parquet file beside their reasons.

One file for each task, named for the write, the batch and the partition, so that a task
that runs again replaces it. It appears whole or not at all, and only when the task has
come to its end. Knows nothing about why a row is bad.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import pyarrow as pa
from pyarrow import parquet

from twinbus import limits


class BadRows:
    """The bad rows of one task; used with `with`, and kept only by `keep`."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = Path(folder)
        self._path = self._folder / f"{name}.parquet"
        # Several attempts of a task may run at once. Spark skips names with a dot.
        self._draft = self._folder / f".{name}.{os.getpid()}"
        self._writer: parquet.ParquetWriter | None = None
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
        self._draft.unlink(missing_ok=True)

    def add(self, batch: pa.RecordBatch, at: int, reason: str) -> None:
        """Take one row of a batch."""
        row = batch.slice(at, 1).append_column("error", pa.array([reason], pa.string()))
        self._rows.append(row)
        self._bytes += row.nbytes
        self.count += 1
        if self._bytes >= limits.BAD_ROWS_BUFFER_BYTES:
            self._write()

    def keep(self) -> None:
        """Make the file durable; without rows there is none, nor one from before."""
        self._write()
        if self._writer is None:
            self._path.unlink(missing_ok=True)
            return
        writer, self._writer = self._writer, None
        writer.close()
        _sync(self._draft)
        self._draft.rename(self._path)
        _sync(self._folder)

    def _write(self) -> None:
        if not self._rows:
            return
        table = pa.Table.from_batches(self._rows)
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(self._draft, table.schema)
        self._writer.write_table(table)
        self._rows = []
        self._bytes = 0


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
