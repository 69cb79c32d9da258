"""Source and sink inside a real Spark session, against a real server.

What can be shown without Spark is shown in the other files, where it is cheap. Here is
what only Spark can show: that it takes our schema and our batches, that plans, tasks
and checkpoints work together, and what a person reads when something is wrong.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.bus import Bus, message
from tests.spark.conftest import VARIABLE

# A session takes long to start where others are at work.
pytestmark = pytest.mark.timeout(300)

FORMAT = "servicebus"
LATER = dt.datetime(2099, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
PROPERTIES: dict[str | bytes, Any] = {
    "text": "täxt",
    "yes": True,
    "number": 5,
    "real": 0.1,
    "id": UUID(int=5),
    "time": dt.datetime(2024, 5, 1, 10, 0, 0, 123_000, tzinfo=dt.UTC),
}


def drain(frame: DataFrame, checkpoint: Path, sink: dict[str, str]) -> StreamingQuery:
    """Run a stream into our sink until there is nothing left."""
    query = (
        frame.writeStream.format(FORMAT)
        .options(**sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return query


# -- all types -------------------------------------------------------------------------


def everything() -> list[ServiceBusMessage | AmqpAnnotatedMessage]:
    """Messages that use what there is."""
    return [
        ServiceBusMessage(
            b"data",
            message_id="full",
            session_id="session",
            correlation_id="correlation",
            subject="subject",
            content_type="text/plain",
            reply_to="reply",
            to="to",
            partition_key="session",
            time_to_live=dt.timedelta(hours=5),
            application_properties=PROPERTIES,
        ),
        ServiceBusMessage(
            b"", message_id="scheduled", scheduled_enqueue_time_utc=LATER
        ),
        AmqpAnnotatedMessage(value_body="täxt", properties={"message_id": "string"}),
        AmqpAnnotatedMessage(value_body=5, properties={"message_id": "value"}),
        AmqpAnnotatedMessage(
            sequence_body=[[1, "two"], [b"3"]], properties={"message_id": "sequence"}
        ),
        AmqpAnnotatedMessage(
            data_body=[b"a", b"b"], properties={"message_id": "data parts"}
        ),
    ]


def seen(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """What the official client sees of a message, as far as its sender wrote it."""
    names = "session_id correlation_id subject content_type reply_to to partition_key "
    names += "time_to_live scheduled_enqueue_time_utc application_properties body_type"
    found = {name: getattr(message, name) for name in names.split()}
    body = message.raw_amqp_message.body
    # Parts of data are joined on the way; they need not stay apart.
    found["body"] = b"".join(body) if message.body_type.value == "data" else body
    if message.body_type.value == "sequence":
        found["body"] = [list(each) for each in body]
    return found


def test_every_type_survives_the_way_through_spark(
    bus: Bus, spark: SparkSession, name: str
) -> None:
    there = bus.namespace.create_queue(f"{name}-there")
    here = bus.namespace.create_queue(f"{name}-here")
    with bus.sdk() as client:
        with client.get_queue_sender(there) as sender:
            for each in everything():
                sender.send_messages(each)

        frame = spark.read.format(FORMAT).options(**bus.options(there)).load()
        rows = {row["message_id"]: row for row in frame.collect()}
        # Without an option each row would go back to where it came from.
        frame.write.format(FORMAT).options(**bus.options(here)).mode("append").save()

        with client.get_queue_receiver(there) as receiver:
            sent = {each.message_id: seen(each) for each in receiver.peek_messages(10)}
        with client.get_queue_receiver(here) as receiver:
            found = {each.message_id: seen(each) for each in receiver.peek_messages(10)}

    assert len(found) == 6
    assert found == sent
    full = rows["full"]
    assert full["time_to_live"] == dt.timedelta(hours=5)
    kinds = {
        key: value["type"] for key, value in full["application_properties"].items()
    }
    assert kinds == {
        "text": "string",
        "yes": "boolean",
        "number": "int",
        "real": "double",
        "id": "uuid",
        "time": "timestamp",
    }
    assert [rows[each]["state"] for each in ("full", "scheduled")] == [
        "active",
        "scheduled",
    ]
    assert rows["sequence"]["body_type"] == "sequence"


# -- reading ---------------------------------------------------------------------------


def test_a_read_is_split_and_changes_nothing(
    bus: Bus, spark: SparkSession, queue: str
) -> None:
    sent = bus.fill(queue, 600)
    options = {"connectionStringEnv": VARIABLE, "entity": queue, "parallelism": "3"}

    frame = spark.read.format(FORMAT).options(**options).load()
    found = frame.select(
        F.spark_partition_id().alias("part"), "message_id", "delivery_count"
    ).collect()

    assert [row["message_id"] for row in found] == sent
    assert {row["delivery_count"] for row in found} == {0}
    parts = [row["part"] for row in found]
    assert [parts.count(part) for part in range(3)] == [200] * 3
    assert bus.take(queue, 600) == sent


def test_a_stream_with_a_spool_ends_with_an_empty_queue(
    bus: Bus, spark: SparkSession, queue: str, tmp_path: Path
) -> None:
    sent = bus.fill(queue, 500)
    secret = tmp_path / "connection-string"
    secret.write_text(bus.namespace.connection_string)
    options = Bus(bus.namespace, {"connectionStringFile": str(secret)}).options(
        queue,
        settle="spool",
        spoolLocation=tmp_path / "spool",
        maxMessagesPerBatch=300,
        parallelism=2,
    )

    query = (
        spark.readStream.format(FORMAT)
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(60)

    assert [each["numInputRows"] for each in query.recentProgress] == [300, 200]
    stored = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row["message_id"] for row in stored.collect()) == sorted(sent)
    assert bus.held(queue) == 0
    assert not list((tmp_path / "spool").rglob("*.arrow"))


# -- source and sink together ----------------------------------------------------------


def test_a_sink_that_settles_leaves_nothing_locked(
    bus: Bus, spark: SparkSession, name: str, tmp_path: Path
) -> None:
    source = bus.namespace.create_queue(f"{name}-in", lock_duration="PT5M")
    bus.namespace.create_topic(f"{name}-out", subscriptions=["all"])
    sent = bus.fill(source, 700)
    options = bus.options(source, settle="sink", chunkSize=100, parallelism=2)

    frame = spark.readStream.format(FORMAT).options(**options).load()
    query = drain(frame, tmp_path / "checkpoint", bus.options(f"{name}-out"))

    assert query.lastProgress is not None
    assert bus.held(source) == 0
    assert sorted(bus.take(f"{name}-out/Subscriptions/all", 1000)) == sorted(sent)


# -- what cannot be written ------------------------------------------------------------


def rows(spark: SparkSession, *sizes: int) -> DataFrame:
    values = [(f"row-{at}", "x" * size) for at, size in enumerate(sizes)]
    return spark.createDataFrame(values, "message_id string, body string").coalesce(1)


def test_a_row_that_can_never_be_sent_fails_the_write_with_its_key(
    bus: Bus, spark: SparkSession, queue: str
) -> None:
    frame = rows(spark, 5, 300_000, 5)

    with pytest.raises(PySparkException) as caught:
        frame.write.format(FORMAT).options(**bus.options(queue)).mode("append").save()

    said = str(caught.value)
    assert "Row 1 of partition 0 (message_id 'row-1') cannot be sent to" in said
    assert "Option 'badRows'" in said


def test_bad_rows_are_kept_and_the_rest_is_sent(
    bus: Bus, spark: SparkSession, queue: str, tmp_path: Path
) -> None:
    frame = rows(spark, 5, 300_000, 5).withColumn(
        "entity", F.expr(f"if(message_id = 'row-2', 'nowhere', '{queue}')")
    )
    options = {**bus.access, "badRows": str(tmp_path / "bad")}

    frame.write.format(FORMAT).options(**options).mode("append").save()

    assert bus.take(queue, 5) == ["row-0"]
    bad = spark.read.parquet(str(tmp_path / "bad")).orderBy("message_id").collect()
    assert [(row["message_id"], len(row["body"])) for row in bad] == [
        ("row-1", 300_000),
        ("row-2", 5),
    ]
    assert "the entity takes at most 262144" in bad[0]["error"]
    assert "cannot be sent to 'nowhere'" in bad[1]["error"]


@pytest.mark.parametrize(
    ("column", "error"),
    [
        ("total", "Column 'total' has no place in a message"),
        ("subject", "Column 'subject' must be string, not int"),
    ],
)
def test_a_column_that_does_not_fit_is_named(
    bus: Bus, spark: SparkSession, queue: str, column: str, error: str
) -> None:
    frame = rows(spark, 5).withColumn(column, F.lit(5))

    with pytest.raises(PySparkException, match=error):
        frame.write.format(FORMAT).options(**bus.options(queue)).mode("append").save()


def test_a_missing_option_is_one_line(spark: SparkSession, bus: Bus) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format(FORMAT).options(**bus.access).load()

    [line] = [each for each in str(caught.value).splitlines() if "Option" in each]
    assert "Option 'entity' is missing: it names the queue, or the topic." in line
    assert "Traceback" not in str(caught.value)


def test_a_topic_without_a_subscription_is_refused_when_it_is_loaded(
    spark: SparkSession, bus: Bus, name: str
) -> None:
    bus.namespace.create_topic(name, subscriptions=["all"])
    bus.send(name, [message("first", b"hello")])
    reader = spark.read.format(FORMAT).options(**bus.options(name))

    with pytest.raises(PySparkException, match="Name one with option 'subscription'"):
        reader.load()

    assert reader.option("subscription", "all").load().count() == 1


@pytest.mark.parametrize("available_now", [False, True])
def test_a_stream_without_settle_says_so_when_it_starts(
    spark: SparkSession, bus: Bus, queue: str, tmp_path: Path, available_now: bool
) -> None:
    frame = spark.readStream.format(FORMAT).options(**bus.options(queue)).load()
    writer = frame.writeStream.format("noop")
    if available_now:
        writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()

    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(60)

    said = str(caught.value)
    [line] = [each for each in said.splitlines() if "Option 'settle'" in each]
    assert "Option 'settle' is missing: spool removes messages once they are" in line
    # Its own error would come last, and hide ours from a reader.
    assert "UnboundLocalError" not in said
    assert said.count("Error: ") == 1
