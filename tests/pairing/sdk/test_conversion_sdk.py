"""What we encode is what the official client encodes, section by section.

The bytes to compare with come from that client's public `send_messages`, heard by a
peer, so that nothing is between. One test goes through real servers instead.
"""

from __future__ import annotations

import decimal
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.client.site import QUEUE, Site, site
from tests.pairing.official import Listener, listening, sections_of
from twinbus.client.message import Message
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.pairing.sdk.conversion import payload_of
from twinbus.wire.codec import decode, encode
from twinbus.wire.message import sections
from twinbus.wire.message.names import BROKER_ANNOTATIONS
from twinbus.wire.types import Described, Timestamp, UInt, ULong

NULL_VALUE = bytes((0, 0x53, sections.VALUE, 0x40))
# One is gone at once, and of the other each client makes its own message.
NOT_KEPT = {"no ttl", "mapping"}
LATER = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
ELSEWHERE = timezone(timedelta(hours=-7))
PROPERTIES: dict[str | bytes, Any] = {
    "text": "grüße",
    "long text": "x" * 300,
    b"key as bytes": "a",
    "bytes": b"received text",
    "binary": bytearray(b"\xff\x00"),
    "number": 5,
    "negative": -129,
    "largest": 2**31 - 1,
    "smallest": -(2**31),
    "real": 1.5,
    "true": True,
    "false": False,
    "nothing": None,
    "uuid": UUID(int=7),
    "time": LATER,
    "time without zone": datetime(2024, 2, 29, 1, 2, 3, 4_000),  # noqa: DTZ001
    "time elsewhere": LATER.astimezone(ELSEWHERE),
    "decimal": decimal.Decimal("-12345.678"),
    "list": [1, "a", [None]],
    "map": {"a": 1, 2: [True]},
    "described": ("descriptor", 5),
    "long": {"TYPE": "LONG", "VALUE": 5},
    "ubyte": {"TYPE": "UBYTE", "VALUE": 5},
    "symbol": {"TYPE": "SYMBOL", "VALUE": "a symbol"},
    "timestamp": {"TYPE": "TIMESTAMP", "VALUE": 1_700_000_000_000},
    "float": {"TYPE": "FLOAT", "VALUE": 1.5},
    "array": {
        "TYPE": "ARRAY",
        "VALUE": [{"TYPE": "LONG", "VALUE": 1}, {"TYPE": "LONG", "VALUE": 2**40}],
    },
    "like a type": {"TYPE": "NONE OF THEM", "VALUE": 5},
}
# What the official client still knows the type of when it has received it.
AGAIN: dict[str | bytes, Any] = {
    "text": "grüße",
    "number": 5,
    "long": 2**40,
    "real": 1.5,
    "flag": True,
    "nothing": None,
    "uuid": UUID(int=7),
    "binary": bytearray(b"\xff\xfe"),
}
ANNOTATIONS: dict[Any, Any] = {
    "x-opt-scheduled-enqueue-time": LATER,
    "x-opt-partition-key": "p",
    b"x-opt-via-partition-key": "v",
    "own": [1, {"a": b"b"}],
    7: {"TYPE": "UINT", "VALUE": 8},
}
FOOTER: dict[Any, Any] = {"f": 1, b"g": b"h"}
ALL_PROPERTIES: dict[str, Any] = {
    "message_id": "id",
    "user_id": b"\xffuser",
    "to": "to",
    "subject": "subject",
    "reply_to": "reply to",
    "correlation_id": "correlation",
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "absolute_expiry_time": 1_700_000_300_000,
    "creation_time": 1_700_000_000_000,
    "group_id": "session",
    "group_sequence": 5,
    "reply_to_group_id": "reply session",
}

