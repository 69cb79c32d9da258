"""The sections of a message, found and split without decoding the body.

A message that comes in is split into what the broker rules over (header, annotations)
and the *bare* message (properties, application-properties, body, footer), whose bytes
are kept as they were sent. What else the sender said in header and annotations travels
in `head`, a small blob that only this file and `rendering.py`, the way out, read:

    b""                        nothing to remember
    flags, priority, ttl, pairs  ">BBIH", then the sender's annotation pairs as encoded;
                               before them, if flagged, the delivery annotations: their
                               bytes and pairs, ">IH", then the pairs

Sections are accepted in any order, each once (data and sequence may repeat).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from twinbus import limits
from twinbus.errors import DecodeError, InvalidField, MessageTooLarge
from twinbus.wire.codec import decode, encode, skip
from twinbus.wire.message import names
from twinbus.wire.message.fast_sections import fast_parse, fast_split, read_header
from twinbus.wire.message.writing import section
from twinbus.wire.types import Symbol, Timestamp, UInt, ULong

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78

PING_CONTENT_TYPE = names.PING_CONTENT_TYPE
BATCH_FORMAT = 0x80013700

# Positions in the properties list.
MESSAGE_ID = 0
TO = 2
SUBJECT = 3
REPLY_TO = 4
CORRELATION_ID = 5
CONTENT_TYPE = 6
GROUP_ID = 10
REPLY_TO_GROUP_ID = 12

HEAD = struct.Struct(">BBIH")
DURABLE = 1
HAS_PRIORITY = 2
HAS_TTL = 4
HAS_DELIVERY = 8
# What the sender has said of durable and first-acquirer, beside nothing and DURABLE.
NOT_DURABLE = 16
FIRST = 32
NOT_FIRST = 64
WAS_SCHEDULED = 128
_DELIVERY = struct.Struct(">IH")
# The heads of messages with no more than these flags.
SHORT_HEADS = {
    first | durable: HEAD.pack(first | durable, 0, 0, 0) if first | durable else b""
    for first in (0, FIRST, NOT_FIRST)
    for durable in (0, DURABLE, NOT_DURABLE)
}
_DURABLE_FLAGS = {None: 0, True: DURABLE, False: NOT_DURABLE}
_FIRST_FLAGS = {None: 0, True: FIRST, False: NOT_FIRST}


class Incoming:
    """A message that came in, as far as the broker needs to know it."""

    __slots__ = (
        "bare",
        "content_type",
        "delivery",
        "delivery_count",
        "durable",
        "first_acquirer",
        "message_id",
        "pairs",
        "pairs_count",
        "partition_key",
        "priority",
        "scheduled_ms",
        "session_id",
        "ttl_ms",
    )

    def __init__(self) -> None:
        self.bare = b""
        self.message_id: Any = None
        self.session_id: str | None = None
        self.content_type: str | None = None
        self.durable: bool | None = None
        self.first_acquirer: bool | None = None
        self.priority: int | None = None
        self.ttl_ms: int | None = None
        self.partition_key: str | None = None
        self.scheduled_ms: int | None = None
        self.pairs = b""
        self.pairs_count = 0
        # Delivery annotations of the sender.
        self.delivery = b""
        self.delivery_count = 0

    def head(self) -> bytes:
        """What the store must keep beside the bare message."""
        flags = _DURABLE_FLAGS[self.durable] | _FIRST_FLAGS[self.first_acquirer]
        annotated = self.pairs_count or self.delivery_count
        if not annotated and self.priority is None and self.ttl_ms is None:
            return SHORT_HEADS[flags]
        if self.priority is not None:
            flags |= HAS_PRIORITY
        if self.ttl_ms is not None:
            flags |= HAS_TTL
        delivery = b""
        if self.delivery_count:
            flags |= HAS_DELIVERY
            delivery = _DELIVERY.pack(len(self.delivery), self.delivery_count)
            delivery += self.delivery
        if self.scheduled_ms is not None:
            flags |= WAS_SCHEDULED
        fixed = HEAD.pack(flags, self.priority or 0, self.ttl_ms or 0, self.pairs_count)
        return fixed + delivery + self.pairs


def split_annotations(head: bytes) -> tuple[int, bytes, bytes]:
    """What a head has beside its fixed fields (`Incoming.head`).

    The number of delivery annotations, their pairs, and the pairs of all others.
    """
    if not head[0] & HAS_DELIVERY:
        return 0, b"", head[HEAD.size :]
    size_bytes, count = _DELIVERY.unpack_from(head, HEAD.size)
    start = HEAD.size + _DELIVERY.size
    end = start + size_bytes
    return count, head[start:end], head[end:]


# -- finding sections --------------------------------------------------------------


def _bounds(buffer: bytes, position: int) -> tuple[int, int, int]:
    """Code of the section at `position`, where its value starts, where it ends."""
    if len(buffer) - position < 4 or buffer[position] != 0:
        raise DecodeError("A message section must start with a descriptor.")
    if buffer[position + 1] == 0x53:
        code = buffer[position + 2]
        start = position + 3
    else:
        descriptor, start = decode(buffer, position + 1)
        if type(descriptor) is not ULong or not HEADER <= descriptor <= FOOTER:
            raise DecodeError("An unknown message section.")
        code = int(descriptor)
    if not HEADER <= code <= FOOTER:
        raise DecodeError("An unknown message section.")
    if start >= len(buffer):
        raise DecodeError("A message section without a value.")
    kind = buffer[start]
    if code == DATA and kind not in (0xA0, 0xB0):
        raise DecodeError("A data section must be binary.")
    if code in (HEADER, PROPERTIES, SEQUENCE) and kind not in (0x45, 0xC0, 0xD0):
        raise DecodeError("That section must be a list.")
    maps = (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER)
    if code in maps and kind not in (0xC1, 0xD1):
        raise DecodeError("That section must be a map.")
    if kind in (0xA0, 0xC0, 0xC1):
        if start + 1 >= len(buffer):
            raise DecodeError("A message section that is cut off.")
        end = start + 2 + buffer[start + 1]
    else:
        end = skip(buffer, start)
    if end > len(buffer):
        raise DecodeError("A message section that is cut off.")
    return code, start, end


def find_sections(buffer: bytes) -> list[tuple[int, int, int, int]]:
    """All sections as (code, begin, value start, end), checked for repeats."""
    found: list[tuple[int, int, int, int]] = []
    position = 0
    seen = 0
    body = 0
    while position < len(buffer):
        code, start, end = _bounds(buffer, position)
        bit = 1 << (code - HEADER)
        if seen & bit and code not in (DATA, SEQUENCE):
            raise DecodeError("A message section appears twice.")
        if DATA <= code <= VALUE:
            if body and body != code:
                raise DecodeError("A message has one kind of body.")
            body = code
        seen |= bit
        found.append((code, position, start, end))
        position = end
    return found


def parse(payload: bytes) -> Incoming:
    """Split a message that came in."""
    message = Incoming()
    return message if fast_parse(message, payload) else _parse_any(payload)


def _parse_any(payload: bytes) -> Incoming:
    message = Incoming()
    bare_from = -1
    in_order = True
    last = 0
    properties_bytes = 0
    sections = find_sections(payload)
    for code, begin, start, end in sections:
        if PROPERTIES <= code <= APPLICATION_PROPERTIES:
            properties_bytes += end - begin
        if code >= PROPERTIES:
            if bare_from < 0:
                bare_from = begin
            in_order = in_order and code >= last
            last = code
            if code == PROPERTIES:
                _read_properties(message, payload, start)
            elif code == APPLICATION_PROPERTIES:
                _check_application_properties(payload, start, end)
        else:
            in_order = in_order and bare_from < 0
            if code == HEADER:
                _read_header(message, payload[start:end])
            elif code == MESSAGE_ANNOTATIONS:
                _read_annotations(message, payload, start, end)
            else:
                _read_delivery(message, payload, start, end)
    if properties_bytes > limits.PROPERTIES_BYTES_MAX:
        raise MessageTooLarge(
            f"The properties have {properties_bytes} bytes; at most "
            f"{limits.PROPERTIES_BYTES_MAX} are allowed."
        )
    if in_order:
        message.bare = payload[bare_from:] if bare_from >= 0 else b""
    else:
        kept = sorted((s for s in sections if s[0] >= PROPERTIES), key=_code_of)
        message.bare = b"".join(payload[begin:end] for _, begin, _, end in kept)
    return message


def _code_of(section: tuple[int, int, int, int]) -> int:
    return section[0]


def find_elements(buffer: bytes, start: int) -> tuple[int, int]:
    """Element count of the compound at `start`, and where its elements begin."""
    kind = buffer[start]
    if kind in (0xC0, 0xC1):
        if start + 2 >= len(buffer):
            raise DecodeError("A compound that is cut off.")
        return buffer[start + 2], start + 3
    if kind in (0xD0, 0xD1):
        if start + 9 > len(buffer):
            raise DecodeError("A compound that is cut off.")
        return int.from_bytes(buffer[start + 5 : start + 9], "big"), start + 9
    return 0, start + 1


def _read_header(message: Incoming, encoded: bytes) -> None:
    header = read_header(encoded)
    message.durable, message.priority, message.ttl_ms, message.first_acquirer = header


def _read_properties(message: Incoming, buffer: bytes, start: int) -> None:
    # Decoded as a whole, as by all who read it later: what is kept can be read.
    fields, _ = decode(buffer, start, budget=limits.PERFORMATIVE_NODES_MAX)
    if len(fields) > 13:
        raise DecodeError("Too many properties.")
    fields += [None] * (13 - len(fields))
    message.message_id = fields[MESSAGE_ID]
    content_type = fields[CONTENT_TYPE]
    message.content_type = content_type if isinstance(content_type, str) else None
    session_id = fields[GROUP_ID]
    if session_id is not None and (
        not isinstance(session_id, str) or isinstance(session_id, Symbol)
    ):
        raise InvalidField("The session id (group-id) must be a string.")
    message.session_id = session_id


def _check_application_properties(buffer: bytes, start: int, end: int) -> None:
    """What is kept must be readable later, by rules and by dead-lettering."""
    values, _ = decode(buffer, start, budget=limits.SECTION_NODES_MAX)
    for name in values:
        if not isinstance(name, str):
            raise InvalidField("The keys of application properties must be strings.")
    if end - start <= limits.PROPERTY_BYTES_MAX:
        return
    count, position = find_elements(buffer, start)
    for _ in range(count // 2):
        value_at = skip(buffer, position)
        position = skip(buffer, value_at)
        if position - value_at > limits.PROPERTY_BYTES_MAX:
            raise MessageTooLarge(
                f"A property has at most {limits.PROPERTY_BYTES_MAX} bytes."
            )


def _pairs(
    buffer: bytes, position: int, count: int
) -> Iterator[tuple[Any, Any, int, int]]:
    """So many annotations from here on: key, value, and where both begin and end."""
    for _ in range(count):
        begin = position
        key, position = decode(buffer, position)
        value, position = decode(buffer, position, budget=limits.SECTION_NODES_MAX)
        yield key, value, begin, position


def _read_annotations(message: Incoming, buffer: bytes, start: int, end: int) -> None:
    count, position = find_elements(buffer, start)
    if count > limits.SECTION_NODES_MAX:
        # Their number must also fit into `head`.
        raise InvalidField(
            f"There are at most {limits.SECTION_NODES_MAX // 2} message annotations."
        )
    pairs: list[bytes] = []
    found = _pairs(buffer, position, count // 2)
    for key, value, begin, position in found:
        if not isinstance(key, (Symbol, ULong)):
            raise DecodeError("Annotation keys must be symbols.")
        name = str(key)
        if name in names.BROKER_ANNOTATIONS:
            continue
        if name == names.SCHEDULED_ENQUEUE_TIME:
            if value is not None and not isinstance(value, Timestamp):
                raise InvalidField(f"{name} must be a timestamp.")
            message.scheduled_ms = None if value is None else int(value)
        elif name == names.PARTITION_KEY and value is not None:
            message.partition_key = _partition_key(value)
            pairs.append(encode(names.PARTITION_KEY) + encode(message.partition_key))
            continue
        pairs.append(buffer[begin:position])
    if position != end:
        raise DecodeError("Annotations that do not end where their size says.")
    message.pairs = b"".join(pairs)
    message.pairs_count = len(pairs)


def _read_delivery(message: Incoming, buffer: bytes, start: int, end: int) -> None:
    """Keep the delivery annotations, but for the lock token of another delivery."""
    count, position = find_elements(buffer, start)
    if count > limits.SECTION_NODES_MAX:
        raise InvalidField(
            f"There are at most {limits.SECTION_NODES_MAX // 2} delivery annotations."
        )
    pairs: list[bytes] = []
    found = _pairs(buffer, position, count // 2)
    for key, _, begin, position in found:
        if key != names.LOCK_TOKEN:
            pairs.append(buffer[begin:position])
    if position != end:
        raise DecodeError("Annotations that do not end where their size says.")
    message.delivery = b"".join(pairs)
    message.delivery_count = len(pairs)


def _partition_key(value: Any) -> str:
    """The key as text; a client that sends a received message again makes it binary."""
    if type(value) is bytes:
        with suppress(UnicodeDecodeError):
            return str(value, "utf-8")
    if not isinstance(value, str):
        raise InvalidField(f"{names.PARTITION_KEY} must be a string.")
    return value


def partition_key_of(head: bytes) -> str | None:
    """The partition key among the annotations that a head keeps (`Incoming.head`)."""
    if len(head) <= HEAD.size:
        return None
    count = HEAD.unpack_from(head)[3]
    for key, value, _, _ in _pairs(split_annotations(head)[2], 0, count):
        if key == names.PARTITION_KEY:
            return value if isinstance(value, str) else None
    return None


def split_batch(payload: bytes) -> list[bytes]:
    """The messages inside a batch envelope, as encoded."""
    first = _first_body(payload)
    # The checks of the sections before the messages.
    find_sections(payload[:first])
    inner = fast_split(payload, first)
    if inner is None:
        inner = []
        for code, _begin, start, _end in find_sections(payload):
            if code == DATA:
                inner.append(decode(payload, start)[0])
            elif code in (SEQUENCE, VALUE):
                raise DecodeError("A batch holds data sections only.")
    if len(inner) > limits.BATCH_MESSAGES_MAX:
        raise InvalidField(
            f"A batch holds at most {limits.BATCH_MESSAGES_MAX} messages."
        )
    return inner


def _first_body(payload: bytes) -> int:
    """Where the body of a message begins; its end if it has none."""
    position = 0
    while position < len(payload):
        code, _start, end = _bounds(payload, position)
        if DATA <= code <= VALUE:
            break
        position = end
    return position


# -- reading the bare message ----------------------------------------------------------


def find_section(bare: bytes, wanted: int) -> tuple[int, int, int] | None:
    """(begin, value start, end) of one section of a bare message."""
    position = 0
    while position < len(bare):
        code, start, end = _bounds(bare, position)
        if code == wanted:
            return position, start, end
        if code > wanted:
            return None
        position = end
    return None


def read_properties(bare: bytes) -> list[Any]:
    """The properties list, padded to all 13 fields."""
    found = find_section(bare, PROPERTIES)
    fields: list[Any] = []
    if found is not None:
        fields, _ = decode(bare, found[1], budget=limits.PERFORMATIVE_NODES_MAX)
    return fields + [None] * (13 - len(fields))


def read_application_properties(bare: bytes) -> dict[str, Any]:
    """The application properties; empty if there are none."""
    found = find_section(bare, APPLICATION_PROPERTIES)
    if found is None:
        return {}
    value, _ = decode(bare, found[1], budget=limits.SECTION_NODES_MAX)
    if not isinstance(value, dict):
        raise DecodeError("Application properties must be a map.")
    return value


# -- whole small messages: requests and replies ----------------------------------------


class Request:
    """A decoded message of `$cbs`, `$management` or a coordinator."""

    __slots__ = ("application_properties", "body", "message_id", "reply_to")

    def __init__(self, payload: bytes) -> None:
        self.message_id: Any = None
        self.reply_to: str | None = None
        self.application_properties: dict[str, Any] = {}
        self.body: Any = None
        for code, _begin, start, _end in find_sections(payload):
            if code == PROPERTIES:
                fields, _ = decode(payload, start)
                padded = list(fields) + [None] * 6
                self.message_id = padded[MESSAGE_ID]
                reply_to = padded[REPLY_TO]
                self.reply_to = reply_to if isinstance(reply_to, str) else None
            elif code == APPLICATION_PROPERTIES:
                budget = limits.SECTION_NODES_MAX
                self.application_properties, _ = decode(payload, start, budget=budget)
            elif code == VALUE:
                budget = limits.SECTION_NODES_MAX
                self.body, _ = decode(payload, start, budget=budget)
            elif code == DATA:
                self.body, _ = decode(payload, start)


def encode_reply(correlation_id: Any, properties: dict[str, Any], body: Any) -> bytes:
    """A reply: its correlation id is the request's message id, type kept."""
    fields: list[Any] = [None] * 5 + [correlation_id]
    return b"".join(
        (
            section(PROPERTIES, fields),
            section(APPLICATION_PROPERTIES, properties),
            section(VALUE, body),
        )
    )


def encode_request(
    reply_to: str, properties: dict[str, Any], body: Any, message_id: str | None = None
) -> bytes:
    """A request to `$cbs` or `$management`; its id is `reply_to` if none is given."""
    fields: list[Any] = [message_id or reply_to, None, None, None, reply_to]
    return b"".join(
        (
            section(PROPERTIES, fields),
            section(APPLICATION_PROPERTIES, properties),
            section(VALUE, body),
        )
    )


def encode_message(
    body: bytes, properties: dict[int, Any] | None = None, ttl_ms: int | None = None
) -> bytes:
    """A small message with a data body, for tools and tests."""
    header = section(HEADER, [True, None, None if ttl_ms is None else UInt(ttl_ms)])
    if not properties:
        return header + section(DATA, body)
    fields = [properties.get(place) for place in range(max(properties) + 1)]
    return header + section(PROPERTIES, fields) + section(DATA, body)
