"""Rows as messages: the columns of a batch to the bytes that are sent.

The other way round than `rows.py`, and only the columns that a sender decides: what the
service writes on a message (sequence number, state, delivery count) is passed over.
Rule: a column of the wrong type is refused by its name before the first row; a value
that cannot be written is an `ArgumentError` about its row. Does no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    MapType,
    StringType,
    StructType,
)

from twinbus import limits
from twinbus.errors import ArgumentError, PeerError
from twinbus.spark import values
from twinbus.spark.schema import COLUMNS, LOCK_COLUMNS
from twinbus.wire.codec import encode
from twinbus.wire.message import bodies, names, sections
from twinbus.wire.message.writing import section
from twinbus.wire.types import Symbol, Timestamp, UInt

_TTL_MS_MAX = 0xFFFFFFFF
# What may be given instead of the source's own type, because people have it.
_ALSO: dict[str, tuple[DataType, ...]] = {
    "body": (StringType(),),
    "application_properties": (MapType(StringType(), StringType()),),
}
# Columns that are read; all others of the source are passed over.
_TEXTS = {
    "session_id": sections.GROUP_ID,
    "correlation_id": sections.CORRELATION_ID,
    "subject": sections.SUBJECT,
    "content_type": sections.CONTENT_TYPE,
    "reply_to": sections.REPLY_TO,
    "to": sections.TO,
}
_READ = frozenset(
    {
        *_TEXTS,
        "entity",
        "message_id",
        "partition_key",
        "time_to_live",
        "scheduled_enqueue_at",
        "application_properties",
        "body",
        "body_type",
        "lock_token",
    }
)
_TIMES = frozenset({"time_to_live", "scheduled_enqueue_at"})


def check_columns(schema: StructType) -> None:
    """Refuse columns that a message has no place for, or that have a wrong type."""
    known = {**COLUMNS, **LOCK_COLUMNS}
    for field in schema.fields:
        wanted = known.get(field.name)
        if wanted is None:
            raise ArgumentError(
                f"Column '{field.name}' has no place in a message. Drop it, or put it "
                f"into 'application_properties'. Known are {', '.join(known)}."
            )
        allowed = (wanted, *_ALSO.get(field.name, ()))
        if not any(_same(field.dataType, each) for each in allowed):
            names = " or ".join(each.simpleString() for each in allowed)
            raise ArgumentError(
                f"Column '{field.name}' must be {names}, not "
                f"{field.dataType.simpleString()}."
            )
    if "body" not in schema.fieldNames():
        raise ArgumentError("Column 'body' is missing; all others are optional.")


def _same(given: DataType, wanted: DataType) -> bool:
    """Whether two types differ in nothing but what may be null."""
    if isinstance(given, StringType):
        # Whatever its collation or length.
        return isinstance(wanted, StringType)
    return given.simpleString() == wanted.simpleString()


class Row(NamedTuple):
    """One row of a batch, and where it stands."""

    # Its place in the partition, and in its batch.
    number: int
    at: int
    values: Mapping[str, Any]


def rows_of(batch: pa.RecordBatch, first: int) -> Iterator[Row]:
    """The rows of a batch, a few at a time as Python objects."""
    wanted = [name for name in batch.schema.names if name in _READ]
    step = max(1, batch.num_rows * limits.SINK_PIECE_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, step):
        piece = batch.slice(start, step)
        columns = [_list(name, piece.column(name)) for name in wanted]
        for at, row in enumerate(zip(*columns, strict=True), start):
            yield Row(first + at, at, dict(zip(wanted, row, strict=True)))


def _list(name: str, column: pa.Array) -> list[Any]:
    if name in _TIMES:
        column = column.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


def encode_row(row: Mapping[str, Any], message_id: Callable[[bytes], str]) -> bytes:
    """The message of a row; `message_id` makes an id of a content that has none."""
    fields: list[Any] = [None] * 13
    for name, place in _TEXTS.items():
        fields[place] = row.get(name)
    fields[sections.CONTENT_TYPE] = _symbol(fields[sections.CONTENT_TYPE])
    while fields[-1] is None and len(fields) > 1:
        fields.pop()
    properties = _properties(row.get("application_properties"))
    body = _body(row.get("body"), row.get("body_type"))
    head = _head(row)
    tail = section(sections.APPLICATION_PROPERTIES, properties) if properties else b""
    tail += body
    given = row.get("message_id")
    if given is None:
        given = message_id(head + encode(fields) + tail)
    fields[sections.MESSAGE_ID] = given
    return head + section(sections.PROPERTIES, fields) + tail


class Identity(NamedTuple):
    """What the ids of one task's messages are made from, beside their contents."""

    # The query, or the write where there is none.
    query: str
    batch: int
    partition: int

    def message_id(self, row: int, content: bytes) -> str:
        """The same for a row that is written again, and for no other.

        The content is part of it: should rows come in another order the second time,
        they are sent twice rather than taken for each other and dropped.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{self.query}/{self.batch}/{self.partition}/{row}/".encode())
        digest.update(content)
        return digest.hexdigest()


def _head(row: Mapping[str, Any]) -> bytes:
    ttl_ms: UInt | None = None
    if (ttl_us := row.get("time_to_live")) is not None:
        if ttl_us < 1000:
            raise ArgumentError("'time_to_live' must be a millisecond at least.")
        ttl_ms = UInt(min(ttl_us // 1000, _TTL_MS_MAX))
    head = section(sections.HEADER, [True, None, ttl_ms])
    annotations: dict[Any, Any] = {}
    if (scheduled_us := row.get("scheduled_enqueue_at")) is not None:
        scheduled = Timestamp(scheduled_us // 1000)
        annotations[names.SCHEDULED_ENQUEUE_TIME] = scheduled
    if (key := row.get("partition_key")) is not None:
        annotations[names.PARTITION_KEY] = key
    if annotations:
        head += section(sections.MESSAGE_ANNOTATIONS, annotations)
    return head


def _symbol(value: str | None) -> Symbol | None:
    if value is None:
        return None
    if not value.isascii():
        raise ArgumentError("'content_type' must be ASCII.")
    return Symbol(value)


def _properties(pairs: list[tuple[str, Any]] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, pair in pairs or ():
        if pair is None or isinstance(pair, str):
            found[name] = pair
            continue
        try:
            found[name] = values.read(pair["type"], pair["value"])
        except ArgumentError as error:
            raise ArgumentError(f"Property '{name}': {error.text}") from None
    return found


def _body(body: bytes | str | None, kind: str | None) -> bytes:
    content = body.encode() if isinstance(body, str) else body or b""
    kind = bodies.DATA if kind is None else kind
    if kind not in bodies.KINDS:
        raise ArgumentError(
            f"'body_type' is '{kind}'. Use data, string, value or sequence."
        )
    try:
        return bodies.write_body(content, kind)
    except PeerError:
        wanted = "UTF-8" if kind == bodies.STRING else f"AMQP {kind}"
        raise ArgumentError(f"'body' is no {wanted}, as 'body_type' says.") from None
