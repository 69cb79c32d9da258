"""A message in pieces, so that single fields can be moved and the rest kept as bytes.

Owns taking an encoded message apart and joining it again, and the changes that a broker
makes to properties of a bare message (`with_...`). Only keys of maps, the header and
the fields that a caller asks for are decoded. Bodies, footers and all other values stay
the bytes they were. Knows nothing about why a field is moved.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from twinbus import limits
from twinbus.errors import DecodeError
from twinbus.wire.codec import decode, encode, skip
from twinbus.wire.message.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    MESSAGE_ID,
    PROPERTIES,
    find_elements,
    find_section,
    find_sections,
    read_application_properties,
    read_properties,
)
from twinbus.wire.message.writing import (
    NULL,
    id_properties,
    list_section,
    map_section,
    section,
)
from twinbus.wire.types import Timestamp, UByte, UInt

_EMPTY_PROPERTIES = b"\x00\x53\x73\x45"
_WIDE_PROPERTIES = b"\x00\x53\x73\xd0"
_SIZES = struct.Struct(">II")
# Of a section whose value is wide: descriptor, constructor, size and count.
_WIDE_START = struct.Struct(">4sII")
# How short texts begin, by their length.
_TEXT_STARTS = [bytes((0xA1, size)) for size in range(256)]


class Name:
    """The key of an entry, read once for all messages that have it."""

    __slots__ = ("encoded", "key", "lower")

    def __init__(self, key: Any, encoded: bytes) -> None:
        self.key = key
        self.encoded = encoded
        # The key for comparing; None if it is no text.
        self.lower = key.lower() if isinstance(key, str) else None


class KeyValue:
    """One entry of a map: its name, and its value as it is encoded."""

    __slots__ = ("name", "value_bytes")

    def __init__(self, name: Name, value_bytes: bytes) -> None:
        self.name = name
        self.value_bytes = value_bytes

    def value(self) -> Any:
        return read_value(self.value_bytes)


# Typed, because a symbol equals a string and is another thing on the wire.
@lru_cache(256, typed=True)
def name_of(key: Any) -> Name:
    """A name of ours, or one that was changed."""
    return Name(key, encode(key))


# Senders repeat the names of their properties in every message.
@lru_cache(1024)
def _read_name(encoded: bytes) -> Name:
    return Name(decode(encoded)[0], encoded)


def read_value(encoded: bytes) -> Any:
    """Decode one value."""
    if encoded[0] == 0x83 and len(encoded) == 9:
        return Timestamp(int.from_bytes(encoded[1:], "big", signed=True))
    if len(encoded) <= limits.CACHED_VALUE_BYTES_MAX:
        return _small_value(encoded)
    return decode(encoded, budget=limits.SECTION_NODES_MAX)[0]


# Paths, session ids and times to live are short, and repeat. Callers do not change a
# value that they were given.


@lru_cache(4096)
def _small_value(encoded: bytes) -> Any:
    return decode(encoded)[0]


def key_value(key: str, value: Any) -> KeyValue:
    """An entry with a name and a value of ours."""
    return KeyValue(name_of(key), encode(value))


class Parts:
    """A message, section by section. An empty map is the same as none."""

    __slots__ = (
        "annotations",
        "application",
        "body",
        "delivery",
        "header",
        "properties",
    )

    def __init__(self) -> None:
        # The fields of the header, decoded: there are five of them, all small.
        self.header: tuple[Any, ...] | None = None
        self.delivery = b""
        self.annotations: list[KeyValue] = []
        # Each field of the properties as it is encoded.
        self.properties: list[bytes] | None = None
        self.application: list[KeyValue] = []
        # Body and footer.
        self.body = b""

    def property_bytes(self, index: int) -> bytes | None:
        """One field of the properties as encoded, or None."""
        if self.properties is None or len(self.properties) <= index:
            return None
        field = self.properties[index]
        return None if field == NULL else field

    def set_property(self, index: int, encoded: bytes | None) -> None:
        """Set one field of the properties, or clear it."""
        fields = self.properties if self.properties is not None else []
        fields.extend([NULL] * (index + 1 - len(fields)))
        fields[index] = NULL if encoded is None else encoded
        self.properties = fields

    def header_field(self, index: int) -> Any:
        """One field of the header, or None."""
        if self.header is None or len(self.header) <= index:
            return None
        return self.header[index]

    def set_header(self, index: int, value: Any) -> None:
        """Set one field of the header, or clear it."""
        fields = list(self.header or ())
        fields.extend([None] * (index + 1 - len(fields)))
        fields[index] = value
        self.header = tuple(fields)

    def join(self) -> bytes:
        """The message as it goes on the wire."""
        out: list[bytes | bytearray] = []
        if self.header is not None:
            out.append(_header_section(self.header))
        out.append(self.delivery)
        if self.annotations:
            out.append(_map_section(MESSAGE_ANNOTATIONS, self.annotations))
        if self.properties is not None:
            fields = bytearray().join(self.properties)
            out.append(list_section(PROPERTIES, len(self.properties), fields))
        if self.application:
            out.append(_map_section(APPLICATION_PROPERTIES, self.application))
        out.append(self.body)
        return b"".join(out)


def split(payload: bytes) -> Parts:
    """Take a message apart. Only a `PeerError` leaves here, whatever the bytes are."""
    parts = Parts()
    body: list[bytes] = []
    footer = b""
    try:
        for code, begin, start, end in find_sections(payload):
            if code == HEADER:
                parts.header = _header_fields(payload[start:end])
            elif code == DELIVERY_ANNOTATIONS:
                parts.delivery = payload[begin:end]
            elif code == MESSAGE_ANNOTATIONS:
                parts.annotations = _pairs(payload, start, end)
            elif code == PROPERTIES:
                parts.properties = _fields(payload, start, end)
            elif code == APPLICATION_PROPERTIES:
                parts.application = _pairs(payload, start, end)
            elif code in BODIES:
                body.append(payload[begin:end])
            else:
                footer = payload[begin:end]
    except (IndexError, struct.error):
        raise DecodeError("A message section that is cut off.") from None
    parts.body = b"".join([*body, footer])
    return parts


BODIES = range(DATA, DATA + 3)


# A sender repeats its header in every message.
@lru_cache(256)
def _header_fields(encoded: bytes) -> tuple[Any, ...]:
    return tuple(decode(encoded)[0])


def _header_section(fields: tuple[Any, ...]) -> bytes:
    if _PLAIN.issuperset(map(type, fields)):
        return _plain_header_section(*fields)
    return section(HEADER, list(fields))


# What belongs into a header. Anything else may have no hash.
_PLAIN = frozenset((type(None), bool, UByte, UInt))


# Typed, because a boolean equals a number and they are encoded differently.
@lru_cache(256, typed=True)
def _plain_header_section(*fields: Any) -> bytes:
    return section(HEADER, list(fields))


def _fields(buffer: bytes, start: int, end: int) -> list[bytes]:
    count, position = find_elements(buffer, start)
    fields: list[bytes] = []
    # As often as there are bytes at most: the count is the peer's word.
    while count and position < end:
        kind = buffer[position]
        if kind == 0x40:
            after = position + 1
        elif kind in _SHORT:
            after = position + 2 + buffer[position + 1]
        else:
            after = skip(buffer, position)
        fields.append(buffer[position:after])
        position = after
        count -= 1
    if count or position != end:
        raise DecodeError("A list does not end where its size says.")
    return fields


# Short binaries, strings and symbols: what nearly every field is.
_SHORT = frozenset((0xA0, 0xA1, 0xA3))


def _pairs(buffer: bytes, start: int, end: int) -> list[KeyValue]:
    fields = _fields(buffer, start, end)
    if len(fields) & 1:
        raise DecodeError("A map has a key without a value.")
    return [
        KeyValue(_read_name(key), value)
        for key, value in zip(fields[::2], fields[1::2], strict=True)
    ]


def _map_section(code: int, pairs: Sequence[KeyValue]) -> bytearray:
    elements: list[bytes] = []
    for pair in pairs:
        elements.append(pair.name.encoded)
        elements.append(pair.value_bytes)
    return map_section(code, len(pairs), bytearray().join(elements))


# -- the bare message of a broker ------------------------------------------------------


def with_properties(bare: bytes, fields: dict[int, Any]) -> bytes:
    """The bare message with some fields of its properties changed."""
    values = read_properties(bare)
    for index, value in fields.items():
        values[index] = value
    while values and values[-1] is None:
        values.pop()
    written = section(PROPERTIES, values)
    found = find_section(bare, PROPERTIES)
    if found is None:
        return written + bare
    return bare[: found[0]] + written + bare[found[2] :]


def with_application_properties(
    bare: bytes, changes: dict[str, Any], removed: frozenset[str] = frozenset()
) -> bytes:
    """The bare message with application properties set and removed."""
    values = read_application_properties(bare)
    for name in removed:
        values.pop(name, None)
    values.update(changes)
    written = section(APPLICATION_PROPERTIES, values)
    found = find_section(bare, APPLICATION_PROPERTIES)
    if found is not None:
        return bare[: found[0]] + written + bare[found[2] :]
    properties = find_section(bare, PROPERTIES)
    at = properties[2] if properties is not None else 0
    return bare[:at] + written + bare[at:]


def without_application_properties(bare: bytes, removed: frozenset[str]) -> bytes:
    """The bare message without some properties; without the section if none is left."""
    values = read_application_properties(bare)
    if removed.isdisjoint(values):
        return bare
    if values.keys() - removed:
        return with_application_properties(bare, {}, removed)
    found = find_section(bare, APPLICATION_PROPERTIES)
    assert found is not None
    return bare[: found[0]] + bare[found[2] :]


def with_body(bare: bytes, body: bytes) -> bytes:
    """The bare message with other bytes as its body."""
    kept = [each for each in find_sections(bare) if each[0] not in BODIES]
    before = [bare[begin:end] for code, begin, _, end in kept if code < DATA]
    after = [bare[begin:end] for code, begin, _, end in kept if code > DATA]
    return b"".join([*before, section(DATA, body), *after])


def with_message_id(bare: bytes, message_id: str) -> bytes:
    """The bare message with an id it came without."""
    start = bare[:4]
    if start == _EMPTY_PROPERTIES:
        return id_properties(message_id) + bare[4:]
    if start == _WIDE_PROPERTIES and bare[12:13] == NULL:
        # The id takes the place of a null: the rest stays as it is.
        text = message_id.encode()
        size = len(text)
        field = _TEXT_STARTS[size] + text if size < 256 else encode(message_id)
        size, count = _SIZES.unpack_from(bare, 4)
        begin = _WIDE_START.pack(start, size + len(field) - 1, count)
        return begin + field + bare[13:]
    if find_section(bare, PROPERTIES) is None:
        return id_properties(message_id) + bare
    return with_properties(bare, {MESSAGE_ID: message_id})
