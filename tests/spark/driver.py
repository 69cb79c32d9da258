"""A driver of its own: a stream from a queue through a spool into another queue.

Started as a process by `test_killed_driver.py`, which kills it and goes on with `start`
in another session. Talks as much as a careless person would let it: logs, events and
the web pages of Spark are kept for the search for secrets.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.conftest import SETTINGS

# The variable that holds the connection string.
GIVEN = "TWINBUS_GIVEN"
SOURCE = "orders"
OUT = "copies"
# The word that asks for everything, and the driver's line when it has shown it.
SHOW = "show"
SHOWN = "All was shown."
SLICE_MESSAGES = 100
# More than people usually let it say; the rest of DEBUG would be megabytes.
_LOGS = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n%ex
logger.sources.name = org.apache.spark.sql.execution.datasources
logger.sources.level = debug
logger.python.name = org.apache.spark.api.python
logger.python.level = debug
"""
_PAGES = ("environment/", "SQL/", "StreamingQuery/", "jobs/", "executors/")


def start(spark: SparkSession, folder: Path, text: str) -> StreamingQuery:
    """Start the stream; it ends when the queue is empty."""
    options = {
        "connectionString": text,
        "entity": SOURCE,
        "settle": "spool",
        "spoolLocation": str(folder / "spool"),
        "maxMessagesPerBatch": str(2 * SLICE_MESSAGES),
        "parallelism": "2",
    }
    return (
        spark.readStream.format("servicebus")
        .options(**options)
        .load()
        # Without a column for it, the sink makes the ids of messages.
        .select("body")
        .writeStream.format("servicebus")
        .options(connectionString=text, entity=OUT)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def main(folder: Path) -> None:
    """Start the stream and wait for its end; before that, show what is asked for."""
    builder = SparkSession.builder.master("local[2,4]").appName("orders")
    events = folder / "events"
    events.mkdir(exist_ok=True)
    logs = folder / "log4j2.properties"
    logs.write_text(_LOGS)
    java = SETTINGS["spark.driver.extraJavaOptions"]
    own = {
        "spark.driver.extraJavaOptions": f"{java} -Dlog4j2.configurationFile={logs}",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(events),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for name, value in {**SETTINGS, **own}.items():
        if name == "spark.log.level":
            continue
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    text = os.environ[GIVEN]
    query = start(spark, folder, text)
    if sys.stdin.readline().strip() == SHOW:
        show(spark, query, folder, text)
    query.awaitTermination()


def show(spark: SparkSession, query: StreamingQuery, folder: Path, text: str) -> None:
    """Say everything that Spark has to say, errors included."""
    query.explain(extended=True)
    print(query.status, query.recentProgress)
    wrong = {"connectionString": text, "entity": "nowhere"}
    try:
        spark.read.format("servicebus").options(**wrong).load()
    except PySparkException as error:
        print(error)
    pages = folder / "pages"
    pages.mkdir()
    context = spark.sparkContext
    root = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    addresses = [f"{context.uiWebUrl}/{page}" for page in _PAGES]
    addresses += [f"{root}/environment", f"{context.uiWebUrl}/SQL/execution/?id=0"]
    addresses += [f"{root}/sql?details=true&planDescription=true"]
    for at, address in enumerate(addresses):
        with urllib.request.urlopen(address) as answer:  # noqa: S310
            (pages / f"{at}.html").write_bytes(answer.read())
    print(SHOWN, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
