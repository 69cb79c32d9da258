"""Messages of the official client become bytes: what goes beyond what that client does.

That the sections are otherwise those of the official client is `test_conversion_sdk`.
"""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import enum
import time
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire import values
from twinbus.pairing.sdk.batch import MessageBatch
from twinbus.pairing.sdk.conversion import payload_of, payloads_of
from twinbus.wire.codec import decode
from twinbus.wire.message import sections
from twinbus.wire.types import Array, Described, Int, Symbol, Timestamp, UInt, ULong


def section(payload: bytes, code: int) -> Any:
    """One section, decoded; None if it is not there."""
    for found, _begin, start, _end in sections.find_sections(payload):
        if found == code:
            return decode(payload, start, budget=100_000)[0]
    return None


def properties(payload: bytes) -> list[Any]:
    return sections.read_properties(payload)


def property_sent(value: Any) -> Any:
    """An application property after encoding and decoding."""
    message = ServiceBusMessage("", application_properties={"name": value})
    sent = section(payload_of(message, False), sections.APPLICATION_PROPERTIES)
    return sent["name"]


# -- ids -----------------------------------------------------------------------------


def test_a_message_without_an_id_gets_a_new_one_each_time() -> None:
    message = AmqpAnnotatedMessage(data_body=b"a")

    ids = {properties(payload_of(message, True))[0] for _ in range(3)}

    assert len(ids) == 3
    assert all(UUID(hex=each).version == 4 for each in ids)
    assert message.properties is None


def test_an_id_stays_and_other_properties_do_too() -> None:
    message = ServiceBusMessage("a", message_id="mine", subject="label")
    assert properties(payload_of(message, True))[0] == "mine"

    message.message_id = None
    with_id = properties(payload_of(message, True))
    without = properties(payload_of(message, False))

    assert with_id[0] is not None
    assert with_id[3] == without[3] == "label"
    assert without[0] is None
    assert message.message_id is None


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=300))
def test_an_id_of_any_length_arrives(message_id: str) -> None:
    own = AmqpMessageProperties(message_id=message_id)
    message = AmqpAnnotatedMessage(data_body=b"a", properties=own)

    payload = payload_of(message, True)

    assert properties(payload)[0] == message_id
    assert section(payload, sections.DATA) == b"a"


# -- values ----------------------------------------------------------------------------


@given(st.integers(-(2**63), 2**64 - 1))
def test_whole_numbers_of_any_size_arrive(number: int) -> None:
    sent = property_sent(number)

    assert sent == number
    if -(2**31) <= number < 2**31:
        assert type(sent) is Int
    else:
        assert type(sent) is (int if number < 2**63 else ULong)


def is_our_own(value: Any) -> bool:
    return type(value).__module__ == Timestamp.__module__


@given(values.values.filter(is_our_own))
def test_a_value_of_our_own_types_keeps_its_type(value: Any) -> None:
    sent = property_sent(value)

    assert values.same(sent, value)


@given(st.binary(max_size=300))
def test_bytes_in_properties_are_text_or_binary_but_never_lost(value: bytes) -> None:
    sent = property_sent(value)

    assert sent == value if isinstance(sent, bytes) else sent.encode() == value
    message = AmqpAnnotatedMessage(value_body={"a": value})
    assert section(payload_of(message, False), sections.VALUE) == {"a": value}


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_times_arrive_to_the_millisecond(value: dt.datetime) -> None:
    sent = property_sent(value)

    assert type(sent) is Timestamp
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    late = value - (epoch + dt.timedelta(milliseconds=int(sent)))
    assert dt.timedelta() <= late < dt.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("NULL", 5, None),
        ("BOOL", 1, True),
        ("UINT", 5, UInt(5)),
        ("ULONG", 2**63, ULong(2**63)),
        ("LONG", 5, 5),
        ("DOUBLE", 5, 5.0),
        ("TIMESTAMP", 5, Timestamp(5)),
        ("TIMESTAMP", dt.datetime(1970, 1, 2, tzinfo=dt.UTC), Timestamp(86_400_000)),
        ("UUID", str(UUID(int=5)), UUID(int=5)),
        ("UUID", bytes(16), UUID(int=0)),
        ("BINARY", "text", b"text"),
        ("STRING", b"text", "text"),
        ("SYMBOL", b"text", Symbol("text")),
        ("LIST", [1], [Int(1)]),
        ("MAP", [("a", 1)], {"a": Int(1)}),
        ("ARRAY", [1, 2], Array(0x71, [Int(1), Int(2)])),
        ("ARRAY", [1, 2**40], Array(0x81, [1, 2**40])),
        ("ARRAY", [None, None], Array(0x40, [None, None])),
        ("ARRAY", [], Array(0x40)),
        ("DESCRIBED", ("a", 1), Described("a", Int(1))),
    ],
)
def test_a_type_can_be_named(kind: str, value: Any, expected: Any) -> None:
    sent = property_sent({"TYPE": kind, "VALUE": value})

    assert type(sent) is type(expected)
    assert sent == expected


