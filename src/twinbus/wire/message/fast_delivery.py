"""The usual delivery, read and rewritten by hand.

Fast path for what our own server delivers with a lock (`rendering.py`): its header, the
lock token, its three annotations and no others, short properties, short application
properties and one data section. `read_stamp` reads what the broker wrote. `read_moved`
reads a message whose session id and time to live were moved into application
properties, and makes the message that it was before. For any other shape both return
None and raise nothing; then callers take the general way (`parts.py`), which validates
and reports errors. What the properties are called, callers say.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from twinbus.errors import PeerError
from twinbus.wire.codec import decode, encode
from twinbus.wire.message.names import TIMESPAN
from twinbus.wire.message.rendering import (
    ANNOTATIONS_START,
    KEY_ENQUEUED,
    KEY_LOCKED,
    KEY_SEQUENCE,
    TOKEN_SECTION,
)
from twinbus.wire.message.sections import GROUP_ID, HEADER
from twinbus.wire.message.writing import section
from twinbus.wire.types import UInt

_HEADER = b"\x00\x53\x70\xc0"
_PROPERTIES = b"\x00\x53\x73\xc0"
_APPLICATION = b"\x00\x53\x74\xc1"
_DATA_SHORT = b"\x00\x53\x75\xa0"
_DATA_LONG = b"\x00\x53\x75\xb0"
_HEADER_FIELDS = 5
_HEADER_FIELDS_OF_SENDER = 4
_DELIVERY_COUNT = 4
# From here on a time to live takes four bytes; shorter ones are encoded in fewer.
_TTL_MS_MIN = 256
_TTL_MS_MAX = 0xFFFFFFFF
# Lock token, then section, size and count of the annotations, then their three pairs.
_BROKERS = struct.Struct(
    f">{len(TOKEN_SECTION)}s16x4s8x{len(KEY_SEQUENCE)}sq{len(KEY_ENQUEUED)}sq"
    f"{len(KEY_LOCKED)}sq"
)
_read_brokers = _BROKERS.unpack_from
# The same without the values, and what it finds if there are no other annotations.
_CONSTANTS = (
    TOKEN_SECTION,
    ANNOTATIONS_START
    + struct.pack(">II", _BROKERS.size - len(TOKEN_SECTION) - 16 - 8, 6)
    + KEY_SEQUENCE,
    KEY_ENQUEUED,
    KEY_LOCKED,
)
_read_constants = struct.Struct(
    ">{}s16x{}s8x{}s8x{}s8x".format(*map(len, _CONSTANTS))
).unpack_from
_SIZE = struct.Struct(">I").unpack_from
_LONG = struct.Struct(">q").unpack_from
# Bytes of values that have a fixed size.
_WIDTHS = {
    **dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44, 0x45), 1),
    **dict.fromkeys((0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56), 2),
    **dict.fromkeys((0x60, 0x61), 3),
    **dict.fromkeys((0x70, 0x71, 0x72, 0x73), 5),
    **dict.fromkeys((0x80, 0x81, 0x82, 0x83), 9),
    0x98: 17,
}
_NULL = 0x40
_STRING_8 = 0xA1
_SHORT = frozenset((0xA0, 0xA1, 0xA3))


# -- what the broker wrote -----------------------------------------------------------


class Stamp(NamedTuple):
    """What the broker wrote on a delivery. All times are by its clock."""

    sequence: int
    enqueued_ms: int
    locked_until_ms: int
    # How often it was delivered before.
    deliveries: int


def read_stamp(payload: bytes) -> Stamp | None:
    """What the broker wrote; None if it has another shape."""
    if payload[:4] != _HEADER:
        return None
    p = 5 + payload[4]
    header = _header(payload[3:p])
    if header is None:
        return None
    try:
        fields = _read_brokers(payload, p)
    except struct.error:
        return None
    token, kind, key_1, sequence, key_2, enqueued_ms, key_3, until_ms = fields
    if (token, kind, key_1, key_2, key_3) != _STAMP_KEYS:
        return None
    return Stamp(sequence, enqueued_ms, until_ms, header[1])


_STAMP_KEYS = (TOKEN_SECTION, ANNOTATIONS_START, KEY_SEQUENCE, KEY_ENQUEUED, KEY_LOCKED)


# -- a message with moved fields -----------------------------------------------------


# Application properties that end with moved ones: those of the sender as a section, the
# address, the session id as encoded, and the time to live in units of 100 ns.
MovedProperties = tuple[bytes, str, bytes | None, int | None]


class MovedKeys(NamedTuple):
    """The properties that stand last, each with the first bytes of its value.

    `address` (text) and `time` are always there; between them are the session id (text)
    and the time to live (a timespan) if the message has them.
    """

    address: bytes
    session: bytes
    lifetime: bytes
    time: bytes
    # Whether an encoded name may be that of another property.
    is_free: Callable[[bytes], bool]


# Reads application properties, without their size and without the value of the time.
ReadMoved = Callable[[bytes], MovedProperties | None]


def moved_reader(
    address: str,
    session: str,
    lifetime: str,
    time: str,
    is_free: Callable[[str], bool],
) -> ReadMoved:
    """Prepare to read properties with these names.

    A message that has another property whose name is not free is not a usual one.
    """

    # Senders repeat the names of their properties.
    @lru_cache(1024)
    def is_free_encoded(name: bytes) -> bool:
        try:
            return is_free(decode(name)[0])
        except PeerError:
            return False

    keys = MovedKeys(
        encode(address) + b"\xa1",
        encode(session) + b"\xa1",
        encode(lifetime) + b"\x00" + encode(TIMESPAN) + b"\x81",
        encode(time) + b"\x83",
        is_free_encoded,
    )

    # Senders repeat properties, too, and all messages without any for one address have
    # the same.
    @lru_cache(1024)
    def read(encoded: bytes) -> MovedProperties | None:
        try:
            return _read_application(encoded, keys)
        except (IndexError, struct.error):
            return None

    return read


# A message whose moved fields were read: address, time to live in units of 100 ns,
# time, sender's part of the header (see `_header`), properties with the session id in
# its place, application properties without the moved ones, body. A plain tuple, because
# a named one costs a twentieth of all the work on a message.
MovedParts = tuple[str, int | None, int, tuple[bytes, int, bytes], bytes, bytes, bytes]


def read_moved(payload: bytes, read: ReadMoved) -> MovedParts | None:
    """Read a delivery that ends with moved properties; None if it is not usual."""
    try:
        if payload[:4] != _HEADER:
            return None
        p = 5 + payload[4]
        header = _header(payload[3:p])
        if header is None or _read_constants(payload, p) != _CONSTANTS:
            return None
        p += _BROKERS.size
        start = p
        if payload[p : p + 4] == _PROPERTIES:
            p += 5 + payload[p + 4]
        if payload[p : p + 4] != _APPLICATION:
            return None
        body = p + 5 + payload[p + 4]
        found = read(payload[p + 5 : body - 8])
        if found is None or not _is_one_body(payload, body):
            return None
        application, address, session, ticks = found
        properties = _restore_properties(payload, start, p, session)
        if properties is None:
            return None
        time_ms = _LONG(payload, body - 8)[0]
        return address, ticks, time_ms, header, properties, application, payload[body:]
    except (IndexError, struct.error):
        return None


def join_moved(moved: MovedParts, ttl_ms: int | None) -> bytes | None:
    """The message with this time to live; None if that is not a usual one."""
    _, _, _, header, properties, application, body = moved
    if ttl_ms is None:
        return b"".join((header[0], properties, application, body))
    if not _TTL_MS_MIN <= ttl_ms <= _TTL_MS_MAX:
        return None
    ttl = ttl_ms.to_bytes(4, "big")
    return b"".join((header[2], ttl, properties, application, body))


def _read_application(encoded: bytes, keys: MovedKeys) -> MovedProperties | None:
    """Read application properties: their count, and the pairs up to the last value."""
    address_key, session_key, lifetime_key, time_key, is_free = keys
    tail = len(encoded) - len(time_key)
    if tail < 1 or encoded[tail:] != time_key:
        return None
    count = encoded[0] - 4
    p = 1
    while encoded[p : p + len(address_key)] != address_key:
        p = _after_pair(encoded, p, is_free)
        count -= 2
        if not 0 <= p < tail:
            return None
    own = encoded[1:p]
    if own:
        users = encoded[0] - 4 - count
        own = _APPLICATION + bytes((len(own) + 1, users)) + own
    p += len(address_key)
    end = p + 1 + encoded[p]
    address = _text(encoded[p + 1 : end])
    session: bytes | None = None
    if encoded[end : end + len(session_key)] == session_key:
        p = end + len(session_key)
        end = p + 1 + encoded[p]
        session = encoded[p - 1 : end]
        count -= 2
    ticks: int | None = None
    if encoded[end : end + len(lifetime_key)] == lifetime_key:
        end += len(lifetime_key) + 8
        ticks = _LONG(encoded, end - 8)[0]
        count -= 2
    if end != tail or count or not address:
        return None
    return own, address, session, ticks


def _restore_properties(
    payload: bytes, p: int, end: int, session: bytes | None
) -> bytes | None:
    """The properties section from `p` to `end`, with the session put in."""
    if p == end:
        return b"" if session is None else None
    start = p
    count = payload[p + 5]
    if session is None and count == 1 and payload[p + 6] == _STRING_8:
        # Most messages: an id and no more.
        return payload[start:end] if p + 8 + payload[p + 7] == end else None
    session_at = 0
    p += 6
    for index in range(count):
        kind = payload[p]
        if index == GROUP_ID:
            session_at = p
        if kind == _NULL:
            p += 1
        elif kind in _SHORT:
            p += 2 + payload[p + 1]
        elif kind in _WIDTHS:
            p += _WIDTHS[kind]
        else:
            return None
    if p != end:
        return None
    if session is None:
        return payload[start:end]
    size = payload[start + 4] + len(session) - 1
    if not session_at or payload[session_at] != _NULL or size > 255:
        return None
    try:
        str(session[2:], "utf-8")
    except UnicodeDecodeError:
        return None
    return b"".join(
        (
            _PROPERTIES,
            bytes((size, count)),
            payload[start + 6 : session_at],
            session,
            payload[session_at + 1 : end],
        )
    )


def _after_pair(payload: bytes, p: int, is_free: Callable[[bytes], bool]) -> int:
    """Where the user's property at `p` ends; -1 if it is not a usual one."""
    if payload[p] != _STRING_8:
        return -1
    start = p
    p += 2 + payload[p + 1]
    if not is_free(payload[start:p]):
        return -1
    kind = payload[p]
    if kind in _SHORT:
        return p + 2 + payload[p + 1]
    return p + _WIDTHS[kind] if kind in _WIDTHS else -1


def _is_one_body(payload: bytes, p: int) -> bool:
    """Whether one data section fills the rest."""
    start = payload[p : p + 4]
    if start == _DATA_LONG:
        return bool(p + 8 + _SIZE(payload, p + 4)[0] == len(payload))
    return start == _DATA_SHORT and p + 5 + payload[p + 4] == len(payload)


# A broker writes few different headers.
@lru_cache(1024)
def _header(encoded: bytes) -> tuple[bytes, int, bytes] | None:
    """The sender's part of a header, the delivery count, and that part again.

    The last one is up to the time to live, which follows in four bytes.
    """
    try:
        fields: Any = decode(encoded)[0]
    except PeerError:
        return None
    if len(fields) != _HEADER_FIELDS or not isinstance(fields[_DELIVERY_COUNT], int):
        return None
    senders = fields[:_HEADER_FIELDS_OF_SENDER]
    if senders[-1] is not None:
        # What is last must be the time to live.
        return None
    senders.pop()
    with_ttl = section(HEADER, [fields[0], fields[1], UInt(_TTL_MS_MAX)])
    return section(HEADER, senders), int(fields[_DELIVERY_COUNT]), with_ttl[:-4]


def _text(encoded: bytes) -> str | None:
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError:
        return None
