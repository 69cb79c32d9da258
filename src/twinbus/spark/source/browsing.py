"""Browsing: messages by their sequence numbers, looked at and left alone.

A peek answers with the first message from a number on. That is enough to find the last
one (doubling steps, then halving them), to cut what lies between into ranges, and to
read a range again as often as one likes. Rule: nothing is locked, settled or counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from twinbus import limits
from twinbus.client.sync.management import Management
from twinbus.errors import RemoteError
from twinbus.spark.checking import explained
from twinbus.spark.connections import ask_until_answered, connection_for
from twinbus.spark.source.rows import RowBatch
from twinbus.spark.source.settings import SourceSettings


class Range(NamedTuple):
    """Sequence numbers from the first to the last, both included."""

    first: int
    last: int


NOTHING = Range(1, 0)


def first_from(management: Management, sequence: int) -> int | None:
    """The lowest number of a message at or above `sequence`."""
    found = management.peek(1, sequence)
    return found[0].sequence_number if found else None


def last_from(management: Management, sequence: int, high: int) -> int:
    """The highest number of a message up to `high`; `sequence` is one's number.

    `high` itself if there are messages above it.
    """
    low, step = sequence, 1
    while low < high:
        found = first_from(management, min(low + step, high))
        if found is None:
            high = min(low + step, high) - 1
            step = max(1, (high - low + 1) // 2)
        elif found >= high:
            return high
        else:
            low = found
            step = max(1, min(step * 2, (high - low + 1) // 2))
    return low


def whole(management: Management, wanted: Range) -> Range:
    """A range from its first message on, and no longer than there are messages."""
    first = first_from(management, wanted.first)
    if first is None or first > wanted.last:
        return NOTHING
    return Range(first, last_from(management, first, wanted.last))


def split(given: Range, parts: int) -> list[Range]:
    """A range as at most so many of about the same length; never none at all."""
    length = given.last - given.first + 1
    parts = max(1, min(parts, length))
    cuts = [given.first + length * at // parts for at in range(parts + 1)]
    return [Range(start, end - 1) for start, end in pairwise(cuts)]


def read_range(settings: SourceSettings, wanted: Range) -> Iterator[pa.RecordBatch]:
    """The messages of a range as they are now, in batches of limited size."""
    management = connection_for(settings.access).management(settings.path)
    batch = RowBatch(settings.place, locks=False)
    following = wanted.first
    while following <= wanted.last:
        # The service ends a reply by its bytes too, so it is never large.
        look = partial(management.peek, limits.PEEK_MESSAGES_MAX, following)
        found = ask_until_answered(look, limits.BROWSE_AWAY_SECONDS)
        inside = [each for each in found if each.sequence_number <= wanted.last]
        for message in inside:
            batch.add(message)
            if batch.full:
                yield batch.take()
        if not inside or len(inside) < len(found):
            break
        following = inside[-1].sequence_number + 1
    if batch.rows:
        yield batch.take()


class BrowseReader(DataSourceReader):
    """`spark.read`: what the entity holds when the read is planned."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of about the same length."""
        settings = self._settings
        management = connection_for(settings.access).management(settings.path)
        wanted = Range(settings.first_sequence, settings.last_sequence)
        try:
            look = partial(whole, management, wanted)
            found = ask_until_answered(look, limits.BROWSE_AWAY_SECONDS)
        except RemoteError as error:
            raise explained(error, settings.access, settings.path, "Listen") from None
        ranges = split(found, settings.parallelism)
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range; runs in a task."""
        return read_range(self._settings, partition.value)