MESSAGES: dict[str, Callable[[], Any]] = {
    "text": lambda: ServiceBusMessage("hello"),
    "bytes": lambda: ServiceBusMessage(b"\x00" * 1024),
    "empty": lambda: ServiceBusMessage(b""),
    "no body": lambda: ServiceBusMessage(None),
    "session": lambda: ServiceBusMessage("a", session_id="s", partition_key="s"),
    "partition": lambda: ServiceBusMessage("a", partition_key="p"),
    "ttl": lambda: ServiceBusMessage("a", time_to_live=timedelta(seconds=30)),
    "no ttl": lambda: ServiceBusMessage("a", time_to_live=timedelta(0)),
    "scheduled": lambda: ServiceBusMessage("a", scheduled_enqueue_time_utc=LATER),
    "long id": lambda: ServiceBusMessage("a", message_id="ü" * 128),
    "application properties": lambda: ServiceBusMessage(
        "a", application_properties=PROPERTIES
    ),
    "everything": lambda: ServiceBusMessage(
        "a",
        application_properties=PROPERTIES,
        session_id="s",
        message_id="id",
        scheduled_enqueue_time_utc=LATER,
        time_to_live=timedelta(minutes=5),
        content_type="text/plain",
        correlation_id="c",
        subject="label",
        partition_key="s",
        to="to",
        reply_to="r",
        reply_to_session_id="rs",
    ),
    "mapping": lambda: {"body": "a", "message_id": "id", "subject": "label"},
    "data": lambda: AmqpAnnotatedMessage(data_body=[b"a", "b", b"", b"c" * 300]),
    "no data": lambda: AmqpAnnotatedMessage(data_body=[], properties=ALL_PROPERTIES),
    "sequence": lambda: AmqpAnnotatedMessage(sequence_body=[[1, "a"], [None], []]),
    "flat sequence": lambda: AmqpAnnotatedMessage(sequence_body=[1, "a"]),
    "value": lambda: AmqpAnnotatedMessage(value_body={"a": 1, "b": [1.5, LATER]}),
    "text value": lambda: AmqpAnnotatedMessage(value_body="text"),
    "all properties": lambda: AmqpAnnotatedMessage(
        data_body=b"a", properties=ALL_PROPERTIES
    ),
    "properties in bytes": lambda: AmqpAnnotatedMessage(
        data_body=b"a",
        properties={
            name: value.encode() if isinstance(value, str) else value
            for name, value in ALL_PROPERTIES.items()
        },
    ),
    "id as number": lambda: AmqpAnnotatedMessage(
        data_body=b"a", properties={"message_id": 2**40, "correlation_id": 0}
    ),
    "id as uuid": lambda: AmqpAnnotatedMessage(
        data_body=b"a", properties={"message_id": UUID(int=5)}
    ),
    "header": lambda: AmqpAnnotatedMessage(
        data_body=b"a",
        header={
            "durable": True,
            "priority": 9,
            "time_to_live": 4_294_967_295,
            "first_acquirer": False,
            "delivery_count": 3,
        },
    ),
    "annotations": lambda: AmqpAnnotatedMessage(
        data_body=b"a",
        annotations=ANNOTATIONS,
        delivery_annotations={"d": 1, "e": "f"},
        footer=FOOTER,
    ),
}


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    with listening() as made:
        yield made


@pytest.mark.parametrize("name", MESSAGES)
def test_sections_are_those_of_the_official_client(
    name: str, listener: Listener
) -> None:
    message = MESSAGES[name]()

    # Ours first: the official client changes what it is given.
    ours = payload_of(message, with_id=False)
    theirs = listener.heard(message)

    assert name == "mapping" or sections_of(ours) == sections_of(theirs)
    if name == "mapping":
        # Each makes a message of it.
        assert ours == payload_of(ServiceBusMessage(**message), with_id=False)


_TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
_ZONES: Any = st.sampled_from([None, UTC, ELSEWHERE])
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.floats()
    | _TEXT
    | st.binary(max_size=300).map(bytearray)
    | st.uuids()
    | st.datetimes(
        datetime(1970, 1, 1),  # noqa: DTZ001
        datetime(2200, 1, 1),  # noqa: DTZ001
        timezones=_ZONES,
    )
    | st.decimals(min_value=-(10**20), max_value=10**20, places=5, allow_nan=False)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_TEXT, inner, max_size=3)
        | st.tuples(_TEXT, inner)
    ),
    max_leaves=6,
)
_ASCII = st.text(st.characters(codec="ascii"), max_size=30)
_HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "durable": st.booleans(),
        "priority": st.integers(0, 255),
        "time_to_live": st.integers(0, 2**32 - 1),
        "first_acquirer": st.booleans(),
        "delivery_count": st.integers(0, 2**32 - 1),
    },
)
_IDS = _TEXT | st.binary(max_size=20) | st.uuids() | st.integers(0, 2**64 - 1)
_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "message_id": _IDS,
        "user_id": st.binary(max_size=20),
        **dict.fromkeys(("to", "subject", "reply_to"), _TEXT),
        "correlation_id": _IDS,
        **dict.fromkeys(("content_type", "content_encoding"), _ASCII),
        **dict.fromkeys(
            # Of a zero that client makes a section without any field.
            ("absolute_expiry_time", "creation_time"),
            st.integers(1, 2**45),
        ),
        **dict.fromkeys(("group_id", "reply_to_group_id"), _TEXT),
        "group_sequence": st.integers(0, 2**32 - 1),
    },
)
_ANNOTATIONS = st.dictionaries(_ASCII | st.integers(0, 2**64 - 1), _VALUES, max_size=3)
_BODIES: st.SearchStrategy[dict[str, Any]] = (
    st.lists(st.binary(max_size=300), max_size=3).map(lambda item: {"data_body": item})
    | st.lists(st.lists(_VALUES, max_size=3), max_size=3).map(
        lambda items: {"sequence_body": items}
    )
    # Of those that are false the official client sends nothing.
    | _VALUES.filter(bool).map(lambda item: {"value_body": item})
)


