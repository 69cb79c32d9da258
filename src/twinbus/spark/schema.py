"""The columns of messages, for Spark and for Arrow.

One list of columns serves source and sink, in this order. Rule: batches carry exactly
the Arrow schema that Spark makes of its own, nullability included, because Spark
compares the two and refuses any difference. Knows nothing about messages.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

PROPERTY = StructType(
    [StructField("type", StringType()), StructField("value", StringType())]
)
PROPERTIES = MapType(StringType(), PROPERTY)

COLUMNS: Final[dict[str, DataType]] = {
    "entity": StringType(),
    "sequence_number": LongType(),
    "enqueued_at": TimestampType(),
    "message_id": StringType(),
    "session_id": StringType(),
    "correlation_id": StringType(),
    "subject": StringType(),
    "content_type": StringType(),
    "reply_to": StringType(),
    "to": StringType(),
    "partition_key": StringType(),
    "time_to_live": DayTimeIntervalType(),
    "scheduled_enqueue_at": TimestampType(),
    "delivery_count": IntegerType(),
    "state": StringType(),
    "dead_letter_reason": StringType(),
    "dead_letter_description": StringType(),
    "application_properties": PROPERTIES,
    "body": BinaryType(),
    "body_type": StringType(),
}
# What rows carry in addition that our own sink shall settle.
LOCK_COLUMNS: Final[dict[str, DataType]] = {
    "lock_token": StringType(),
    "locked_until": TimestampType(),
}


@cache
def spark_schema(*, locks: bool) -> StructType:
    """The columns as Spark knows them."""
    columns = {**COLUMNS, **(LOCK_COLUMNS if locks else {})}
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@cache
def arrow_schema(*, locks: bool) -> pa.Schema:
    """The columns as batches carry them: times in microseconds, UTC."""
    return to_arrow_schema(spark_schema(locks=locks), timezone="UTC")
