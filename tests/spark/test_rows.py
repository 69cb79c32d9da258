"""Messages as rows and back, without Spark or a server in between."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from twinbus import limits
from twinbus.client.message import Message
from twinbus.errors import ArgumentError
from twinbus.spark.schema import COLUMNS, arrow_schema, spark_schema
from twinbus.spark.settling import RowLock, read_lock
from twinbus.spark.sink.encoding import Identity, check_columns, encode_row, rows_of
from twinbus.spark.source.rows import Place, RowBatch
from twinbus.wire.codec import encode
from twinbus.wire.message import sections
from twinbus.wire.types import Described, Int, Symbol, Timestamp, UInt, ULong

PLACE = Place("localhost:5672", "orders/$DeadLetterQueue")
TOKEN = UUID(int=7)


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def payload(*body: bytes, fields: list[Any] | None = None) -> bytes:
    """A message as a server sends it."""
    annotations = {
        Symbol("x-opt-sequence-number"): 12,
        Symbol("x-opt-enqueued-time"): Timestamp(1_700_000_000_001),
        Symbol("x-opt-locked-until"): Timestamp(1_700_000_060_001),
        Symbol("x-opt-message-state"): Int(1),
        Symbol("x-opt-partition-key"): "key",
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(1_700_000_000_000),
    }
    if fields is None:
        fields = ["id", None, "to", "subject", "reply", "correlation"]
        fields += [Symbol("text/plain"), None, None, None, "session", None, None]
    properties = {"DeadLetterReason": "why", "n": Int(5), "none": None}
    return b"".join(
        (
            section(sections.HEADER, [True, None, UInt(5000), None, UInt(3)]),
            section(sections.MESSAGE_ANNOTATIONS, annotations),
            section(sections.PROPERTIES, fields),
            section(sections.APPLICATION_PROPERTIES, properties),
            *body,
        )
    )


def row_of(message: bytes, *, locks: bool = False) -> dict[str, Any]:
    rows = RowBatch(PLACE, locks=locks)
    rows.add(Message(message, TOKEN))
    [row] = rows.take().to_pylist()
    return dict(row)


def sent(row: dict[str, Any], **changes: Any) -> Message:
    """What a sink would send for a row of the source."""
    batch = pa.RecordBatch.from_pylist(
        [{**row, **changes}], schema=arrow_schema(locks=False)
    )
    [found] = rows_of(batch, 0)
    return Message(encode_row(found.values, lambda _: "made"))


def test_every_column_has_its_value() -> None:
    row = row_of(payload(section(sections.DATA, b"body")), locks=True)

    assert list(row) == [*COLUMNS, "lock_token", "locked_until"]
    times = ("enqueued_at", "scheduled_enqueue_at", "locked_until")
    assert [row.pop(name).timestamp() for name in times] == [
        1_700_000_000.001,
        1_700_000_000.0,
        1_700_000_060.001,
    ]
    assert row.pop("time_to_live").total_seconds() == 5
    assert row == {
        "entity": "orders/$DeadLetterQueue",
        "sequence_number": 12,
        "message_id": "id",
        "session_id": "session",
        "correlation_id": "correlation",
        "subject": "subject",
        "content_type": "text/plain",
        "reply_to": "reply",
        "to": "to",
        "partition_key": "key",
        "delivery_count": 3,
        "state": "deferred",
        "dead_letter_reason": "why",
        "dead_letter_description": None,
        "application_properties": [
            ("DeadLetterReason", {"type": "string", "value": "why"}),
            ("n", {"type": "int", "value": "5"}),
            ("none", {"type": "null", "value": None}),
        ],
        "body": b"body",
        "body_type": "data",
        "lock_token": f"{TOKEN}@localhost:5672/orders/$DeadLetterQueue",
    }


BODIES = [
    ([section(sections.DATA, b"a")], b"a", "data"),
    ([section(sections.DATA, b"a"), section(sections.DATA, b"b")], b"ab", "data"),
    ([section(sections.DATA, b"")], b"", "data"),
    ([section(sections.VALUE, "täxt")], "täxt".encode(), "string"),
    ([section(sections.VALUE, "x" * 300)], b"x" * 300, "string"),
    ([section(sections.VALUE, Int(5))], encode(Int(5)), "value"),
    ([section(sections.VALUE, None)], encode(None), "value"),
    (
        [section(sections.SEQUENCE, [1]), section(sections.SEQUENCE, ["b"])],
        encode([1]) + encode(["b"]),
        "sequence",
    ),
]


@pytest.mark.parametrize(("body", "content", "kind"), BODIES)
def test_a_body_keeps_its_kind(body: list[bytes], content: bytes, kind: str) -> None:
    row = row_of(payload(*body))

    assert (row["body"], row["body_type"]) == (content, kind)
    again = sent(row)
    whole = [section(sections.DATA, content)] if kind == "data" else body
    assert again.payload.endswith(b"".join(whole))


def test_a_message_without_a_body_is_a_row_without_one() -> None:
    row = row_of(payload())

    assert (row["body"], row["body_type"]) == (None, None)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (ULong(5), "5"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (b"\x05", "05"),
    ],
)
def test_ids_of_other_types_are_written_out(given: Any, text: str) -> None:
    assert row_of(payload(fields=[given]))["message_id"] == text


def test_a_row_of_the_source_is_the_same_message_again() -> None:
    first = Message(payload(section(sections.DATA, b"body")))

    again = sent(row_of(first.payload))

    assert again.properties == first.properties
    assert again.application_properties == first.application_properties
    assert type(again.application_properties["n"]) is Int
    assert again.header[:3] == [True, None, UInt(5000)]
    assert again.annotations == {
        "x-opt-partition-key": "key",
        "x-opt-scheduled-enqueue-time": Timestamp(1_700_000_000_000),
    }


def test_a_row_with_a_body_alone_is_enough() -> None:
    batch = pa.RecordBatch.from_pydict({"body": pa.array(["text"])})

    [row] = rows_of(batch, 0)
    message = Message(encode_row(row.values, lambda content: f"made-{len(content)}"))

    assert str(message.message_id).startswith("made-")
    assert message.payload.endswith(section(sections.DATA, b"text"))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"body_type": "text"}, "'body_type' is 'text'"),
        ({"body_type": "string", "body": b"\xff"}, "no UTF-8"),
        ({"body_type": "value", "body": b"\xff"}, "no AMQP value"),
        ({"body_type": "value", "body": b"\x40\x40"}, "no AMQP value"),
        ({"body_type": "sequence", "body": b"\x40"}, "no AMQP sequence"),
        ({"content_type": "ü"}, "'content_type'"),
        (
            {"application_properties": [("n", {"type": "int", "value": "x"})]},
            "Property 'n': 'x' is no int",
        ),
    ],
)
def test_a_row_that_is_no_message_is_refused(
    changes: dict[str, Any], error: str
) -> None:
    row = row_of(payload(section(sections.DATA, b"body")))

    with pytest.raises(ArgumentError, match=error):
        sent(row, **changes)


# -- sizes -----------------------------------------------------------------------------


def test_a_batch_is_full_by_its_bytes() -> None:
    rows = RowBatch(PLACE, locks=False)
    large = payload(section(sections.DATA, b"x" * 256 * 1024))

    while not rows.full:
        rows.add(Message(large))

    assert rows.rows == 16
    assert rows.bytes < limits.SOURCE_BATCH_BYTES + len(large)
    assert rows.take().num_rows == 16
    assert not rows.rows


def test_rows_are_numbered_through_all_batches() -> None:
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x" * 700_000] * 5)})

    found = list(rows_of(batch, 100))

    assert [(row.number, row.at) for row in found] == [
        (100 + at, at) for at in range(5)
    ]


# -- ids -------------------------------------------------------------------------------


def test_a_row_that_is_written_again_has_the_same_id() -> None:
    one = Identity("query", 5, 2)

    assert one.message_id(7, b"content") == Identity("query", 5, 2).message_id(
        7, b"content"
    )
    others = {
        one.message_id(8, b"content"),
        one.message_id(7, b"other"),
        Identity("query", 6, 2).message_id(7, b"content"),
        Identity("query", 5, 3).message_id(7, b"content"),
        Identity("other", 5, 2).message_id(7, b"content"),
    }
    assert len(others) == 5
    assert one.message_id(7, b"content") not in others


# -- locks -----------------------------------------------------------------------------


def test_a_lock_says_where_it_was_made() -> None:
    assert read_lock(PLACE.token(TOKEN)) == RowLock(TOKEN, *PLACE)


@pytest.mark.parametrize("text", ["", "x", f"{TOKEN}", f"{TOKEN}@host", "x@host/q"])
def test_a_lock_that_was_changed_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="lock_token"):
        read_lock(text)


# -- columns of a sink -----------------------------------------------------------------


def columns(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    "schema",
    [
        spark_schema(locks=False),
        spark_schema(locks=True),
        columns(body=StringType()),
        columns(
            body=BinaryType(),
            application_properties=MapType(StringType(), StringType(), False),
        ),
    ],
)
def test_columns_that_fit_are_taken(schema: StructType) -> None:
    check_columns(schema)


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        (columns(message_id=StringType()), "Column 'body' is missing"),
        (columns(body=BinaryType(), total=LongType()), "Column 'total' has no place"),
        (
            columns(body=BinaryType(), message_id=LongType()),
            "Column 'message_id' must be string, not bigint",
        ),
        (
            columns(body=IntegerType()),
            "Column 'body' must be binary or string, not int",
        ),
        (
            columns(body=BinaryType(), time_to_live=DoubleType()),
            "Column 'time_to_live' must be interval day to second, not double",
        ),
        (
            columns(body=BinaryType(), application_properties=ArrayType(StringType())),
            "Column 'application_properties' must be map",
        ),
    ],
)
def test_a_column_that_does_not_fit_is_named(schema: StructType, error: str) -> None:
    with pytest.raises(ArgumentError, match=error):
        check_columns(schema)
