"""Messages of the official client: diverted and restored as any other.

The bytes are what the official client would put on the wire. That function of it is
private, so this test may need care when the client's version changes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.pairing.rules.messages import canonical
from twinbus.pairing.rules import envelope
from twinbus.wire.message import sections

NOW_MS = 1_700_000_000_000
LATER = datetime(2030, 1, 1, tzinfo=UTC)
OWN: dict[str | bytes, Any] = {
    "text": "t",
    "number": 5,
    "large": 2**31 - 1,
    "real": 1.5,
    "flag": True,
    "raw": b"bytes",
    "uuid": UUID(int=7),
    "time": LATER,
    "x-ms-path": "mine",
}

MESSAGES: dict[str, Callable[[], ServiceBusMessage]] = {
    "text": lambda: ServiceBusMessage("hello"),
    "empty": lambda: ServiceBusMessage(None),
    "session": lambda: ServiceBusMessage("a", session_id="s", partition_key="s"),
    "partition": lambda: ServiceBusMessage("a", partition_key="p"),
    "ttl": lambda: ServiceBusMessage("a", time_to_live=timedelta(seconds=30)),
    "scheduled": lambda: ServiceBusMessage("a", scheduled_enqueue_time_utc=LATER),
    "properties": lambda: ServiceBusMessage(
        "a",
        application_properties=OWN,
        content_type="text/plain",
        correlation_id="c",
        subject="label",
        message_id="id",
        to="to",
        reply_to="r",
        reply_to_session_id="rs",
        session_id="s",
        time_to_live=timedelta(minutes=5),
        scheduled_enqueue_time_utc=LATER,
    ),
}
ANNOTATED: dict[str, Callable[[], AmqpAnnotatedMessage]] = {
    "data": lambda: AmqpAnnotatedMessage(data_body=[b"a", b"b"]),
    "sequence": lambda: AmqpAnnotatedMessage(sequence_body=[[1, "a"], [None]]),
    "value": lambda: AmqpAnnotatedMessage(
        value_body={"a": 1},
        header={"durable": True, "priority": 9, "time_to_live": 1_000},
        properties={"message_id": "id", "group_id": "s", "group_sequence": 3},
        annotations={"x-opt-scheduled-enqueue-time": LATER, "own": "kept"},
        footer={"f": 1},
    ),
}


def encoded(message: AmqpAnnotatedMessage) -> bytes:
    wrapped = ServiceBusMessage("")
    wrapped._message = PyamqpTransport.to_outgoing_amqp_message(message)
    return bytes(PyamqpTransport.encode_message(wrapped))


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_the_official_client_comes_back_as_it_was(name: str) -> None:
    original = encoded(MESSAGES[name]().raw_amqp_message)

    path, restored = envelope.restore(envelope.divert(original, "orders", NOW_MS))

    assert path == "orders"
    assert canonical(restored) == canonical(original)


@pytest.mark.parametrize("name", ANNOTATED)
def test_an_annotated_message_comes_back_as_it_was(name: str) -> None:
    original = encoded(ANNOTATED[name]())

    restored = envelope.restore(envelope.divert(original, "orders", NOW_MS))[1]

    assert canonical(restored) == canonical(original)


def test_what_the_official_client_sets_is_moved() -> None:
    original = encoded(MESSAGES["properties"]().raw_amqp_message)

    diverted = envelope.divert(original, "orders", NOW_MS)

    aliases = envelope.Backlogged(diverted).aliases()
    assert aliases.session_id == "s"
    assert aliases.ttl_ms == 300_000
    assert aliases.scheduled_ms == LATER.timestamp() * 1000
    incoming = sections.parse(diverted)
    assert incoming.session_id is None
    assert incoming.ttl_ms is None
    assert incoming.scheduled_ms is None


def test_a_batch_of_the_official_client_is_converted_message_by_message() -> None:
    batch = ServiceBusMessageBatch(1024 * 1024)
    for make in MESSAGES.values():
        batch.add_message(make())
    payload = bytes(encode_payload(bytearray(), batch._message))
    originals = sections.split_batch(payload)
    assert len(originals) == len(MESSAGES)

    inner = [envelope.divert(each, "orders", NOW_MS) for each in originals]

    restored = [canonical(envelope.restore(each)[1]) for each in inner]
    assert restored == [canonical(each) for each in originals]
