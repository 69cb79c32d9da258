"""Streams: the readers behind `settle`, one class for each way.

| `settle` | an offset is       | a batch that runs again                        |
|----------|--------------------|------------------------------------------------|
| spool    | the batch's number | reads the files of the first time, and goes on |
| sink     | the batch's number | receives what was not settled                  |
| peek     | a sequence number  | looks at the same numbers                      |

Spark calls `commit` for a batch only when it builds the next one, and never for the
last. So nothing is settled there. That a batch is committed is known from
`latestOffset`, whose `start` is the end of the last one that is.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from twinbus import limits
from twinbus.client.sync.management import Management
from twinbus.errors import RemoteError, TwinbusError
from twinbus.spark.connections import connection_for
from twinbus.spark.settling import LockSettler, RowLock
from twinbus.spark.source.browsing import (
    Range,
    first_from,
    last_from,
    read_range,
    split,
)
from twinbus.spark.source.intake import Chunk, Intake, Share
from twinbus.spark.source.rows import RowBatch
from twinbus.spark.source.settings import SINK, SPOOL, SourceSettings
from twinbus.spark.source.spool import SpooledSlice, Sweeper
from twinbus.spark.source.watching import EntityWatch


class ConsumingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What `spool` and `sink` share: batches by number, and shares of them."""

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings
        self.watch = EntityWatch(settings)

    def initialOffset(self) -> dict[str, int]:
        """Before the first batch."""
        return {"epoch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tasks keep to it."""
        return ReadMaxRows(self.settings.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now."""
        self.watch.aim()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The next batch if there is something to receive; `start` is committed."""
        del limit
        self.committed(start["epoch"])
        if not self.watch.has_work():
            return start
        return {"epoch": start["epoch"] + 1}

    def committed(self, epoch: int) -> None:
        """The batch and all before it are committed."""

    def slices(self, epoch: int) -> int:
        """How many tasks the batch has."""
        del epoch
        return self.settings.parallelism

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Sequence[InputPartition]:
        """A share for each task. A session belongs to one of them alone."""
        del start
        epoch: int = end["epoch"]
        count = self.slices(epoch)
        sessions = self._sessions() if self.settings.sessions else None
        return [
            InputPartition(
                Share(
                    epoch,
                    at,
                    # The first ones get what is left over.
                    -(-(self.settings.messages_max - at) // count),
                    None if sessions is None else _of_slice(sessions, at, count),
                )
            )
            for at in range(count)
        ]

    def stop(self) -> None:
        """The query has ended."""
        with suppress(RemoteError):
            self.watch.close()

    def intake(self, share: Share) -> Intake:
        """What a task receives from."""
        settings = self.settings
        connection = connection_for(settings.access)
        return Intake(
            connection, settings.path, share, settings.chunk, settings.task_seconds
        )

    def _sessions(self) -> list[str]:
        management = self.watch.connection.management(self.settings.path)
        found: list[str] = []
        while len(found) < limits.BATCH_SESSIONS_MAX:
            skip = len(found)
            page = self.watch.ask(
                partial(management.sessions, skip, limits.SOURCE_SESSIONS_PAGE)
            )
            found += page
            if len(page) < limits.SOURCE_SESSIONS_PAGE:
                break
        return found


def _of_slice(sessions: list[str], at: int, count: int) -> tuple[str, ...]:
    """The sessions of one slice: the same ones however often a batch is planned."""
    return tuple(each for each in sessions if zlib.crc32(each.encode()) % count == at)


class SpoolReader(ConsumingReader):
    """`settle=spool`: in a file first, then removed, then handed on."""

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(settings)
        self._sweeper = Sweeper(settings)

    def committed(self, epoch: int) -> None:
        """Files of committed batches are no longer needed."""
        self.watch.ask(lambda: self._sweeper.sweep(epoch))

    def slices(self, epoch: int) -> int:
        """As many as when the batch was planned first, whatever the option says."""
        return self._sweeper.spool.plan(epoch, self.settings.parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One slice; runs in a task."""
        share: Share = partition.value
        return SpooledSlice(self.settings, share).read(self.intake(share))


class SinkReader(ConsumingReader):
    """`settle=sink`: rows carry their locks, and our sink settles them."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One share; runs in a task.

        A query that stops in the middle (a limit, a failure downstream) gets no more,
        and what it had goes back. What the sink has settled by then stays settled.
        """
        place = self.settings.place
        held: list[RowLock] = []
        try:
            for chunk in self.intake(partition.value).chunks(kept=True):
                held += [RowLock(token, *place) for token in _tokens(chunk)]
                batch = RowBatch(place, locks=True)
                for message in chunk.messages:
                    batch.add(message)
                yield batch.take()
        except BaseException:
            with suppress(RemoteError):
                LockSettler(connection_for(self.settings.access)).abandon(held)
            raise


def _tokens(chunk: Chunk) -> list[UUID]:
    return [each.lock_token for each in chunk.messages if each.lock_token is not None]


class PeekReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`settle=peek`: browsing, a range of numbers at a time."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._watch = EntityWatch(settings)
        # The last number to look at, and whether the run ends there.
        self._last = settings.last_sequence
        self._ends = False

    def initialOffset(self) -> dict[str, int]:
        """Before the first number."""
        return {"sequence": self._settings.first_sequence - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        """So many numbers at most."""
        return ReadMaxRows(self._settings.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now."""
        self._ends = True
        start = self._settings.first_sequence
        first = self._watch.ask(lambda: first_from(self._management, start))
        if first is None:
            self._last = 0
            return
        self._last = self._watch.ask(
            lambda: last_from(self._management, first, self._last)
        )

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The last number of the next batch."""
        after: int = start["sequence"]
        first = self._following(after)
        if first is None or first > self._last:
            return start
        high = self._last
        if isinstance(limit, ReadMaxRows):
            high = min(high, first + limit.max_rows - 1)
        last = self._watch.ask(lambda: last_from(self._management, first, high))
        return {"sequence": last}

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Sequence[InputPartition]:
        """The numbers in between, cut into ranges."""
        wanted = Range(start["sequence"] + 1, end["sequence"])
        return [
            InputPartition(each) for each in split(wanted, self._settings.parallelism)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range; runs in a task."""
        return read_range(self._settings, partition.value)

    @property
    def _management(self) -> Management:
        return self._watch.connection.management(self._settings.path)

    def _following(self, after: int) -> int | None:
        """The first number behind another, waited for a little: a peek never waits."""
        found = self._watch.ask(lambda: first_from(self._management, after + 1))
        if found is None and not self._ends:
            threading.Event().wait(limits.SOURCE_PEEK_SECONDS)
        return found


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot start: whatever Spark asks first is answered with why."""

    def __init__(self, error: TwinbusError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        """Asked first by a new query."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Asked first by a query that goes on from a checkpoint."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        """Asked first by one that is to end by itself."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Never answered."""
        del start, limit
        raise self._error

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """Asked first where a checkpoint has a batch that is to run again."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Never asked."""
        del partition
        raise self._error


def reader_of(settings: SourceSettings) -> DataSourceStreamReader:
    """The reader of a way to settle."""
    if settings.settle == SPOOL:
        return SpoolReader(settings)
    if settings.settle == SINK:
        return SinkReader(settings)
    return PeekReader(settings)
