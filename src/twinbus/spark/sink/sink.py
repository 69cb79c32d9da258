"""The sink: rows of a DataFrame to queues and topics, in batches and in streams.

A task encodes its rows (`encoding.py`), sends them (`sending.py`), and settles the
locks that they carry if they came from a source that left that to us (`settling.py`),
in this order: a message is removed over there only when it was accepted here. Rule: a
task that runs again sends the same message ids, so that an entity with duplicate
detection takes every row once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from twinbus import limits
from twinbus.errors import ArgumentError, RemoteError, TwinbusError
from twinbus.spark.checking import check_send
from twinbus.spark.connections import connection_for
from twinbus.spark.options import ACCESS, Access, Options
from twinbus.spark.settling import LockSettler, RowLock, read_lock
from twinbus.spark.sink.bad_rows import BadRows
from twinbus.spark.sink.encoding import (
    Identity,
    Row,
    check_columns,
    encode_row,
    rows_of,
)
from twinbus.spark.sink.sending import RowMessage, RowRefused, RowSender, WaitBudget

_SOURCE_ACCESS = (
    "sourceConnectionString",
    "sourceConnectionStringEnv",
    "sourceConnectionStringFile",
)
_KNOWN = (*ACCESS, *_SOURCE_ACCESS, "entity", "badRows", "taskBudgetSeconds")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What the options of a sink say."""

    access: Access
    # Where rows with locks came from.
    source: Access
    # None: each row says it.
    entity: str | None
    bad_rows: str | None
    wait_seconds: int

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType) -> SinkSettings:
        """Read the options, and see whether they and the columns are enough."""
        options = Options(given, _KNOWN)
        check_columns(schema)
        access = options.access()
        entity = options.text("entity")
        if entity is None and "entity" not in schema.fieldNames():
            raise ArgumentError(
                "Option 'entity' is missing, and there is no column of that name: "
                "one of them has to name the queue or topic."
            )
        return cls(
            access,
            options.optional_access(_SOURCE_ACCESS) or access,
            entity,
            options.folder("badRows"),
            options.integer(
                "taskBudgetSeconds",
                limits.SINK_TASK_SECONDS,
                low=0,
                high=limits.TASK_SECONDS_MAX,
            ),
        )


@dataclass
class Written(WriterCommitMessage):
    """What one task did."""

    sent: int = 0
    bad: int = 0
    settled: int = 0
    # Sent, but the lock had ended: the message will be received and sent again.
    lost: int = 0


