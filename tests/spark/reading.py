"""Readers as Spark drives them, in this process: plan, then read each partition."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from twinbus.spark.schema import arrow_schema, spark_schema
from twinbus.spark.source.settings import SourceSettings
from twinbus.spark.source.source import ServiceBusSource

Row = dict[str, Any]


def read_partition(
    reader: Any, partition: InputPartition, *, locks: bool = False
) -> list[Row]:
    """The rows of one partition; every batch has the schema that Spark wants."""
    rows: list[Row] = []
    for batch in reader.read(partition):
        assert batch.schema.equals(arrow_schema(locks=locks))
        rows += batch.to_pylist()
    return rows


def browse(options: dict[str, str]) -> list[list[Row]]:
    """The partitions of `spark.read`."""
    source = ServiceBusSource(options)
    reader = source.reader(source.schema())
    assert isinstance(reader, DataSourceReader)
    return [read_partition(reader, each) for each in reader.partitions()]


class Stream:
    """A query: it keeps its offset and runs batches one after the other."""

    def __init__(self, options: dict[str, str]) -> None:
        self.settings = SourceSettings.of(options)
        schema = spark_schema(locks=self.settings.locks)
        self.reader: Any = ServiceBusSource(options).streamReader(schema)
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def plan(self, limit: ReadLimit | None = None) -> list[InputPartition] | None:
        """The partitions of the next batch; None if there is nothing to do."""
        limit = limit or self.reader.getDefaultReadLimit() or ReadAllAvailable()
        end = self.reader.latestOffset(self.offset, limit)
        if end == self.offset:
            return None
        self._end = end
        return list(self.reader.partitions(self.offset, end))

    def again(self) -> list[InputPartition]:
        """The partitions of the batch that was planned last, as after a restart."""
        return list(self.reader.partitions(self.offset, self._end))

    def read(self, partitions: list[InputPartition]) -> list[list[Row]]:
        """The rows of a batch by partition."""
        locks = self.settings.locks
        return [read_partition(self.reader, each, locks=locks) for each in partitions]

    def commit(self) -> None:
        """The batch is done."""
        self.offset = self._end

    def run(self) -> list[list[Row]]:
        """All batches until there is nothing to do; returns the rows of each."""
        self.reader.prepareForTriggerAvailableNow()
        batches: list[list[Row]] = []
        while (planned := self.plan()) is not None:
            batches.append([row for part in self.read(planned) for row in part])
            self.commit()
        return batches

    def close(self) -> None:
        """The query has ended."""
        self.reader.stop()


def ids_of(rows: list[Row]) -> list[str]:
    """The ids of messages."""
    return [row["message_id"] for row in rows]
