"""What a message may hold, as the official clients write and read it.

The server keeps the sender's bytes, so every value must come back as the client itself
would decode what it encoded. Clients decode texts and symbols to bytes, and timestamps
to milliseconds.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from tests.sdk import declared
from tests.sdk.buses import Bus, take

UNIQUE = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
MOMENT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
MOMENT_MS = int(MOMENT.timestamp() * 1000)

# Name -> type, value, and what the client reads. A type of None: the client chooses.
# Without decimals: the client cannot read those that it writes.
SCALARS: dict[str, tuple[str | None, Any, Any]] = {
    "null": (None, None, None),
    "true": (None, True, True),
    "false": (AMQPTypes.boolean, False, False),
    "ubyte": (AMQPTypes.ubyte, 255, 255),
    "byte": (AMQPTypes.byte, -128, -128),
    "ushort": (AMQPTypes.ushort, 65535, 65535),
    "short": (AMQPTypes.short, -32768, -32768),
    "uint zero": (AMQPTypes.uint, 0, 0),
    "uint small": (AMQPTypes.uint, 7, 7),
    "uint": (AMQPTypes.uint, 2**32 - 1, 2**32 - 1),
    "int small": (AMQPTypes.int, -7, -7),
    "int": (AMQPTypes.int, -(2**31), -(2**31)),
    "ulong": (AMQPTypes.ulong, 2**64 - 1, 2**64 - 1),
    "long": (AMQPTypes.long, -(2**63), -(2**63)),
    "float": (AMQPTypes.float, 0.5, 0.5),
    "double": (AMQPTypes.double, 0.1, 0.1),
    "timestamp": (None, MOMENT, MOMENT_MS),
    "uuid": (None, UNIQUE, UNIQUE),
    "binary": (AMQPTypes.binary, b"\x00\xff", b"\x00\xff"),
    "string": (None, "grün", "grün".encode()),
    "long string": (None, "x" * 300, b"x" * 300),
    "symbol": (AMQPTypes.symbol, "sym", b"sym"),
}


def typed(kind: str | None, value: Any) -> Any:
    return value if kind is None else {TYPE: kind, VALUE: value}


def through(bus: Bus, queue: str, *messages: Any) -> list[ServiceBusReceivedMessage]:
    """Send messages of any kind, all at once, and receive them."""
    bus.sender(queue).send_messages(list(messages))
    receiver = bus.receiver(queue, receive_mode="receiveanddelete")
    return take(receiver, len(messages))


@declared.with_queue()
def test_application_properties_of_every_type_come_back(bus: Bus, queue: str) -> None:
    properties = {
        name: typed(kind, value) for name, (kind, value, _) in SCALARS.items()
    }

    (received,) = through(
        bus,
        queue,
        AmqpAnnotatedMessage(data_body=b"", application_properties=properties),
    )

    expected = {name.encode(): read for name, (_, _, read) in SCALARS.items()}
    assert received.application_properties == expected


@declared.with_queue()
def test_identifiers_of_every_type_come_back(bus: Bus, queue: str) -> None:
    identifiers = [2**63, UNIQUE, b"\x00\xfe\xff", "text"]

    received = through(
        bus,
        queue,
        *(
            AmqpAnnotatedMessage(
                data_body=b"", properties={"message_id": one, "correlation_id": one}
            )
            for one in identifiers
        ),
    )

    sections = [message.raw_amqp_message.properties for message in received]
    read = [2**63, UNIQUE, b"\x00\xfe\xff", b"text"]
    assert [section and section.message_id for section in sections] == read
    assert [section and section.correlation_id for section in sections] == read


# The body of a message, and what the client reads.
BODIES: list[tuple[dict[str, Any], AmqpMessageBodyType, Any]] = [
    ({"data_body": b"a"}, AmqpMessageBodyType.DATA, [b"a"]),
    ({"data_body": [b"a", b"b"]}, AmqpMessageBodyType.DATA, [b"a", b"b"]),
    (
        {"sequence_body": [1, "two", None]},
        AmqpMessageBodyType.SEQUENCE,
        [[1, b"two", None]],
    ),
    ({"sequence_body": [[1], [2, 3]]}, AmqpMessageBodyType.SEQUENCE, [[1], [2, 3]]),
    (
        {"value_body": {"key": ["list", {"deep": UNIQUE}]}},
        AmqpMessageBodyType.VALUE,
        {b"key": [b"list", {b"deep": UNIQUE}]},
    ),
    ({"value_body": 42}, AmqpMessageBodyType.VALUE, 42),
    ({"value_body": None}, AmqpMessageBodyType.VALUE, None),
]


@declared.with_queue()
def test_bodies_of_every_kind_come_back(bus: Bus, queue: str) -> None:
    received = through(
        bus, queue, *(AmqpAnnotatedMessage(**body) for body, _, _ in BODIES)
    )

    assert [(message.body_type, read_body(message)) for message in received] == [
        (kind, read) for _, kind, read in BODIES
    ]


def read_body(message: ServiceBusReceivedMessage) -> Any:
    is_value = message.body_type is AmqpMessageBodyType.VALUE
    return message.body if is_value else list(message.body)


@declared.with_queue()
def test_the_other_sections_come_back(bus: Bus, queue: str) -> None:
    (received,) = through(
        bus,
        queue,
        AmqpAnnotatedMessage(
            data_body=b"body",
            header={"priority": 7, "durable": True},
            footer={"checksum": 1},
            annotations={"x-opt-mine": "kept", "x-opt-sequence-number": 99},
            properties={"user_id": b"me", "group_sequence": 3, "subject": "s"},
        ),
    )

    raw = received.raw_amqp_message
    assert raw.header is not None
    assert (raw.header.priority, raw.header.durable) == (7, True)
    assert raw.footer == {b"checksum": 1}
    assert raw.properties is not None
    assert (raw.properties.user_id, raw.properties.group_sequence) == (b"me", 3)
    assert raw.annotations is not None
    assert raw.annotations[b"x-opt-mine"] == b"kept"
    # What the server says is the server's to say.
    assert received.sequence_number == 1


@declared.with_queue()
def test_a_received_message_can_be_sent_on(bus: Bus, queue: str) -> None:
    (first,) = through(
        bus,
        queue,
        ServiceBusMessage("body", message_id="id", application_properties={"n": 1}),
    )

    (second,) = through(bus, queue, first)

    assert str(second) == "body"
    assert second.message_id == "id"
    assert second.application_properties == {b"n": 1}
    assert (second.sequence_number, second.delivery_count) == (2, 0)
