"""The usual message, split by hand: header, properties, text and numbers, one body.

Fast path for common encodings: `fast_parse` finds exactly what `sections.parse` would,
or returns False and raises nothing; then `sections.parse` does validation and errors.
`fast_split` does the same for the messages of a batch.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from twinbus.errors import PeerError
from twinbus.limits import PERFORMATIVE_NODES_MAX
from twinbus.wire.codec import decode
from twinbus.wire.types import Symbol

if TYPE_CHECKING:
    from twinbus.wire.message.sections import Incoming

_UINT32 = struct.Struct(">I").unpack_from
_TWO_UINT32 = struct.Struct(">II").unpack_from
_HEADER = b"\x00\x53\x70\xc0"
_EMPTY_HEADER = b"\x00\x53\x70\x45"
_PROPERTIES = b"\x00\x53\x73"
_APPLICATION_PROPERTIES = b"\x00\x53\x74"
_DATA = b"\x00\x53\x75"
_DATA_8 = _DATA + b"\xa0"
_DATA_32 = _DATA + b"\xb0"
# Some clients write annotations and a footer that have nothing in them.
_EMPTY_MAP_8 = b"\xc1\x01\x00"
_EMPTY_MAP_32 = b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00"
# Java's, and that of JavaScript and Go.
_EMPTY_ANNOTATIONS = (
    b"\x00\x53\x71" + _EMPTY_MAP_8 + b"\x00\x53\x72" + _EMPTY_MAP_8,
    b"\x00\x53\x72" + _EMPTY_MAP_32,
)
_FOOTERS = (b"", b"\x00\x53\x78" + _EMPTY_MAP_8, b"\x00\x53\x78" + _EMPTY_MAP_32)
# Java's properties of a message without an id: no id, and a user id of no bytes.
_EMPTY_PROPERTIES = b"\x00\x53\x73\xd0\x00\x00\x00\x07\x00\x00\x00\x02\x40\xa0\x00"
# Larger ones are left to the general parser, which knows the limits.
_SECTION_BYTES_MAX = 4096
_SECTION_NODES_MAX = 255
# Positions in the properties list.
_MESSAGE_ID = 0
_USER_ID = 1
_CONTENT_TYPE = 6
_CONTENT_ENCODING = 7
_GROUP_ID = 10
_FIELDS_MAX = 13
# Bytes of plain values: null, booleans, integers, double, timestamp, uuid.
_WIDTHS = {
    **dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44), 1),
    **dict.fromkeys((0x50, 0x51, 0x52, 0x53, 0x54, 0x55), 2),
    **dict.fromkeys((0x60, 0x61), 3),
    **dict.fromkeys((0x70, 0x71), 5),
    **dict.fromkeys((0x80, 0x81, 0x82, 0x83), 9),
    0x98: 17,
}
# A sender repeats its header in every message, so few are decoded more than once.
_HEADERS_MAX = 256

Header = tuple[bool | None, int | None, int | None, bool | None]


@lru_cache(_HEADERS_MAX)
def read_header(encoded: bytes) -> Header:
    """Durable, priority, time to live and first acquirer of an encoded header list."""
    fields, _ = decode(encoded, budget=PERFORMATIVE_NODES_MAX)
    durable = priority = ttl_ms = first = None
    if len(fields) > 0 and isinstance(fields[0], bool):
        durable = fields[0]
    if len(fields) > 3 and isinstance(fields[3], bool):
        first = fields[3]
    if len(fields) > 1 and isinstance(fields[1], int):
        priority = int(fields[1]) & 0xFF
    if len(fields) > 2 and isinstance(fields[2], int):
        ttl_ms = min(max(int(fields[2]), 0), 0xFFFFFFFF)
    return durable, priority, ttl_ms, first


def fast_parse(message: Incoming, payload: bytes) -> bool:
    """Fill in a message of the usual shape; False if it has another."""
    p = 0
    try:
        start = payload[:4]
        if start == _HEADER:
            p = 5 + payload[4]
            (
                message.durable,
                message.priority,
                message.ttl_ms,
                message.first_acquirer,
            ) = read_header(payload[3:p])
        elif start == _EMPTY_HEADER:
            p = 4
        start = payload[p : p + 3]
        if start < _PROPERTIES:
            p = _skip_empty_annotations(payload, p)
            start = payload[p : p + 3]
        bare_from = p
        if start == _PROPERTIES:
            p = _take_properties(message, payload, p)
            if p < 0:
                return False
            start = payload[p : p + 3]
        if start == _APPLICATION_PROPERTIES:
            p = _skip_application_properties(payload, p)
            if p < 0:
                return False
            start = payload[p : p + 3]
        if start != _DATA:
            return False
        code = payload[p + 3]
        if code == 0xB0:
            end = p + 8 + _UINT32(payload, p + 4)[0]
        elif code == 0xA0:
            end = p + 5 + payload[p + 4]
        else:
            return False
    except (IndexError, ValueError, struct.error, PeerError):
        return False
    if end != len(payload) and (end > len(payload) or payload[end:] not in _FOOTERS):
        return False
    message.bare = payload[bare_from:]
    return True


def fast_split(payload: bytes, p: int) -> list[bytes] | None:
    """The contents of data sections from `p` to the end; None if there is more."""
    contents: list[bytes] = []
    size = len(payload)
    try:
        while p < size:
            kind = payload[p : p + 4]
            if kind == _DATA_32:
                start = p + 8
                p = start + _UINT32(payload, p + 4)[0]
            elif kind == _DATA_8:
                start = p + 5
                p = start + payload[p + 4]
            else:
                return None
            contents.append(payload[start:p])
    except (IndexError, struct.error):
        return None
    return contents if p == size else None


def _skip_empty_annotations(payload: bytes, p: int) -> int:
    """Where the annotations at `p` end if they are empty; `p` itself if not."""
    if payload[p : p + 12] in _EMPTY_ANNOTATIONS:
        return p + 12
    for code in (0x71, 0x72):
        if payload[p : p + 2] == b"\x00\x53" and payload[p + 2] == code:
            if payload[p + 3 : p + 6] == _EMPTY_MAP_8:
                p += 6
            elif payload[p + 3 : p + 12] == _EMPTY_MAP_32:
                p += 12
    return p


def _take_properties(message: Incoming, payload: bytes, p: int) -> int:
    """Read the properties section at `p`; where it ends, or -1."""
    code = payload[p + 3]
    if code == 0xC0:
        end = p + 5 + payload[p + 4]
        count = payload[p + 5]
        p += 6
        if count == 1 and payload[p] == 0xA1 and p + 2 + payload[p + 1] == end:
            # An id and no more.
            message.message_id = str(payload[p + 2 : end], "utf-8")
            return end
    elif code == 0xD0:
        if payload[p : p + 15] == _EMPTY_PROPERTIES:
            return p + 15
        size, count = _TWO_UINT32(payload, p + 4)
        end = p + 8 + size
        p += 12
    else:
        return p + 4 if code == 0x45 else -1
    if count > _FIELDS_MAX or end - p > _SECTION_BYTES_MAX:
        return -1
    for index in range(count):
        code = payload[p]
        if code == 0x40:
            p += 1
            continue
        value: Any = None
        if code == 0xA1:
            start = p + 2
            p = start + payload[p + 1]
            value = str(payload[start:p], "utf-8")
        elif code == 0xA3 and _CONTENT_TYPE <= index <= _CONTENT_ENCODING:
            start = p + 2
            p = start + payload[p + 1]
            value = Symbol(payload[start:p], "ascii")
        elif code == 0x83 and index > _CONTENT_ENCODING and index != _GROUP_ID:
            p += 9
        elif code == 0xA0 and index == _USER_ID:
            p += 2 + payload[p + 1]
        else:
            return -1
        if index == _MESSAGE_ID:
            message.message_id = value
        elif index == _GROUP_ID:
            message.session_id = value
        elif index == _CONTENT_TYPE:
            message.content_type = value
    return end if p == end else -1


def _skip_application_properties(payload: bytes, p: int) -> int:
    """Check the keys and values of the section at `p`; where it ends, or -1."""
    if payload[p + 3] == 0xC1:
        end = p + 5 + payload[p + 4]
        count = payload[p + 5]
        p += 6
        if p == end and not count:
            return end
    elif payload[p + 3] == 0xD1:
        size, count = _TWO_UINT32(payload, p + 4)
        end = p + 8 + size
        p += 12
    else:
        return -1
    if count & 1 or count > _SECTION_NODES_MAX or end - p > _SECTION_BYTES_MAX:
        return -1
    for index in range(count):
        code = payload[p]
        if code == 0xA1:
            start = p + 2
            p = start + payload[p + 1]
            # Text that is no text would be found when a rule reads it, too late.
            str(payload[start:p], "utf-8")
        elif index & 1 and code in _WIDTHS:
            p += _WIDTHS[code]
        else:
            return -1
    return end if p == end else -1
