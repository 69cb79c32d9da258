"""One message of the official client, as the bytes that go on the wire.

Owns the way from `ServiceBusMessage`, `AmqpAnnotatedMessage` and their dicts to encoded
sections, by the public names of the official client alone. The rule: a receiver cannot
tell whether that client or this encoded the message. Where that client sends less than
it was given, or nonsense, this sends what was meant:

* a value body that is false (`0`, `""`) is a body;
* a time to live of more than 49 days is cut in the header, and whole in creation and
  expiry time, as in .NET;
* ids, schedules and partition keys of a received message keep the type they had;
* bytes in application properties are text, and binary if they are no text.

The caller's message is never changed. Knows nothing about links and sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from twinbus.clock import SystemClock
from twinbus.pairing.sdk.values import (
    as_amqp,
    as_binary,
    as_symbol,
    as_text,
    as_time,
)
from twinbus.wire.encoder import encode_into, write_compound, write_string
from twinbus.wire.message import names
from twinbus.wire.types import Timestamp, UByte, UInt, ULong

_HEADER = attrgetter(
    "durable", "priority", "time_to_live", "first_acquirer", "delivery_count"
)
# All properties but the message id.
_OTHERS = attrgetter(
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
_NO_HEADER = (None,) * 5
_NO_OTHERS = (None,) * 12
_MESSAGE_ID = 0
_CORRELATION_ID = 5
_EXPIRY = 8
_CREATION = 9
_TTL = 2

# How the sections begin; all descriptors are small.
_HEADER_START = b"\x00\x53\x70"
_DELIVERY_ANNOTATIONS_START = b"\x00\x53\x71"
_ANNOTATIONS_START = b"\x00\x53\x72"
_PROPERTIES_START = b"\x00\x53\x73"
_APPLICATION_START = b"\x00\x53\x74"
_SEQUENCE_START = b"\x00\x53\x76"
_VALUE_START = b"\x00\x53\x77"
_FOOTER_START = b"\x00\x53\x78"
_LIST_8 = 0xC0
_MAP_8 = 0xC1
_NULL = 0x40
# A data section with a length of one byte, and of four.
_DATA_SHORT = struct.Struct(">IB").pack
_DATA_LONG = struct.Struct(">II").pack
_DATA_SHORT_START = 0x005375A0
_DATA_LONG_START = 0x005375B0
_SHORT_BYTES = 256
_NULL_VALUE = _VALUE_START + bytes((_NULL,))
# Properties with nothing but a text id, up to that text, by its length.
_ID_STARTS = [
    _PROPERTIES_START + bytes((_LIST_8, size + 3, 1, 0xA1, size))
    for size in range(_SHORT_BYTES - 3)
]

_DATA = AmqpMessageBodyType.DATA
_SEQUENCE = AmqpMessageBodyType.SEQUENCE

# "For ever" of .NET, in milliseconds, and the last time that .NET knows.
_TTL_FOR_EVER_MS = 922_337_203_685_477
_EXPIRY_MS_MAX = 253_402_243_199_000
_TTL_MS_MAX = 0xFFFFFFFF

_clock = SystemClock()


def payload_of(message: Any, with_id: bool) -> bytes:
    """The message as encoded sections.

    `with_id` puts a new id on it if it has none. `TypeError` and `ValueError` say what
    cannot be sent.
    """
    try:
        raw = message.raw_amqp_message
    except AttributeError:
        raw = _annotated(message)
    try:
        return _encoded(message, raw, with_id)
    except RecursionError:
        raise ValueError("The message is nested too deeply to be sent.") from None
    except AttributeError as error:
        raise _not_a_message(message, error) from error


def _annotated(message: Any) -> AmqpAnnotatedMessage:
    if isinstance(message, AmqpAnnotatedMessage):
        return message
    reason = None
    if isinstance(message, Mapping):
        try:
            return ServiceBusMessage(**message).raw_amqp_message
        except TypeError as error:
            reason = error
    raise _not_a_message(message, reason) from reason


def _not_a_message(message: Any, reason: Exception | None) -> TypeError:
    detail = f" ({reason})" if reason is not None else ""
    return TypeError(
        "Only AmqpAnnotatedMessage, ServiceBusMessage instances or Mappings "
        "representing messages are supported. Received instead: "
        f"{type(message).__name__}{detail}"
    )


# What a value that cannot be sent raises.
_MISTAKES = (TypeError, ValueError, OverflowError)


def _mistake(where: str, error: Exception) -> Exception:
    """The same mistake, with the place where it was made."""
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"{where}: {error}")


def _encoded(message: Any, raw: AmqpAnnotatedMessage, with_id: bool) -> bytes:
    parts: list[bytes | bytearray] = []
    ttl_ms = None
    header = raw.header
    if header is not None:
        fields = _HEADER(header)
        if fields != _NO_HEADER:
            ttl_ms = fields[_TTL]
            parts.append(_list_section(_HEADER_START, fields, _HEADER_FIELDS))
    if raw.delivery_annotations:
        annotations = raw.delivery_annotations
        parts.append(_annotations(_DELIVERY_ANNOTATIONS_START, annotations))
    if raw.annotations:
        parts.append(_annotations(_ANNOTATIONS_START, raw.annotations))
    parts.append(_properties(message, raw, ttl_ms, with_id))
    if raw.application_properties:
        parts.append(_application_properties(raw.application_properties))
    if raw.body_type is _DATA:
        # A loop of its own, so that data is copied but once.
        for data in raw.body:
            item = data if type(data) is bytes else as_binary(data)
            size = len(item)
            if size < _SHORT_BYTES:
                parts.append(_DATA_SHORT(_DATA_SHORT_START, size))
            else:
                parts.append(_DATA_LONG(_DATA_LONG_START, size))
            parts.append(item)
    else:
        parts.append(_other_body(raw))
    if raw.footer:
        parts.append(_annotations(_FOOTER_START, raw.footer))
    # A message has a section at least, and that a body is null says as much as none.
    return b"".join(parts) or _NULL_VALUE


# -- header and properties ---------------------------------------------------------


def _properties(
    message: Any, raw: AmqpAnnotatedMessage, ttl_ms: Any, with_id: bool
) -> bytes | bytearray:
    properties = raw.properties
    if properties is None:
        message_id, others = None, _NO_OTHERS
    else:
        message_id, others = properties.message_id, _OTHERS(properties)
    if message_id is None and with_id:
        message_id = uuid4().hex
    if type(message_id) is str and others == _NO_OTHERS and not ttl_ms:
        # Most messages; the rest of this is only for the others.
        text = message_id.encode()
        if len(text) < len(_ID_STARTS):
            return _ID_STARTS[len(text)] + text
    fields = [message_id, *others]
    _set_times(fields, ttl_ms)
    if isinstance(message, ServiceBusReceivedMessage):
        _restore_ids(fields)
    if fields.count(None) == len(fields):
        return b""
    return _list_section(_PROPERTIES_START, fields, _PROPERTIES_FIELDS)


def _set_times(fields: list[Any], ttl_ms: Any) -> None:
    """Set creation and expiry time, if the message is to expire."""
    if ttl_ms and ttl_ms != _TTL_FOR_EVER_MS:
        # Whole seconds, as in the official client.
        created_ms = _clock.now_ms() // 1000 * 1000
        fields[_CREATION] = created_ms
        fields[_EXPIRY] = min(_EXPIRY_MS_MAX, created_ms + int(ttl_ms))
        return
    for index in (_CREATION, _EXPIRY):
        # The official client takes zero for no time.
        fields[index] = fields[index] or None


def _restore_ids(fields: list[Any]) -> None:
    """Make text of ids: the official client makes bytes of text that it receives."""
    for index in (_MESSAGE_ID, _CORRELATION_ID):
        if type(fields[index]) is bytes:
            fields[index] = _text_or_binary(fields[index])


def _list_section(
    start: bytes,
    fields: Sequence[Any],
    kinds: Sequence[tuple[str, Callable[[Any], Any]]],
) -> bytearray:
    """A list of fields up to the last that is there; there is one at least."""
    body = bytearray()
    count = len(fields)
    while fields[count - 1] is None:
        count -= 1
    for index in range(count):
        value = fields[index]
        if value is None:
            body.append(_NULL)
            continue
        name, convert = kinds[index]
        try:
            if convert is as_text and type(value) is str:
                write_string(body, value)
            else:
                encode_into(body, convert(value))
        except _MISTAKES as error:
            raise _mistake(name, error) from error
    out = bytearray(start)
    write_compound(out, _LIST_8, count, body)
    return out


def _id(value: Any) -> Any:
    if isinstance(value, int):
        return ULong(value)
    if isinstance(value, (str, bytes, UUID)):
        return value
    raise TypeError("Unsupported Message ID type.")


def _ttl(value: Any) -> UInt:
    return UInt(min(int(value), _TTL_MS_MAX))


_HEADER_FIELDS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("durable", bool),
    ("priority", UByte),
    ("time_to_live", _ttl),
    ("first_acquirer", bool),
    ("delivery_count", UInt),
)
_PROPERTIES_FIELDS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("message_id", _id),
    ("user_id", as_binary),
    ("to", as_text),
    ("subject", as_text),
    ("reply_to", as_text),
    ("correlation_id", _id),
    ("content_type", as_symbol),
    ("content_encoding", as_symbol),
    ("absolute_expiry_time", Timestamp),
    ("creation_time", Timestamp),
    ("group_id", as_text),
    ("group_sequence", UInt),
    ("reply_to_group_id", as_text),
)


# -- maps --------------------------------------------------------------------------


def _long(value: Any) -> Any:
    return value if type(value) is int else as_amqp(value)


def _time(value: Any) -> Any:
    return as_time(value) if type(value) is int else as_amqp(value)


def _text(value: Any) -> Any:
    return as_text(value) if type(value) is bytes else as_amqp(value)


# The service's own annotations, which the official client receives as plain numbers and
# bytes and cannot send again as what they were.
_KNOWN_ANNOTATIONS: dict[str, Callable[[Any], Any]] = {
    names.SCHEDULED_ENQUEUE_TIME: _time,
    names.ENQUEUED_TIME: _time,
    names.LOCKED_UNTIL: _time,
    names.SEQUENCE_NUMBER: _long,
    names.ENQUEUE_SEQUENCE_NUMBER: _long,
    names.PARTITION_KEY: _text,
    names.VIA_PARTITION_KEY: _text,
    names.DEAD_LETTER_SOURCE: _text,
}


def _annotations(start: bytes, annotations: Mapping[Any, Any]) -> bytearray:
    body = bytearray()
    for key, value in annotations.items():
        try:
            name = ULong(key) if isinstance(key, int) else as_symbol(key)
            convert = _KNOWN_ANNOTATIONS.get(str(name), as_amqp)
            encode_into(body, name)
            encode_into(body, convert(value))
        except _MISTAKES as error:
            raise _mistake(f"annotation {key!r:.80}", error) from error
    out = bytearray(start)
    write_compound(out, _MAP_8, 2 * len(annotations), body)
    return out


def _application_properties(properties: Mapping[Any, Any]) -> bytearray:
    body = bytearray()
    for key, value in properties.items():
        try:
            write_string(body, key if type(key) is str else as_text(key))
            kind = type(value)
            if kind is str:
                write_string(body, value)
            elif kind is bytes:
                encode_into(body, _text_or_binary(value))
            else:
                encode_into(body, as_amqp(value))
        except _MISTAKES as error:
            raise _mistake(f"property {key!r:.80}", error) from error
    out = bytearray(_APPLICATION_START)
    write_compound(out, _MAP_8, 2 * len(properties), body)
    return out


def _text_or_binary(value: bytes) -> str | bytes:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        return value


# -- bodies that are no data -------------------------------------------------------


def _other_body(raw: AmqpAnnotatedMessage) -> bytes:
    if raw.body_type is _SEQUENCE:
        return _sequence_sections(raw)
    value = raw.body
    return b"" if value is None else _section(_VALUE_START, value)


def _sequence_sections(raw: AmqpAnnotatedMessage) -> bytes:
    try:
        items = list(raw.body)
    except TypeError:
        # The official client forgets such a body without a word.
        raise TypeError("sequence_body must be a list, or a list of lists.") from None
    return b"".join(_section(_SEQUENCE_START, item) for item in items)


def _section(start: bytes, value: Any) -> bytes:
    out = bytearray(start)
    try:
        encode_into(out, as_amqp(value))
    except _MISTAKES as error:
        raise _mistake("body", error) from error
    return bytes(out)
