"""`format("servicebus")`: the class that Spark calls.

Each method reads the options anew, checks them, then opens a link to the namespace, so
that an error is reported once, in one sentence, before there is a task. The work is
done by `browsing.py` and `streams.py` (reading) and `sink.py` (writing).
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from twinbus.errors import ArgumentError, TwinbusError
from twinbus.spark.checking import check_browse, check_receive
from twinbus.spark.schema import spark_schema
from twinbus.spark.sink import sink
from twinbus.spark.source.browsing import BrowseReader
from twinbus.spark.source.settings import PEEK, SourceSettings
from twinbus.spark.source.streams import RefusedReader, reader_of


class ServiceBusSource(DataSource):
    """Queues, topics and subscriptions as DataFrames."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "servicebus"

    def schema(self) -> StructType:
        """The columns. Asked when a DataFrame is loaded, so all is checked here."""
        settings = SourceSettings.of(self.options)
        if settings.settle in (None, PEEK):
            check_browse(settings.access, settings.path)
        else:
            check_receive(settings.access, settings.path, sessions=settings.sessions)
        return spark_schema(locks=settings.locks)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        settings = self._settings(schema)
        if settings.settle is not None:
            raise ArgumentError(
                "Option 'settle' is for streams: spark.read looks at messages and "
                "leaves them. Remove the option, or use spark.readStream."
            )
        return BrowseReader(settings)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`.

        Spark loads a stream exactly as a batch, so this is the first call that tells
        them apart. PySpark 4.2 hides an error of this method behind an
        UnboundLocalError of its own, so the reader raises it.
        """
        try:
            settings = self._settings(schema)
            if settings.settle is None:
                raise ArgumentError(
                    "Option 'settle' is missing: spool removes messages once they are "
                    "in a file, sink lets our sink remove them, peek leaves them."
                )
            return reader_of(settings)
        except TwinbusError as error:
            return RefusedReader(error.with_traceback(None))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `write`."""
        if overwrite:
            raise ArgumentError(
                "A queue or topic cannot be overwritten. Use mode('append')."
            )
        return sink.writer(self.options, schema)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """For `writeStream`."""
        if overwrite:
            raise ArgumentError(
                "A queue or topic cannot be overwritten. Use outputMode('append') or "
                "('update')."
            )
        return sink.stream_writer(self.options, schema)

    def _settings(self, schema: StructType) -> SourceSettings:
        settings = SourceSettings.of(self.options)
        own = spark_schema(locks=settings.locks)
        if schema.simpleString() != own.simpleString():
            raise ArgumentError(
                "The columns of a message are fixed. Remove schema(...), and select or "
                "cast what you need."
            )
        return settings
