"""Messages as rows: received bytes to Arrow batches.

A batch is full when its bytes reach `limits.SOURCE_BATCH_BYTES`, however many rows that
is, so that a worker's memory does not follow the size of messages. Rule: everything in
the listed columns comes from the message itself; ids that are not strings are written
out as text. `wire/message/bodies.py` has the table of bodies. Does no I/O and settles
nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from twinbus import limits
from twinbus.client.message import Message
from twinbus.spark import values
from twinbus.spark.schema import arrow_schema
from twinbus.wire.message import names, sections
from twinbus.wire.message.bodies import read_body


class Place(NamedTuple):
    """Where a message was received, as its lock has to say."""

    # Host and port of the namespace.
    authority: str
    path: str

    def token(self, lock_token: UUID) -> str:
        """A lock as a row carries it; `settling.py` reads it again."""
        return f"{lock_token}@{self.authority}/{self.path}"


class RowBatch:
    """Rows that are gathered for one batch."""

    def __init__(self, place: Place, *, locks: bool) -> None:
        self._place = place
        self._locks = locks
        self._schema = arrow_schema(locks=locks)
        self._columns: list[list[Any]] = [[] for _ in self._schema]
        self.rows = 0
        self.bytes = 0

    @property
    def full(self) -> bool:
        """Whether it is time to hand it on."""
        return self.bytes >= limits.SOURCE_BATCH_BYTES

    def add(self, message: Message) -> None:
        """Append a message."""
        row = _row(message, self._place.path)
        if self._locks:
            token = message.lock_token
            row += (
                None if token is None else self._place.token(token),
                _microseconds(message.locked_until_ms),
            )
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self.rows += 1
        self.bytes += len(message.payload) + limits.SOURCE_ROW_BYTES

    def take(self) -> pa.RecordBatch:
        """The rows as a batch; what follows is another."""
        columns, self._columns = self._columns, [[] for _ in self._schema]
        self.rows = self.bytes = 0
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _row(message: Message, path: str) -> tuple[Any, ...]:
    """The values of a message in the order of the columns."""
    fields = message.properties
    annotations = message.annotations
    properties = message.application_properties
    header = message.header
    body, body_type = read_body(message.payload)
    return (
        path,
        message.sequence_number,
        _microseconds(message.enqueued_ms),
        _text(fields[sections.MESSAGE_ID]),
        _text(fields[sections.GROUP_ID]),
        _text(fields[sections.CORRELATION_ID]),
        _text(fields[sections.SUBJECT]),
        _text(fields[sections.CONTENT_TYPE]),
        _text(fields[sections.REPLY_TO]),
        _text(fields[sections.TO]),
        _text(annotations.get(names.PARTITION_KEY)),
        _microseconds(header[2]),
        _microseconds(annotations.get(names.SCHEDULED_ENQUEUE_TIME)),
        message.delivery_count,
        message.state,
        _text(properties.get(names.DEAD_LETTER_REASON)),
        _text(properties.get(names.DEAD_LETTER_DESCRIPTION)),
        [(str(name), _pair(value)) for name, value in properties.items()],
        body,
        body_type,
    )


def _pair(value: Any) -> dict[str, str | None]:
    kind, text = values.write(value)
    return {"type": kind, "value": text}


def _microseconds(milliseconds: Any) -> int | None:
    return int(milliseconds) * 1000 if isinstance(milliseconds, int) else None


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    return value.hex() if isinstance(value, bytes) else str(value)
