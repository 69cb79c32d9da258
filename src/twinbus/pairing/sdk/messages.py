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

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from twinbus.clock import SystemClock
from twinbus.pairing.sdk.light_message import ServiceBusMessage as LightMessage
from twinbus.pairing.sdk.light_message import is_plain
from twinbus.pairing.sdk.values import (
    as_amqp,
    as_binary,
    as_symbol,
    as_text,
    as_time,
)
from twinbus.wire.encoder import encode_into, write_string
from twinbus.wire.message import names, sections
from twinbus.wire.message.writing import (
    NULL,
    data_start,
    id_properties,
    list_section,
    map_section,
    section,
)
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
_EXPIRY = 8
_CREATION = 9
_TTL = 2

_NULL_BODY = section(sections.VALUE, None)
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
        if type(message) is dict:
            if is_plain(message):
                return _of_plain(message)
        elif type(message) is LightMessage:
            plain = message.plain()
            if plain is not None:
                return _of_plain(plain)
        try:
            raw = message.raw_amqp_message
        except AttributeError:
            raw = _annotated(message)
        return _encoded(message, raw, with_id)
    except RecursionError:
        raise ValueError("The message is nested too deeply to be sent.") from None
    except AttributeError as error:
        raise _not_a_message(message, error) from error


def _of_plain(message: dict[Any, Any]) -> bytes:
    """Arguments of a message that are text and bytes (`is_plain`), encoded directly.

    The bytes are those of the official `ServiceBusMessage`, which takes ten times as
    long to make as to encode.
    """
    fields: list[Any] = [None] * len(_PROPERTIES_FIELDS)
    for key, value in message.items():
        place = _PLAIN_FIELDS.get(key)
        if place is not None:
            fields[place] = value
    body, values = message["body"], message.get("application_properties")
    if type(body) is str:
        body = body.encode()
    # The official client gives each of its messages an id.
    message_id = fields[sections.MESSAGE_ID] or str(uuid4())
    fields[sections.MESSAGE_ID] = message_id
    if fields.count(None) == len(fields) - 1:
        properties: bytes | bytearray = id_properties(message_id)
    else:
        properties = _list_section(sections.PROPERTIES, fields, _PROPERTIES_FIELDS)
    own = _application_properties(values) if values else b""
    return b"".join((properties, own, data_start(len(body)), body))


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
            parts.append(_list_section(sections.HEADER, fields, _HEADER_FIELDS))
    if raw.delivery_annotations:
        annotations = raw.delivery_annotations
        parts.append(_annotations(sections.DELIVERY_ANNOTATIONS, annotations))
    if raw.annotations:
        parts.append(_annotations(sections.MESSAGE_ANNOTATIONS, raw.annotations))
    parts.append(_properties(message, raw, ttl_ms, with_id))
    if raw.application_properties:
        parts.append(_application_properties(raw.application_properties))
    if raw.body_type is _DATA:
        # A loop of its own, so that data is copied but once.
        for data in raw.body:
            item = data if type(data) is bytes else as_binary(data)
            parts.append(data_start(len(item)))
            parts.append(item)
    else:
        parts.append(_other_body(raw))
    if raw.footer:
        parts.append(_annotations(sections.FOOTER, raw.footer))
    # A message has a section at least, and that a body is null says as much as none.
    return b"".join(parts) or _NULL_BODY


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
        return id_properties(message_id)
    fields = [message_id, *others]
    _set_times(fields, ttl_ms)
    if isinstance(message, ServiceBusReceivedMessage):
        _restore_ids(fields)
    if fields.count(None) == len(fields):
        return b""
    return _list_section(sections.PROPERTIES, fields, _PROPERTIES_FIELDS)


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
    for index in (sections.MESSAGE_ID, sections.CORRELATION_ID):
        if type(fields[index]) is bytes:
            fields[index] = _text_or_binary(fields[index])


def _list_section(
    code: int,
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
            body += NULL
            continue
        name, convert = kinds[index]
        try:
            if convert is as_text and type(value) is str:
                write_string(body, value)
            else:
                encode_into(body, convert(value))
        except _MISTAKES as error:
            raise _mistake(name, error) from error
    return list_section(code, count, body)


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

# Where the keywords of `light_message.TEXT_KEYWORDS` stand among the properties.
_PLAIN_FIELDS = {
    "message_id": 0,
    "to": 2,
    "subject": 3,
    "reply_to": 4,
    "correlation_id": 5,
    "content_type": 6,
    "session_id": 10,
    "reply_to_session_id": 12,
}


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


def _annotations(code: int, annotations: Mapping[Any, Any]) -> bytearray:
    body = bytearray()
    for key, value in annotations.items():
        try:
            name = ULong(key) if isinstance(key, int) else as_symbol(key)
            convert = _KNOWN_ANNOTATIONS.get(str(name), as_amqp)
            encode_into(body, name)
            encode_into(body, convert(value))
        except _MISTAKES as error:
            raise _mistake(f"annotation {key!r:.80}", error) from error
    return map_section(code, len(annotations), body)


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
    return map_section(sections.APPLICATION_PROPERTIES, len(properties), body)


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
    return b"" if value is None else _body_section(sections.VALUE, value)


def _sequence_sections(raw: AmqpAnnotatedMessage) -> bytes:
    try:
        items = list(raw.body)
    except TypeError:
        # The official client forgets such a body without a word.
        raise TypeError("sequence_body must be a list, or a list of lists.") from None
    return b"".join(_body_section(sections.SEQUENCE, item) for item in items)


def _body_section(code: int, value: Any) -> bytes:
    try:
        return section(code, as_amqp(value))
    except _MISTAKES as error:
        raise _mistake("body", error) from error
