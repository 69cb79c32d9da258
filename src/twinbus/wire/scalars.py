"""The AMQP types without parts: bytes to numbers, text and bytes.

Owns one reader for each constructor, and the allowance that all readers share. A
reader gets the position after the constructor byte, so that the elements of an array,
which have none, are read by the same function; it returns the value and the position
behind it. A reader may raise IndexError or struct.error when the buffer ends too
early; `codec.py` gives those their proper name.
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from twinbus.errors import DecodeError, LimitExceeded
from twinbus.limits import CODEC_FREE_NODES
from twinbus.wire.types import (
    Byte,
    Char,
    Decimal,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

Buffer = bytes | bytearray | memoryview

_UINT16 = struct.Struct(">H").unpack_from
_UINT32 = struct.Struct(">I").unpack_from
_UINT64 = struct.Struct(">Q").unpack_from
_INT8 = struct.Struct(">b").unpack_from
_INT16 = struct.Struct(">h").unpack_from
_INT32 = struct.Struct(">i").unpack_from
_INT64 = struct.Struct(">q").unpack_from
_FLOAT = struct.Struct(">f").unpack_from
_DOUBLE = struct.Struct(">d").unpack_from

# Shared, because arrays of them would otherwise cost memory and no bytes.
_UINT_0 = UInt(0)
_ULONG_0 = ULong(0)
_SYMBOL_EMPTY = Symbol("")


class Allowance:
    """What one decode may still build: nodes in total, and levels below this one."""

    __slots__ = ("depth", "nodes")

    def __init__(self, buffer: Buffer, position: int, depth: int, nodes: int) -> None:
        self.depth = depth
        self.nodes = min(nodes, len(buffer) - position + CODEC_FREE_NODES)

    def charge(self, nodes: int) -> None:
        """Take nodes before they are built."""
        self.nodes -= nodes
        if self.nodes < 0:
            raise LimitExceeded("Too many values.")

    def descend(self) -> None:
        """Go one level down; the caller adds the level again when it is done."""
        if self.depth <= 0:
            raise LimitExceeded("Values are nested too deeply.")
        self.depth -= 1


def read_unknown(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Any, int]:
    raise DecodeError("There is no such type.")


def read_null(buffer: Buffer, p: int, allowance: Allowance) -> tuple[None, int]:
    return None, p


def read_true(buffer: Buffer, p: int, allowance: Allowance) -> tuple[bool, int]:
    return True, p


def read_false(buffer: Buffer, p: int, allowance: Allowance) -> tuple[bool, int]:
    return False, p


def read_boolean(buffer: Buffer, p: int, allowance: Allowance) -> tuple[bool, int]:
    octet = buffer[p]
    if octet > 1:
        raise DecodeError("A boolean is neither 0 nor 1.")
    return octet == 1, p + 1


def read_ubyte(buffer: Buffer, p: int, allowance: Allowance) -> tuple[UByte, int]:
    return UByte(buffer[p]), p + 1


def read_ushort(buffer: Buffer, p: int, allowance: Allowance) -> tuple[UShort, int]:
    return UShort(_UINT16(buffer, p)[0]), p + 2


def read_uint_0(buffer: Buffer, p: int, allowance: Allowance) -> tuple[UInt, int]:
    return _UINT_0, p


def read_uint_8(buffer: Buffer, p: int, allowance: Allowance) -> tuple[UInt, int]:
    return UInt(buffer[p]), p + 1


def read_uint(buffer: Buffer, p: int, allowance: Allowance) -> tuple[UInt, int]:
    return UInt(_UINT32(buffer, p)[0]), p + 4


def read_ulong_0(buffer: Buffer, p: int, allowance: Allowance) -> tuple[ULong, int]:
    return _ULONG_0, p


def read_ulong_8(buffer: Buffer, p: int, allowance: Allowance) -> tuple[ULong, int]:
    return ULong(buffer[p]), p + 1


def read_ulong(buffer: Buffer, p: int, allowance: Allowance) -> tuple[ULong, int]:
    return ULong(_UINT64(buffer, p)[0]), p + 8


def read_byte(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Byte, int]:
    return Byte(_INT8(buffer, p)[0]), p + 1


def read_short(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Short, int]:
    return Short(_INT16(buffer, p)[0]), p + 2


def read_int_8(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Int, int]:
    return Int(_INT8(buffer, p)[0]), p + 1


def read_int(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Int, int]:
    return Int(_INT32(buffer, p)[0]), p + 4


def read_long_8(buffer: Buffer, p: int, allowance: Allowance) -> tuple[int, int]:
    return _INT8(buffer, p)[0], p + 1


def read_long(buffer: Buffer, p: int, allowance: Allowance) -> tuple[int, int]:
    return _INT64(buffer, p)[0], p + 8


def read_timestamp(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[Timestamp, int]:
    return Timestamp(_INT64(buffer, p)[0]), p + 8


def read_float(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Float32, int]:
    return Float32(_FLOAT(buffer, p)[0]), p + 4


def read_double(buffer: Buffer, p: int, allowance: Allowance) -> tuple[float, int]:
    return _DOUBLE(buffer, p)[0], p + 8


def read_char(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Char, int]:
    point = _UINT32(buffer, p)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError("A char is not a Unicode character.")
    return Char(chr(point)), p + 4


def read_decimal_32(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[Decimal, int]:
    return Decimal(slice_at(buffer, p, 4)), p + 4


def read_decimal_64(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[Decimal, int]:
    return Decimal(slice_at(buffer, p, 8)), p + 8


def read_decimal_128(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[Decimal, int]:
    return Decimal(slice_at(buffer, p, 16)), p + 16


def read_uuid(buffer: Buffer, p: int, allowance: Allowance) -> tuple[UUID, int]:
    return UUID(bytes=slice_at(buffer, p, 16)), p + 16


def slice_at(buffer: Buffer, p: int, size: int) -> bytes:
    """Copy out bytes that must all be there."""
    if size > len(buffer) - p:
        raise DecodeError("A value is longer than its buffer.")
    return bytes(buffer[p : p + size])


def text_at(buffer: Buffer, p: int, size: int, encoding: str) -> str:
    """Copy out text that must all be there and be well formed."""
    if size > len(buffer) - p:
        raise DecodeError("A value is longer than its buffer.")
    try:
        return str(buffer[p : p + size], encoding)
    except UnicodeDecodeError:
        raise DecodeError(f"Text is not {encoding}.") from None


def read_binary_8(buffer: Buffer, p: int, allowance: Allowance) -> tuple[bytes, int]:
    size = buffer[p]
    return slice_at(buffer, p + 1, size), p + 1 + size


def read_binary_32(buffer: Buffer, p: int, allowance: Allowance) -> tuple[bytes, int]:
    size = _UINT32(buffer, p)[0]
    return slice_at(buffer, p + 4, size), p + 4 + size


def read_string_8(buffer: Buffer, p: int, allowance: Allowance) -> tuple[str, int]:
    # Most values of a message are short text, so these two are written out in full.
    end = p + 1 + buffer[p]
    if end > len(buffer):
        raise DecodeError("A value is longer than its buffer.")
    try:
        return str(buffer[p + 1 : end], "utf-8"), end
    except UnicodeDecodeError:
        raise DecodeError("Text is not utf-8.") from None


def read_string_32(buffer: Buffer, p: int, allowance: Allowance) -> tuple[str, int]:
    size = _UINT32(buffer, p)[0]
    return text_at(buffer, p + 4, size, "utf-8"), p + 4 + size


def read_symbol_8(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Symbol, int]:
    end = p + 1 + buffer[p]
    if end == p + 1:
        return _SYMBOL_EMPTY, end
    if end > len(buffer):
        raise DecodeError("A value is longer than its buffer.")
    try:
        return Symbol(buffer[p + 1 : end], "ascii"), end
    except UnicodeDecodeError:
        raise DecodeError("Text is not ascii.") from None


def read_symbol_32(buffer: Buffer, p: int, allowance: Allowance) -> tuple[Symbol, int]:
    size = _UINT32(buffer, p)[0]
    return Symbol(text_at(buffer, p + 4, size, "ascii")), p + 4 + size
