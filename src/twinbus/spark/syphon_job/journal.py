"""The syphon's journal: a receipt for every message that its destination has accepted.

    <location>/<pair>/receipts/<index>/<series>.arrow     while they may be needed
    <location>/<pair>/moved/<index>-<digest>.parquet      afterwards, for reports

Owns these files: how receipts are written, read and packed. A message that was sent but
not completed comes again, from a task that was killed or a lock that ended too early.
Its receipt says that it was sent, so it is completed and not sent twice. Every attempt
of a task writes a series of its own, in Arrow's stream format. A receipt is durable
before its message is completed; the last one may be torn by a crash, which costs a
second send and no more. Once a backlog queue is empty, and nothing of it locked, its
receipts are packed.

Receipts name a message by number and time: a queue that is made anew counts anew. Knows
nothing about Spark.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from twinbus import limits
from twinbus.pairing.pump.settling import Receipt
from twinbus.spark.syphon_job.storage import Appender, Storage

SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("enqueued_ms", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("recorded_ms", pa.int64(), nullable=False),
    ]
)
_SCHEMA_BYTES: bytes = SCHEMA.serialize().to_pybytes()
_RECEIPTS = "receipts"
_MOVED = "moved"


def receipts_folder(pair_folder: str, index: int) -> str:
    """Where the receipts of one backlog queue are, below the journal's location."""
    return f"{pair_folder}/{_RECEIPTS}/{index}"


# -- reading -------------------------------------------------------------------------


def read_batches(data: pa.Buffer) -> tuple[list[pa.RecordBatch], int]:
    """All whole batches of a series or of its end, and how many bytes they take.

    What follows the last whole one was torn by a crash, or is still being written.
    """
    batches: list[pa.RecordBatch] = []
    source = pa.BufferReader(data)
    taken = 0
    while True:
        try:
            message = pa.ipc.read_message(source)
            if message.type == "record batch":
                batch = pa.ipc.read_record_batch(message, SCHEMA)
                batch.validate()
                batches.append(batch)
        except (EOFError, OSError, pa.ArrowException):
            return batches, taken
        taken = source.tell()


class KnownReceipts:
    """The receipts of one backlog queue, written by any task.

    Kept as two sorted arrays: a million receipts are 16 MB.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        # How far each file was read.
        self._read_bytes: dict[str, int] = {}
        self._sequences = np.empty(0, np.int64)
        self._times_ms = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._sequences)

    def has(self, sequence: int, enqueued_ms: int) -> bool:
        """Whether a message has a receipt; O(log n)."""
        first = np.searchsorted(self._sequences, sequence, "left")
        last = np.searchsorted(self._sequences, sequence, "right")
        return bool(np.any(self._times_ms[first:last] == enqueued_ms))

    def refresh(self) -> None:
        """Read what was added since."""
        batches: list[pa.RecordBatch] = []
        for entry in self._storage.entries(self._folder):
            done = self._read_bytes.get(entry.name, 0)
            if entry.size_bytes <= done:
                continue
            found, taken = read_batches(self._storage.read(entry.name, done))
            self._read_bytes[entry.name] = done + taken
            batches += found
        if not batches:
            return
        added = pa.Table.from_batches(batches, SCHEMA)
        sequences = [self._sequences, added["sequence"].to_numpy()]
        times_ms = [self._times_ms, added["enqueued_ms"].to_numpy()]
        joined = np.concatenate(sequences)
        order = np.argsort(joined, kind="stable")
        self._sequences = joined[order]
        self._times_ms = np.concatenate(times_ms)[order]


# -- writing -------------------------------------------------------------------------


class QueueJournal:
    """The journal of one backlog queue, as one attempt of a task uses it."""

    def __init__(self, storage: Storage, folder: str, series: str) -> None:
        self._storage = storage
        self._name = f"{folder}/{series}.arrow"
        self._known = KnownReceipts(storage, folder)
        self._appender: Appender | None = None
        self._looked_at = float("-inf")

    def sent_before(self, sequence: int, enqueued_ms: int) -> bool:
        """Whether any attempt has a receipt for this message."""
        if self._known.has(sequence, enqueued_ms):
            return True
        now = time.monotonic()
        if now - self._looked_at < limits.JOURNAL_LOOK_SECONDS:
            return False
        self._known.refresh()
        self._looked_at = now
        return self._known.has(sequence, enqueued_ms)

    async def record(self, receipts: Sequence[Receipt]) -> None:
        """Keep receipts; durable when it returns."""
        if receipts:
            await asyncio.to_thread(self._append, receipts)

    def _append(self, receipts: Sequence[Receipt]) -> None:
        columns = list(zip(*receipts, strict=True))
        columns.append((time.time_ns() // 1_000_000,) * len(receipts))
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, SCHEMA, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        data: bytes = batch.serialize().to_pybytes()
        if self._appender is None:
            # A series begins with its schema; so does each of its files where it is
            # written as several, which costs little and lets each be read alone.
            self._appender = self._storage.append_to(self._name)
            data = _SCHEMA_BYTES + data
        elif self._storage.shared:
            data = _SCHEMA_BYTES + data
        self._appender.append(data)

    def close(self) -> None:
        """Close the file; the receipts stay."""
        if self._appender is not None:
            self._appender.close()
            self._appender = None


# -- packing -------------------------------------------------------------------------


def pack(storage: Storage, pair_folder: str, index: int) -> int:
    """Move the receipts of an empty backlog queue into one Parquet file.

    Call it only when nothing of the queue is ready or locked. Returns how many there
    were. Files that are still written to stay. A crash in between repeats the same
    file under the same name.
    """
    entries = storage.entries(receipts_folder(pair_folder, index))
    free = [each for each in entries if not storage.is_in_use(each.name)]
    packed = 0
    for first in range(0, len(free), limits.JOURNAL_PACK_FILES_MAX):
        part = free[first : first + limits.JOURNAL_PACK_FILES_MAX]
        batches = [
            batch for each in part for batch in read_batches(storage.read(each.name))[0]
        ]
        if batches:
            table = pa.Table.from_batches(batches, SCHEMA)
            packed += len(table)
            names = "\n".join(each.name for each in part)
            digest = hashlib.sha256(names.encode()).hexdigest()[:16]
            sink = pa.BufferOutputStream()
            parquet.write_table(table, sink, compression="zstd")
            name = f"{pair_folder}/{_MOVED}/{index}-{digest}.parquet"
            storage.write(name, sink.getvalue().to_pybytes())
        for each in part:
            storage.delete(each.name)
    return packed


def all_receipts(storage: Storage, pair_folder: str) -> dict[int, pa.Table]:
    """Every receipt that there is by backlog queue, packed or not; for reports."""
    found: dict[int, list[pa.Table]] = {}
    for name in storage.folders(f"{pair_folder}/{_RECEIPTS}"):
        for entry in storage.entries(f"{pair_folder}/{_RECEIPTS}/{name}"):
            batches, _ = read_batches(storage.read(entry.name))
            table = pa.Table.from_batches(batches, SCHEMA)
            found.setdefault(int(name), []).append(table)
    for entry in storage.entries(f"{pair_folder}/{_MOVED}"):
        index = int(entry.name.rpartition("/")[2].partition("-")[0])
        table = parquet.read_table(pa.BufferReader(storage.read(entry.name)))
        found.setdefault(index, []).append(table.cast(SCHEMA))
    return {index: pa.concat_tables(tables) for index, tables in found.items()}
