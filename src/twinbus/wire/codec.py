"""The AMQP type system: bytes to values. `encoder.py` does the way back.

Owns decoding of any value from any peer. Two rules hold for every input. Only a
`PeerError` leaves `decode` and `skip`. And memory is bounded before anything is built:
`decode` never takes more than 4 KiB plus 64 bytes for each byte that it was given.
Sizes are compared with the buffer before a slice, counts with the node allowance
before a list, and nesting with the depth allowance before a call.

Knows nothing about performatives, frames or messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from twinbus.errors import DecodeError, LimitExceeded
from twinbus.limits import CODEC_DEPTH_MAX, PERFORMATIVE_NODES_MAX
from twinbus.wire import scalars
from twinbus.wire.encoder import encode, encode_into
from twinbus.wire.scalars import Allowance, Buffer
from twinbus.wire.types import Array, Described

__all__ = [
    "Allowance",
    "Buffer",
    "decode",
    "encode",
    "encode_into",
    "read_extent_8",
    "read_extent_32",
    "read_value",
    "skip",
]

_UINT32 = struct.Struct(">I").unpack_from


Reader = Callable[[Buffer, int, Allowance], tuple[Any, int]]


def decode(
    buffer: Buffer,
    position: int = 0,
    *,
    depth: int = CODEC_DEPTH_MAX,
    budget: int = PERFORMATIVE_NODES_MAX,
) -> tuple[Any, int]:
    """Decode the value at `position`; return it and where the next one starts.

    O(bytes read). Lists, maps, arrays and described values each count as one level.
    """
    allowance = Allowance(buffer, position, depth, budget)
    try:
        return _READERS[buffer[position]](buffer, position + 1, allowance)
    except (IndexError, struct.error):
        raise DecodeError("A value ends too early.") from None


def read_value(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Any, int]:
    """Decode within an allowance that the caller shares among several values.

    May raise IndexError or struct.error when the buffer ends too early; `decode` and
    the performative codec turn those into `DecodeError` at their outermost call.
    """
    return _READERS[buffer[p]](buffer, p + 1, allowance)


def skip(buffer: Buffer, position: int = 0) -> int:
    """Return where the value at `position` ends, without building anything.

    Looks only at the outermost constructor and size, so contents are not checked.
    """
    length = len(buffer)
    pending = 1
    try:
        while pending:
            code = buffer[position]
            position += 1
            if code == 0x00:
                # A descriptor and a value stand where one value was wanted.
                pending += 1
                if pending > CODEC_DEPTH_MAX:
                    raise LimitExceeded("Values are nested too deeply.")
                continue
            if _READERS[code] is scalars.read_unknown:
                raise DecodeError("There is no such type.")
            width = _WIDTHS[code]
            if width == _SIZE_8:
                width = 1 + int(buffer[position])
            elif width == _SIZE_32:
                width = 4 + int(_UINT32(buffer, position)[0])
            position += width
            if position > length:
                raise DecodeError("A value ends too early.")
            pending -= 1
    except (IndexError, struct.error):
        raise DecodeError("A value ends too early.") from None
    return position


# -- compounds ---------------------------------------------------------------------


def read_extent_8(buffer: Buffer, p: int) -> tuple[int, int, int]:
    """Read size and count of one byte each; return count, start and end."""
    end = p + 1 + buffer[p]
    if end > len(buffer) or end < p + 2:
        raise DecodeError("A compound value has a wrong size.")
    return buffer[p + 1], p + 2, end


def read_extent_32(buffer: Buffer, p: int) -> tuple[int, int, int]:
    """Read size and count of four bytes each; return count, start and end."""
    end = p + 4 + int(_UINT32(buffer, p)[0])
    if end > len(buffer) or end < p + 8:
        raise DecodeError("A compound value has a wrong size.")
    return int(_UINT32(buffer, p + 4)[0]), p + 8, end


def _read_list_0(buffer: Buffer, p: int, allowance: Allowance) -> tuple[list[Any], int]:
    # A level like any other, so that one list has one depth in all its encodings.
    allowance.descend()
    allowance.depth += 1
    return [], p


def _read_list_8(buffer: Buffer, p: int, allowance: Allowance) -> tuple[list[Any], int]:
    return _read_items(buffer, read_extent_8(buffer, p), allowance)


def _read_list_32(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[list[Any], int]:
    return _read_items(buffer, read_extent_32(buffer, p), allowance)


def _read_items(
    buffer: Buffer, extent: tuple[int, int, int], allowance: Allowance
) -> tuple[list[Any], int]:
    count, p, end = extent
    if count > end - p:
        raise DecodeError("A list has more elements than bytes.")
    allowance.charge(count)
    allowance.descend()
    # Exactly as long as needed: growing would leave an eighth of it unused.
    items: list[Any] = [None] * count
    for index in range(count):
        items[index], p = _READERS[buffer[p]](buffer, p + 1, allowance)
    if p != end:
        raise DecodeError("A list does not end where its size says.")
    allowance.depth += 1
    return items, end


def _read_map_8(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[dict[Any, Any], int]:
    return _read_pairs(buffer, read_extent_8(buffer, p), allowance)


def _read_map_32(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[dict[Any, Any], int]:
    return _read_pairs(buffer, read_extent_32(buffer, p), allowance)


def _read_pairs(
    buffer: Buffer, extent: tuple[int, int, int], allowance: Allowance
) -> tuple[dict[Any, Any], int]:
    count, p, end = extent
    if count > end - p:
        raise DecodeError("A map has more elements than bytes.")
    if count & 1:
        raise DecodeError("A map has a key without a value.")
    allowance.charge(count)
    allowance.descend()
    pairs: dict[Any, Any] = {}
    for _ in range(count >> 1):
        key, p = _READERS[buffer[p]](buffer, p + 1, allowance)
        value, p = _READERS[buffer[p]](buffer, p + 1, allowance)
        try:
            pairs[key] = value
        except TypeError:
            raise DecodeError("A map has a compound value as a key.") from None
    if p != end:
        raise DecodeError("A map does not end where its size says.")
    allowance.depth += 1
    return pairs, end


def _read_array_8(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Array, int]:
    return _read_elements(buffer, read_extent_8(buffer, p), allowance)


def _read_array_32(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Array, int]:
    return _read_elements(buffer, read_extent_32(buffer, p), allowance)


def _read_elements(
    buffer: Buffer, extent: tuple[int, int, int], allowance: Allowance
) -> tuple[Array, int]:
    count, p, end = extent
    allowance.descend()
    depth = allowance.depth
    descriptors: list[Any] = []
    while buffer[p] == 0x00:
        # One descriptor for all elements; each level of it wraps each element, the
        # innermost first.
        allowance.charge(1)
        allowance.descend()
        descriptor, p = _READERS[buffer[p + 1]](buffer, p + 2, allowance)
        descriptors.insert(0, descriptor)
    code = buffer[p]
    p += 1
    reader = _READERS[code]
    if reader is scalars.read_unknown:
        raise DecodeError("There is no such type.")
    if count * _width_min(code) > end - p:
        raise DecodeError("An array has more elements than bytes.")
    # Twice for empty lists, the only values without bytes that take memory.
    allowance.charge(count * (len(descriptors) + (2 if code == 0x45 else 1)))
    array = Array(code, _ONE_NULL)
    array *= count
    for index in range(count):
        value, p = reader(buffer, p, allowance)
        for each in descriptors:
            value = Described(each, value)
        array[index] = value
    if p != end:
        raise DecodeError("An array does not end where its size says.")
    allowance.depth = depth + 1
    return array, end


def _width_min(code: int) -> int:
    """The fewest bytes that an element with this constructor takes."""
    width = _WIDTHS[code]
    if width == _SIZE_8:
        return 1
    return 4 if width == _SIZE_32 else width


def _read_described(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[Described, int]:
    allowance.charge(2)
    allowance.descend()
    descriptor, p = _READERS[buffer[p]](buffer, p + 1, allowance)
    value, p = _READERS[buffer[p]](buffer, p + 1, allowance)
    allowance.depth += 1
    return Described(descriptor, value), p


_ONE_NULL: tuple[None] = (None,)

# -- tables ------------------------------------------------------------------------

# Marks in `_WIDTHS` for types whose size stands in their first one or four bytes.
_SIZE_8 = -1
_SIZE_32 = -4

# The high half of a constructor says how wide its values are.
_WIDTHS_BY_HALF = [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, *([_SIZE_8, _SIZE_32] * 3)]
_WIDTHS = [_WIDTHS_BY_HALF[code >> 4] for code in range(256)]

_READERS_BY_CODE: dict[int, Reader] = {
    0x00: _read_described,
    0x40: scalars.read_null,
    0x41: scalars.read_true,
    0x42: scalars.read_false,
    0x43: scalars.read_uint_0,
    0x44: scalars.read_ulong_0,
    0x45: _read_list_0,
    0x50: scalars.read_ubyte,
    0x51: scalars.read_byte,
    0x52: scalars.read_uint_8,
    0x53: scalars.read_ulong_8,
    0x54: scalars.read_int_8,
    0x55: scalars.read_long_8,
    0x56: scalars.read_boolean,
    0x60: scalars.read_ushort,
    0x61: scalars.read_short,
    0x70: scalars.read_uint,
    0x71: scalars.read_int,
    0x72: scalars.read_float,
    0x73: scalars.read_char,
    0x74: scalars.read_decimal_32,
    0x80: scalars.read_ulong,
    0x81: scalars.read_long,
    0x82: scalars.read_double,
    0x83: scalars.read_timestamp,
    0x84: scalars.read_decimal_64,
    0x94: scalars.read_decimal_128,
    0x98: scalars.read_uuid,
    0xA0: scalars.read_binary_8,
    0xA1: scalars.read_string_8,
    0xA3: scalars.read_symbol_8,
    0xB0: scalars.read_binary_32,
    0xB1: scalars.read_string_32,
    0xB3: scalars.read_symbol_32,
    0xC0: _read_list_8,
    0xC1: _read_map_8,
    0xD0: _read_list_32,
    0xD1: _read_map_32,
    0xE0: _read_array_8,
    0xF0: _read_array_32,
}
_READERS: list[Reader] = [
    _READERS_BY_CODE.get(code, scalars.read_unknown) for code in range(256)
]
