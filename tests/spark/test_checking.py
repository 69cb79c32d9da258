"""Whatever is wrong is said in one sentence before there is a task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from tests.spark.bus import Bus, message
from twinbus.client.receiver import ReceiveOptions
from twinbus.errors import ArgumentError, TwinbusError
from twinbus.spark.schema import spark_schema
from twinbus.spark.source.source import ServiceBusSource
from twinbus.testing.namespace import ServedNamespace

BODY = StructType([StructField("body", BinaryType())])
KEY = "planted/secret+of/a+sink="


def refusal(
    options: dict[str, str], how: str = "load", schema: StructType = BODY
) -> str:
    """What a person is told."""
    source = ServiceBusSource(options)
    own = spark_schema(locks=False)
    ask: dict[str, Callable[[], object]] = {
        "load": source.schema,
        "read": lambda: source.reader(own),
        # Spark shows the errors of a stream's reader, not of the call that makes it.
        "readStream": lambda: source.streamReader(own).initialOffset(),
        "write": lambda: source.writer(schema, overwrite=False),
        "writeStream": lambda: source.streamWriter(schema, overwrite=False),
    }
    with pytest.raises(TwinbusError) as caught:
        ask[how]()
    assert "\n" not in caught.value.text
    assert KEY not in caught.value.text
    return caught.value.text


def test_a_missing_entity_is_named(bus: Bus, tmp_path: Path) -> None:
    missing = bus.options("nowhere")
    spool = {"settle": "spool", "spoolLocation": str(tmp_path)}

    assert "Option 'entity': " in refusal(missing)
    assert "has no 'nowhere'" in refusal({**missing, **spool})
    assert "has no 'nowhere'" in refusal(missing, "write")
    assert "has no 'nowhere'" in refusal(missing, "writeStream")


def test_a_namespace_that_is_not_there_is_named(bus: Bus) -> None:
    text = f"Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=k;SharedAccessKey={KEY}"
    options = {"connectionString": f"{text};UseDevelopmentEmulator=true"}

    for how in ("load", "write"):
        said = refusal({**options, "entity": "q"}, how)
        assert "The namespace '127.0.0.1:1' of option 'connectionString'" in said
        assert "does not answer" in said


def test_a_missing_right_is_named(
    bus: Bus, queue: str, servicebus_server: ServedNamespace
) -> None:
    port = servicebus_server.amqp_port
    text = (
        f"Endpoint=sb://localhost:{port}/;SharedAccessKeyName=k;SharedAccessKey={KEY}"
    )
    options = {
        "connectionString": f"{text};UseDevelopmentEmulator=true",
        "entity": queue,
    }

    assert "gives no right" in (said := refusal(options))
    assert "Listen is needed" in said
    assert "Send is needed" in refusal(options, "write")


def test_a_topic_is_not_read_by_itself(bus: Bus, name: str) -> None:
    bus.namespace.create_topic(name, subscriptions=["all"])

    assert f"'{name}'" in refusal(bus.options(name, settle="sink"))
    for options in ({}, {"settle": "peek"}, {"subQueue": "deadLetter"}):
        said = refusal(bus.options(name, **options))
        assert "is a topic, and its messages are in its subscriptions" in said
        assert said.endswith("Name one with option 'subscription'.")


def test_subscriptions_and_entities_with_sessions_are_read(bus: Bus, name: str) -> None:
    sessions = bus.namespace.create_queue(f"{name}-sessions", requires_session=True)
    bus.namespace.create_topic(name, subscriptions=["all"])

    for options in (
        bus.options(name, subscription="all"),
        bus.options(sessions),
        bus.options(sessions, subQueue="deadLetter"),
    ):
        assert ServiceBusSource(options).schema() == spark_schema(locks=False)


def test_the_question_whether_it_is_a_topic_leaves_sessions_alone(
    bus: Bus, name: str
) -> None:
    queue = bus.namespace.create_queue(name, requires_session=True)
    bus.send(queue, [message("first", b"hello", "basket")])

    ServiceBusSource(bus.options(queue)).schema()

    assert bus.connection.management(queue).sessions(0, 10) == ["basket"]
    options = ReceiveOptions(session_id="basket", deletes=True)
    with bus.connection.receiver(queue, options) as receiver:
        (found,) = receiver.receive(2, 5.0)
    assert (found.message_id, found.delivery_count) == ("first", 0)


def test_settle_belongs_to_streams_and_streams_need_it(bus: Bus, queue: str) -> None:
    settled = bus.options(queue, settle="peek")

    assert "Option 'settle' is for streams" in refusal(settled, "read")
    assert "Option 'settle' is missing" in refusal(bus.options(queue), "readStream")


def test_a_sink_needs_an_entity_from_somewhere(bus: Bus) -> None:
    assert "Option 'entity' is missing" in refusal(bus.access, "write")
    named = StructType([*BODY.fields, StructField("entity", StringType())])
    ServiceBusSource(bus.access).writer(named, overwrite=False)


def test_a_queue_is_not_overwritten(bus: Bus, queue: str) -> None:
    source = ServiceBusSource(bus.options(queue))
    for make in (source.writer, source.streamWriter):
        with pytest.raises(ArgumentError, match="cannot be overwritten"):
            make(BODY, overwrite=True)


def test_the_columns_are_fixed(bus: Bus, queue: str) -> None:
    with pytest.raises(ArgumentError, match="columns of a message are fixed"):
        ServiceBusSource(bus.options(queue)).reader(BODY)
