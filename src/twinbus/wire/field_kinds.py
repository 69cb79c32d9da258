"""How the fields of performatives are read and written, for types that do not nest.

Owns the strict reading of one field: the wire type must be exactly the one that the
specification names, in any of its legal encodings, and the value comes out plain. A
null never arrives here. `performatives_codec.py` puts fields together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from twinbus.errors import DecodeError
from twinbus.limits import DELIVERY_TAG_BYTES_MAX
from twinbus.wire import encoder
from twinbus.wire.codec import Allowance, Buffer, read_value
from twinbus.wire.scalars import slice_at, text_at
from twinbus.wire.types import Array, Described, Symbol

_UINT16 = struct.Struct(">H").unpack_from
_UINT32 = struct.Struct(">I").unpack_from
_UINT64 = struct.Struct(">Q").unpack_from

Read = Callable[[Buffer, int, Allowance], tuple[Any, int]]
Write = Callable[[bytearray, Any], None]


class FieldKind:
    """How a field is read and written. A read starts at the constructor byte."""

    __slots__ = ("mandatory", "read", "write")

    def __init__(self, read: Read, write: Write, mandatory: bool = False) -> None:
        self.read = read
        self.write = write
        self.mandatory = mandatory

    def required(self) -> FieldKind:
        """The same type, for a field that must be given."""
        return FieldKind(self.read, self.write, mandatory=True)


# -- reading -----------------------------------------------------------------------


def _wrong(name: str) -> DecodeError:
    return DecodeError(f"A field is not of type {name}.")


def _read_boolean(buffer: Buffer, p: int, allowance: Allowance) -> tuple[bool, int]:
    code = buffer[p]
    if code == 0x41:
        return True, p + 1
    if code == 0x42:
        return False, p + 1
    if code == 0x56 and buffer[p + 1] < 2:
        return buffer[p + 1] == 1, p + 2
    raise _wrong("boolean")


def _read_ubyte(buffer: Buffer, p: int, allowance: Allowance) -> tuple[int, int]:
    if buffer[p] != 0x50:
        raise _wrong("ubyte")
    return buffer[p + 1], p + 2


def _read_ushort(buffer: Buffer, p: int, allowance: Allowance) -> tuple[int, int]:
    if buffer[p] != 0x60:
        raise _wrong("ushort")
    return _UINT16(buffer, p + 1)[0], p + 3


def _read_uint(buffer: Buffer, p: int, allowance: Allowance) -> tuple[int, int]:
    code = buffer[p]
    if code == 0x43:
        return 0, p + 1
    if code == 0x52:
        return buffer[p + 1], p + 2
    if code == 0x70:
        return _UINT32(buffer, p + 1)[0], p + 5
    raise _wrong("uint")


def _read_ulong(buffer: Buffer, p: int, allowance: Allowance) -> tuple[int, int]:
    code = buffer[p]
    if code == 0x44:
        return 0, p + 1
    if code == 0x53:
        return buffer[p + 1], p + 2
    if code == 0x80:
        return _UINT64(buffer, p + 1)[0], p + 9
    raise _wrong("ulong")


def _read_string(buffer: Buffer, p: int, allowance: Allowance) -> tuple[str, int]:
    code = buffer[p]
    if code == 0xA1:
        size = buffer[p + 1]
        return text_at(buffer, p + 2, size, "utf-8"), p + 2 + size
    if code == 0xB1:
        size = _UINT32(buffer, p + 1)[0]
        return text_at(buffer, p + 5, size, "utf-8"), p + 5 + size
    raise _wrong("string")


def read_symbol(buffer: Buffer, p: int, allowance: Allowance) -> tuple[str, int]:
    code = buffer[p]
    if code == 0xA3:
        size = buffer[p + 1]
        return text_at(buffer, p + 2, size, "ascii"), p + 2 + size
    if code == 0xB3:
        size = _UINT32(buffer, p + 1)[0]
        return text_at(buffer, p + 5, size, "ascii"), p + 5 + size
    raise _wrong("symbol")


def _read_symbols(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[list[str], int]:
    """Read a field with multiple="true": one symbol, or an array of them."""
    if buffer[p] not in (0xE0, 0xF0):
        symbol, p = read_symbol(buffer, p, allowance)
        return [symbol], p
    array, p = read_value(buffer, p, allowance)
    if array.code not in (0xA3, 0xB3):
        raise _wrong("symbol")
    symbols = []
    for item in array:
        if type(item) is Described:
            raise _wrong("symbol")
        symbols.append(str(item))
    return symbols, p


def _read_binary(buffer: Buffer, p: int, allowance: Allowance) -> tuple[bytes, int]:
    code = buffer[p]
    if code == 0xA0:
        size = buffer[p + 1]
        return slice_at(buffer, p + 2, size), p + 2 + size
    if code == 0xB0:
        size = _UINT32(buffer, p + 1)[0]
        return slice_at(buffer, p + 5, size), p + 5 + size
    raise _wrong("binary")


def _read_tag(buffer: Buffer, p: int, allowance: Allowance) -> tuple[bytes, int]:
    tag, p = _read_binary(buffer, p, allowance)
    if len(tag) > DELIVERY_TAG_BYTES_MAX:
        raise DecodeError("A delivery tag is too long.")
    return tag, p


def _read_map(
    buffer: Buffer, p: int, allowance: Allowance
) -> tuple[dict[Any, Any], int]:
    if buffer[p] not in (0xC1, 0xD1):
        raise _wrong("map")
    return read_value(buffer, p, allowance)


# -- writing -----------------------------------------------------------------------


def _write_symbols(out: bytearray, value: list[str]) -> None:
    encoder.encode_into(out, Array(0xA3, value))


def _write_fields(out: bytearray, value: dict[Any, Any]) -> None:
    """Write a map whose keys are symbols; plain text as a key means a symbol.

    A peer's map may have text as a key that no symbol can hold. It stays text, so that
    whatever was read can be sent back.
    """
    encoder.write_map(
        out,
        {
            Symbol(key) if type(key) is str and key.isascii() else key: item
            for key, item in value.items()
        },
    )


# -- the kinds ---------------------------------------------------------------------

BOOLEAN = FieldKind(_read_boolean, encoder.write_boolean)
UBYTE = FieldKind(_read_ubyte, encoder.write_ubyte)
USHORT = FieldKind(_read_ushort, encoder.write_ushort)
UINT = FieldKind(_read_uint, encoder.write_uint)
ULONG = FieldKind(_read_ulong, encoder.write_ulong)
STRING = FieldKind(_read_string, encoder.write_string)
SYMBOL = FieldKind(read_symbol, encoder.write_symbol)
SYMBOLS = FieldKind(_read_symbols, _write_symbols)
BINARY = FieldKind(_read_binary, encoder.write_binary)
TAG = FieldKind(_read_tag, encoder.write_binary)
MAP = FieldKind(_read_map, encoder.write_map)
FIELDS = FieldKind(_read_map, _write_fields)