class Colour(enum.IntEnum):
    RED = 1


class Word(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(Colour.RED, Int(1)), (Word("a"), "a"), (bytearray(b"\xff"), b"\xff")],
)
def test_subclasses_are_sent_as_their_bases(value: Any, expected: Any) -> None:
    sent = property_sent(value)

    assert type(sent) is type(expected)
    assert sent == expected


# -- what the official client loses ----------------------------------------------------


@pytest.mark.parametrize("value", [0, False, "", b"", [], {}, 0.0])
def test_a_value_body_that_is_false_is_a_body(value: Any) -> None:
    payload = payload_of(AmqpAnnotatedMessage(value_body=value), False)

    assert section(payload, sections.VALUE) == value


def test_a_message_has_a_section_at_least() -> None:
    payload = payload_of(AmqpAnnotatedMessage(value_body=None), False)

    assert [code for code, *_ in sections.find_sections(payload)] == [sections.VALUE]


@pytest.mark.parametrize(
    ("ttl_ms", "in_header", "between"),
    [
        (1000, 1000, 1000),
        (2**32 - 1, 2**32 - 1, 2**32 - 1),
        (2**33, 2**32 - 1, 2**33),
        # For ever: neither time is written.
        (922_337_203_685_477, 2**32 - 1, None),
    ],
)
def test_a_long_time_to_live_is_whole_in_the_times(
    ttl_ms: int, in_header: int, between: int | None
) -> None:
    header = {"time_to_live": ttl_ms}
    message = AmqpAnnotatedMessage(data_body=b"", header=header)
    before_ms = time.time_ns() // 1_000_000

    payload = payload_of(message, False)

    assert sections.parse(payload).ttl_ms == in_header
    expiry, creation = properties(payload)[8:10]
    if between is None:
        assert (expiry, creation) == (None, None)
    else:
        assert type(expiry) is type(creation) is Timestamp
        assert expiry - creation == between
        assert -1500 <= creation - before_ms <= 1500


def test_no_message_expires_after_the_last_time_there_is() -> None:
    header = {"time_to_live": 2**48}
    payload = payload_of(AmqpAnnotatedMessage(data_body=b"", header=header), False)

    assert properties(payload)[8] == 253_402_243_199_000


# -- the caller's objects --------------------------------------------------------------


def test_the_message_stays_as_it_is() -> None:
    own: dict[str | bytes, Any] = {b"key": b"value", "list": [1]}
    message = ServiceBusMessage(
        "a",
        application_properties=own,
        time_to_live=dt.timedelta(seconds=5),
        partition_key="p",
    )
    raw = message.raw_amqp_message
    parts = ("properties", "header", "annotations", "application_properties")
    before = [copy.deepcopy(getattr(raw, name)) for name in parts]

    payload_of(message, True)

    assert [getattr(raw, name) for name in parts] == before


def test_a_message_can_be_sent_again() -> None:
    message = ServiceBusMessage("a", application_properties={"a": 1})

    assert payload_of(message, True) == payload_of(message, True)


# -- what cannot be sent ---------------------------------------------------------------


