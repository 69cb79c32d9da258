"""Times and durations as values of properties.

Owns how they are written: a time is a timestamp, a duration is .NET's timespan in
ticks of 100 nanoseconds. How a value that cannot be a time is read is the reader's own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twinbus.wire.message.names import TIMESPAN
from twinbus.wire.types import Described, Timestamp

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
MICROSECOND = timedelta(microseconds=1)
TICKS_PER_MICROSECOND = 10


def to_wire(value: object) -> object:
    """A value as AMQP has it; all but times and durations stay as they are."""
    if isinstance(value, datetime):
        # A time without a zone is UTC.
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return Timestamp((zoned - EPOCH) // MILLISECOND)
    if isinstance(value, timedelta):
        return Described(TIMESPAN, value // MICROSECOND * TICKS_PER_MICROSECOND)
    return value
