"""Sections, written: from a value, or from fields that are encoded already.

Owns the bytes that a section starts with. All descriptors of sections are small, so
each start is three bytes. The codes are those of `sections.py`. Knows nothing about
what belongs into a message, nor about the order of sections.
"""

from __future__ import annotations

import struct
from typing import Any

from twinbus.wire.encoder import encode_into, write_compound

_CODES = range(0x70, 0x79)
_PROPERTIES = 0x73
_STARTS = {code: bytes((0x00, 0x53, code)) for code in _CODES}
_LIST_8 = 0xC0
_MAP_8 = 0xC1
_STRING_8 = 0xA1
# A data section starts with a length of one byte, or of four.
_DATA_SHORT = struct.Struct(">IB").pack
_DATA_LONG = struct.Struct(">II").pack
_DATA_SHORT_START = 0x005375A0
_DATA_LONG_START = 0x005375B0
_SHORT_BYTES = 256
# Properties with a text id only: what stands before the text, by its length.
_ID_STARTS = [
    _STARTS[_PROPERTIES] + bytes((_LIST_8, size + 3, 1, _STRING_8, size))
    for size in range(_SHORT_BYTES - 3)
]
# A field that is not set, as encoded.
NULL = b"\x40"
# What a section needs beyond its elements or its content, at most.
SECTION_BYTES_MAX = 3 + 9


def section(code: int, value: Any) -> bytes:
    """A section with this value."""
    out = bytearray(_STARTS[code])
    encode_into(out, value)
    return bytes(out)


def encoded_section(code: int, encoded: bytes) -> bytes:
    """A section with a value that is encoded already."""
    return _STARTS[code] + encoded


def list_section(code: int, count: int, fields: bytearray) -> bytearray:
    """A section that is a list of `count` fields, which are encoded already."""
    out = bytearray(_STARTS[code])
    write_compound(out, _LIST_8, count, fields)
    return out


def map_section(code: int, pairs: int, elements: bytearray) -> bytearray:
    """A section that is a map; keys and values take turns and are encoded already."""
    out = bytearray(_STARTS[code])
    write_compound(out, _MAP_8, 2 * pairs, elements)
    return out


def data_start(size: int) -> bytes:
    """What stands before the content of a data section of that many bytes."""
    if size < _SHORT_BYTES:
        return _DATA_SHORT(_DATA_SHORT_START, size)
    return _DATA_LONG(_DATA_LONG_START, size)


def id_properties(message_id: str) -> bytes:
    """Properties with this id and no more."""
    text = message_id.encode()
    try:
        return _ID_STARTS[len(text)] + text
    except IndexError:
        return section(_PROPERTIES, [message_id])