@settings(
    max_examples=150,
    deadline=None,
    # The listener only listens.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    body=_BODIES,
    header=_HEADERS,
    properties=_PROPERTIES,
    application_properties=st.dictionaries(_TEXT, _VALUES, max_size=3),
    annotations=st.lists(_ANNOTATIONS, min_size=3, max_size=3),
)
def test_any_message_is_encoded_as_by_the_official_client(
    listener: Listener, body: dict[str, Any], annotations: list[Any], **parts: Any
) -> None:
    names = ("annotations", "delivery_annotations", "footer")
    message = AmqpAnnotatedMessage(
        **body, **parts, **dict(zip(names, annotations, strict=True))
    )

    ours = payload_of(message, with_id=False)

    # That client also sends messages of no bytes at all; AMQP has none.
    theirs = listener.heard(message) or NULL_VALUE
    assert sections_of(ours) == sections_of(theirs)


# -- through a server ----------------------------------------------------------------


@pytest.fixture
async def namespace(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path) as served:
        yield served


def official(namespace: Site) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        f"Endpoint=sb://127.0.0.1:{namespace.server.port}/;"
        f"SharedAccessKeyName={DEV_KEY_NAME};SharedAccessKey={DEV_KEY_TEXT};"
        "UseDevelopmentEmulator=true"
    )


async def test_a_server_keeps_the_same_of_both(namespace: Site) -> None:
    names = [name for name in MESSAGES if name not in NOT_KEPT]
    messages = [with_own_id(MESSAGES[name]()) for name in names]
    client = namespace.client()

    for message in messages:
        await client.sender(QUEUE).send(payload_of(message, with_id=False))
    async with official(namespace) as theirs, theirs.get_queue_sender(QUEUE) as sender:
        for message in messages:
            await sender.send_messages(message)
    peeked = await client.management(QUEUE).peek(2 * len(names))

    kept = [kept_of(each) for each in peeked]
    assert dict(zip(names, kept[: len(names)], strict=True)) == dict(
        zip(names, kept[len(names) :], strict=True)
    )


def with_own_id(message: Any) -> Any:
    """The message with an id, so that the server gives it none."""
    if isinstance(message, AmqpAnnotatedMessage) and message.properties is None:
        message.properties = AmqpMessageProperties(message_id="own")
    return message


def kept_of(message: Message) -> list[Any]:
    """What the sender wrote, without what the server adds."""
    own = [section for section in sections_of(message.payload) if section[0] != 0x72]
    annotations = {
        encode(key): encode(value)
        for key, value in message.annotations.items()
        if key not in BROKER_ANNOTATIONS
    }
    return [own, annotations]


# -- sent again ----------------------------------------------------------------------


async def test_a_received_message_can_be_sent_again(namespace: Site) -> None:
    """With the types of the original wherever they can still be known."""
    client = namespace.client()
    original = payload_of(
        ServiceBusMessage(
            "body",
            message_id="id",
            correlation_id="correlation",
            session_id="s",
            partition_key="s",
            scheduled_enqueue_time_utc=datetime(2020, 1, 1, tzinfo=UTC),
            time_to_live=timedelta(minutes=5),
            content_type="text/plain",
            subject="label",
            application_properties=AGAIN,
        ),
        with_id=True,
    )
    await client.sender(QUEUE).send(original)
    async with (
        official(namespace) as theirs,
        theirs.get_queue_receiver(
            QUEUE, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        [received] = await receiver.receive_messages(max_wait_time=10)
        again = payload_of(received, with_id=True)
    await client.sender(QUEUE).send(again)

    [stored] = await client.management(QUEUE).peek(1)
    assert kept_of(stored) == kept_of(Message(as_stored(original)))
    annotations = Message(again).annotations
    assert type(annotations["x-opt-enqueued-time"]) is Timestamp
    assert type(annotations["x-opt-sequence-number"]) is int


def as_stored(payload: bytes) -> bytes:
    """The message with the header that a server gives it."""
    head, *_ = sections.find_sections(payload)
    assert head[0] == sections.HEADER
    fields = decode(payload, head[2])[0]
    header = [None, None, fields[2], None, UInt(0)]
    return encode(Described(ULong(sections.HEADER), header)) + payload[head[3] :]