class Writer(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        # Attempts of one write share it; another write of the same rows has another.
        self._name = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send one partition; runs in a task."""
        context = TaskContext.get()
        assert context is not None
        identity = Identity(self._name, 0, context.partitionId())
        return write_partition(self._settings, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what was done; what was accepted stays."""
        _report(self._settings, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: what was accepted cannot be taken back."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send one partition of a batch; runs in a task."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None
        assert batch is not None
        identity = Identity(query, int(batch), context.partitionId())
        return write_partition(self._settings, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Say what was done; what was accepted stays."""
        del batchId
        _report(self._settings, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what was accepted cannot be taken back."""


def writer(given: Mapping[str, str], schema: StructType) -> Writer:
    """The writer of a DataFrame, once all that it needs is there."""
    return Writer(_checked(given, schema, 0.0))


def stream_writer(given: Mapping[str, str], schema: StructType) -> StreamWriter:
    """The writer of a stream, once all that it needs is there."""
    return StreamWriter(_checked(given, schema, limits.STREAM_AWAY_SECONDS))


def _checked(
    given: Mapping[str, str], schema: StructType, wait_seconds: float
) -> SinkSettings:
    settings = SinkSettings.of(given, schema)
    check_send(settings.access, settings.entity, wait_seconds)
    return settings


def _report(settings: SinkSettings, messages: list[WriterCommitMessage | None]) -> None:
    done = [each for each in messages if isinstance(each, Written)]
    bad = sum(each.bad for each in done)
    lost = sum(each.lost for each in done)
    if bad:
        sent = sum(each.sent for each in done)
        place = settings.bad_rows
        _log.warning("%d rows were sent, %d could not be: see %s", sent, bad, place)
    if lost:
        _log.warning(
            "The locks of %d messages ended before they were settled; they will be "
            "received again. Give their entity a longer lock, or use fewer messages "
            "in a batch (maxMessagesPerBatch).",
            lost,
        )


# -- one task ------------------------------------------------------------------------


def write_partition(
    settings: SinkSettings, identity: Identity, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Send the rows of one task, and settle what they hold."""
    with ExitStack() as stack:
        bad: BadRows | None = None
        if settings.bad_rows is not None:
            name = "-".join(map(str, identity))
            bad = stack.enter_context(BadRows(settings.bad_rows, name))
        task = _Task(settings, identity, bad)
        stack.callback(task.close)
        first = 0
        for batch in batches:
            task.add(batch, first)
            first += batch.num_rows
        return task.finish()


class _Origin(NamedTuple):
    """The row that a message was made of, for when it turns out to be bad."""

    batch: pa.RecordBatch
    at: int
    lock: RowLock | None


@dataclass(slots=True)
class _Outbox:
    """Messages that wait, by entity."""

    messages: dict[str, list[RowMessage]] = field(default_factory=dict)
    bytes: int = 0

    def add(self, entity: str, message: RowMessage) -> None:
        self.messages.setdefault(entity, []).append(message)
        self.bytes += len(message.payload)


class _Task:
    """Encodes, sends and settles."""

    def __init__(
        self, settings: SinkSettings, identity: Identity, bad: BadRows | None
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._bad = bad
        self._done = Written()
        self._outbox = _Outbox()
        # Rows that were taken and are not dealt with, by their number.
        self._origins: dict[int, _Origin] = {}
        # Locks of bad rows, which are settled once the file of those is durable.
        self._bad_locks: list[RowLock] = []
        self._settler = LockSettler(connection_for(settings.source))
        self._sending = RowSender(
            connection_for(settings.access),
            WaitBudget(settings.wait_seconds),
            self._refuse,
            self._renew,
        )

    def add(self, batch: pa.RecordBatch, first: int) -> None:
        """Put the rows of a batch on their way."""
        for row in rows_of(batch, first):
            self._take(batch, row)
            if self._outbox.bytes >= limits.SINK_BUFFER_BYTES:
                self._flush()
        # No message may hold on to a batch when the next one comes.
        self._flush()

    def finish(self) -> Written:
        """Everything was sent: keep the bad rows and say what was done."""
        if self._bad is not None:
            self._bad.keep()
            self._done.bad = self._bad.count
            self._complete(self._bad_locks)
            self._bad_locks = []
        return self._done

    def close(self) -> None:
        """Give back what is locked and was not sent."""
        held = [each.lock for each in self._origins.values() if each.lock is not None]
        with suppress(RemoteError):
            self._settler.abandon([*held, *self._bad_locks])
        with suppress(RemoteError):
            self._sending.close()

    def _take(self, batch: pa.RecordBatch, row: Row) -> None:
        identity = self._identity
        given = row.values.get("message_id")
        named = "" if given is None else f" (message_id '{given}')"
        key = f"Row {row.number} of partition {identity.partition}{named}"
        lock = self._lock(row.values.get("lock_token"))
        self._origins[row.number] = _Origin(batch, row.at, lock)
        entity = self._settings.entity or row.values.get("entity") or ""
        message = RowMessage(key, b"", row.number)
        if not entity:
            null = ArgumentError("'entity' is null, and there is no option for it.")
            self._refuse(message, entity, null)
            return
        try:
            payload = encode_row(
                row.values,
                lambda content: identity.message_id(row.number, content),
            )
        except ArgumentError as error:
            self._refuse(message, entity, error)
        else:
            self._outbox.add(entity, message._replace(payload=payload))

    def _lock(self, text: str | None) -> RowLock | None:
        if text is None:
            return None
        lock = read_lock(text)
        self._settler.check(lock)
        return lock

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, _Outbox()
        for entity, messages in outbox.messages.items():
            self._sending.send(entity, messages)
            # Bad rows are no longer among the origins.
            sent = [self._origins.pop(each.row, None) for each in messages]
            accepted = [each for each in sent if each is not None]
            self._done.sent += len(accepted)
            self._complete([each.lock for each in accepted if each.lock is not None])

    def _complete(self, locks: list[RowLock]) -> None:
        lost = self._settler.complete(locks)
        self._done.settled += len(locks) - lost
        self._done.lost += lost

    def _refuse(self, message: RowMessage, entity: str, error: TwinbusError) -> None:
        """Keep a row that can never be sent, or fail with its key."""
        text = f"{message.key} cannot be sent to '{entity}': {error.text}"
        if self._bad is None:
            raise RowRefused(
                f"{text} Option 'badRows' names a folder where such rows are kept."
            )
        origin = self._origins.pop(message.row)
        self._bad.add(origin.batch, origin.at, text)
        if origin.lock is not None:
            self._bad_locks.append(origin.lock)

    def _renew(self) -> None:
        """There will be a pause: what waits shall still be ours after it."""
        held = [each.lock for each in self._origins.values() if each.lock is not None]
        with suppress(RemoteError):
            self._settler.renew(held)