def endless() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (object(), TypeError, "property 'name': AMQP has no type for object"),
        ({1, 2}, TypeError, "AMQP has no type for set"),
        (2**64, ValueError, "64 bits"),
        (-(2**63) - 1, ValueError, "64 bits"),
        ("\ud800", ValueError, "property 'name'"),
        ((1, 2, 3), ValueError, "this one has 3 items"),
        (decimal.Decimal("NaN"), ValueError, "not a number that"),
        (decimal.Decimal(10**35), ValueError, "34 digits"),
        (decimal.Decimal("1e7000"), ValueError, "34 digits"),
        ({"TYPE": "UBYTE", "VALUE": 256}, ValueError, "1 bytes"),
        ({"TYPE": "UINT", "VALUE": float("inf")}, ValueError, "property 'name'"),
        ({"TYPE": "ARRAY", "VALUE": [1, "a"]}, TypeError, "same type"),
        ({"TYPE": "ARRAY", "VALUE": [[1]]}, TypeError, "cannot hold"),
        ({"TYPE": "STRING", "VALUE": 5}, TypeError, "Expected text"),
        ({"TYPE": "BINARY", "VALUE": 5}, TypeError, "Expected bytes"),
        (endless(), ValueError, "nested too deeply"),
    ],
)
def test_a_value_that_cannot_be_sent_is_named(
    value: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        property_sent(value)


@pytest.mark.parametrize(
    ("parts", "error", "text"),
    [
        ({"properties": {"message_id": 1.5}}, TypeError, "Unsupported Message ID"),
        ({"properties": {"message_id": -1}}, ValueError, "message_id"),
        ({"properties": {"group_id": 5}}, TypeError, "group_id: Expected text"),
        ({"properties": {"content_type": "ü"}}, ValueError, "content_type: .*ASCII"),
        ({"properties": {"group_sequence": -1}}, ValueError, "group_sequence"),
        ({"properties": {"user_id": 5}}, TypeError, "user_id: Expected bytes"),
        ({"header": {"priority": 256}}, ValueError, "priority"),
        ({"header": {"time_to_live": -1}}, ValueError, "time_to_live"),
        ({"annotations": {"ü": 1}}, ValueError, "annotation 'ü'.*ASCII"),
        ({"annotations": {None: 1}}, TypeError, "annotation None"),
        ({"application_properties": {5: 1}}, TypeError, "property 5: Expected text"),
        ({"footer": {"a": object()}}, TypeError, "annotation 'a'"),
    ],
)
def test_a_field_that_cannot_be_sent_is_named(
    parts: dict[str, Any], error: type[Exception], text: str
) -> None:
    message = AmqpAnnotatedMessage(data_body=b"a", **parts)

    with pytest.raises(error, match=text):
        payload_of(message, True)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"data_body": [5]}, "Expected bytes"),
        ({"sequence_body": (1, 2)}, "sequence_body must be a list"),
        ({"value_body": object()}, "body: AMQP has no type"),
    ],
)
def test_a_body_that_cannot_be_sent_is_named(body: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        payload_of(AmqpAnnotatedMessage(**body), True)


def test_properties_must_be_those_of_the_official_client() -> None:
    message = AmqpAnnotatedMessage(data_body=b"a")
    message.properties = {"message_id": "a"}  # type: ignore[assignment]

    with pytest.raises(TypeError, match="Only AmqpAnnotatedMessage"):
        payload_of(message, True)


# -- what a sender takes ---------------------------------------------------------------


def bodies(payloads: list[bytes] | bytes) -> list[bytes]:
    assert isinstance(payloads, list)
    return [section(payload, sections.DATA) for payload in payloads]


def generated() -> Iterator[Any]:
    yield ServiceBusMessage("a")
    yield {"body": "b"}
    yield AmqpAnnotatedMessage(data_body="c")


def test_one_message_is_bytes_and_several_are_a_list() -> None:
    assert isinstance(payloads_of(ServiceBusMessage("a"), True), bytes)
    assert isinstance(payloads_of({"body": "a"}, True), bytes)
    assert isinstance(payloads_of(AmqpAnnotatedMessage(data_body="a"), True), bytes)
    assert bodies(payloads_of([ServiceBusMessage("a")], True)) == [b"a"]
    assert bodies(payloads_of(generated(), True)) == [b"a", b"b", b"c"]
    assert payloads_of([], True) == []


@pytest.mark.parametrize("with_id", [True, False])
def test_batches_are_lists(with_id: bool) -> None:
    ours = MessageBatch(10_000, with_ids=False)
    theirs = ServiceBusMessageBatch(10_000)
    for batch in (ours, theirs):
        for message in generated():
            batch.add_message(message)

        payloads = payloads_of(batch, with_id)

        assert isinstance(payloads, list)
        assert bodies(payloads) == [b"a", b"b", b"c"]
        without_id = [properties(payload)[0] is None for payload in payloads]
        assert without_id == [False, False, not with_id]


def test_a_batch_of_the_official_client_may_grow_after_it_was_sent() -> None:
    batch = ServiceBusMessageBatch(10_000)
    assert payloads_of(batch, True) == []
    batch.add_message(ServiceBusMessage("a"))
    assert bodies(payloads_of(batch, True)) == [b"a"]

    batch.add_message(ServiceBusMessage("b"))

    assert bodies(payloads_of(batch, True)) == [b"a", b"b"]


@pytest.mark.parametrize(
    "given_", ["text", b"bytes", 5, None, [5], [[ServiceBusMessage("a")]], {"bady": 1}]
)
def test_other_things_are_no_messages(given_: Any) -> None:
    with pytest.raises(TypeError, match="Only AmqpAnnotatedMessage, ServiceBusMessage"):
        payloads_of(given_, True)


def test_a_mapping_that_the_official_client_refuses_is_refused() -> None:
    with pytest.raises(ValueError, match="message_id cannot be longer than 128"):
        payloads_of({"body": "a", "message_id": "x" * 129}, True)


# -- dicts, which are encoded directly if they have only text and bytes ----------------

_NAMES = ("to", "subject", "reply_to", "correlation_id", "content_type", "session_id")
_TEXTS = st.text("ab", max_size=2)
_PLAIN = st.fixed_dictionaries(
    {"message_id": st.text("ab", min_size=1), "body": st.text() | st.binary()},
    optional={
        **dict.fromkeys((*_NAMES, "reply_to_session_id"), _TEXTS),
        "application_properties": st.dictionaries(_TEXTS, _TEXTS, max_size=2),
    },
)
# A surrogate cannot be encoded.
_EDGES = st.sampled_from(["x" * 128, "ü" * 128, "x" * 129, "\ud800", None, 5, b"b"])
_UNUSUAL = st.dictionaries(
    st.sampled_from(
        (*_NAMES, "reply_to_session_id", "partition_key", "unknown", "body")
    ),
    _EDGES,
    max_size=1,
) | st.fixed_dictionaries(
    {},
    optional={
        "application_properties": st.dictionaries(_EDGES, _EDGES, max_size=2) | _EDGES,
        "message_id": _EDGES.filter(bool),
        "time_to_live": st.just(0),
    },
)


def encoded_or_error(message: Any) -> bytes | tuple[type, str]:
    try:
        return payload_of(message, True)
    except (TypeError, ValueError) as error:
        return type(error), str(error).replace("mappingproxy", "dict")


@settings(max_examples=300)
@given(_PLAIN, _UNUSUAL)
def test_a_dict_is_encoded_as_any_other_mapping(
    plain: dict[str, Any], unusual: dict[str, Any]
) -> None:
    """Those become a message of the official client first."""
    for message in (plain, plain | unusual):
        ours = encoded_or_error(message)

        assert ours == encoded_or_error(MappingProxyType(message))


def test_a_dict_without_an_id_gets_one_as_from_the_official_client() -> None:
    for message in ({"body": b"a"}, {"body": "a", "subject": "b", "message_id": ""}):
        message_id = properties(payload_of(message, False))[0]

        assert message_id == str(UUID(message_id))
