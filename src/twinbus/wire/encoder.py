"""The AMQP type system: values to bytes, in the smallest encoding.

Owns encoding. What comes in here is ours, so a value that does not fit is a local
mistake: `ValueError` for a range, `TypeError` for a type that AMQP has no word for.
Knows nothing about performatives, frames or messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from twinbus.wire.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
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

_BINARY_32 = struct.Struct(">BI").pack
_COMPOUND_32 = struct.Struct(">BII").pack
_FLOAT = struct.Struct(">f").pack
_DOUBLE = struct.Struct(">Bd").pack

Writer = Callable[[bytearray, Any], None]


def encode(value: Any) -> bytes:
    """Encode one value."""
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: Any) -> None:
    """Append one encoded value to `out`."""
    writer = _WRITERS.get(type(value))
    if writer is None:
        writer = _writer_of_subclass(value)
    writer(out, value)


def _writer_of_subclass(value: Any) -> Writer:
    """Find the writer of the nearest base, for enumerations and the like."""
    for base in type(value).__mro__:
        writer = _WRITERS.get(base)
        if writer is not None:
            return writer
    raise TypeError(f"AMQP has no type for {type(value).__name__}")


def _int_bytes(value: int, size: int, signed: bool) -> bytes:
    try:
        return value.to_bytes(size, "big", signed=signed)
    except OverflowError:
        raise ValueError(f"{value} does not fit into {size} bytes") from None


# -- scalars -----------------------------------------------------------------------


def write_null(out: bytearray, value: None) -> None:
    out.append(0x40)


def write_boolean(out: bytearray, value: bool) -> None:
    out.append(0x41 if value else 0x42)


def write_ubyte(out: bytearray, value: int) -> None:
    out.append(0x50)
    out += _int_bytes(value, 1, False)


def write_ushort(out: bytearray, value: int) -> None:
    out.append(0x60)
    out += _int_bytes(value, 2, False)


def write_uint(out: bytearray, value: int) -> None:
    if value == 0:
        out.append(0x43)
    elif 0 < value < 256:
        out.append(0x52)
        out.append(value)
    else:
        out.append(0x70)
        out += _int_bytes(value, 4, False)


def write_ulong(out: bytearray, value: int) -> None:
    if value == 0:
        out.append(0x44)
    elif 0 < value < 256:
        out.append(0x53)
        out.append(value)
    else:
        out.append(0x80)
        out += _int_bytes(value, 8, False)


def _write_byte(out: bytearray, value: int) -> None:
    out.append(0x51)
    out += _int_bytes(value, 1, True)


def _write_short(out: bytearray, value: int) -> None:
    out.append(0x61)
    out += _int_bytes(value, 2, True)


def _write_int(out: bytearray, value: int) -> None:
    if -128 <= value < 128:
        out.append(0x54)
        out.append(value & 0xFF)
    else:
        out.append(0x71)
        out += _int_bytes(value, 4, True)


def _write_long(out: bytearray, value: int) -> None:
    if -128 <= value < 128:
        out.append(0x55)
        out.append(value & 0xFF)
    else:
        out.append(0x81)
        out += _int_bytes(value, 8, True)


def _write_timestamp(out: bytearray, value: int) -> None:
    out.append(0x83)
    out += _int_bytes(value, 8, True)


def _write_float(out: bytearray, value: float) -> None:
    out.append(0x72)
    out += _float_bytes(value)


def _float_bytes(value: float) -> bytes:
    try:
        return _FLOAT(value)
    except OverflowError:
        raise ValueError(f"{value} does not fit into a float") from None


def _write_double(out: bytearray, value: float) -> None:
    out += _DOUBLE(0x82, value)


def _write_char(out: bytearray, value: str) -> None:
    out.append(0x73)
    out += _char_bytes(value)


def _char_bytes(value: str) -> bytes:
    if len(value) != 1:
        raise ValueError("a char is one character")
    return value.encode("utf-32-be")


_DECIMAL_CODES = {4: 0x74, 8: 0x84, 16: 0x94}


def _write_decimal(out: bytearray, value: bytes) -> None:
    code = _DECIMAL_CODES.get(len(value))
    if code is None:
        raise ValueError("a decimal has 4, 8 or 16 bytes")
    out.append(code)
    out += value


def _write_uuid(out: bytearray, value: UUID) -> None:
    out.append(0x98)
    out += value.bytes


def _write_sized(
    out: bytearray, code: int, body: bytes | bytearray | memoryview
) -> None:
    """Write a variable width value; `code` is the constructor of the short form."""
    size = len(body)
    if size < 256:
        out.append(code)
        out.append(size)
    elif size < 2**32:
        out += _BINARY_32(code + 0x10, size)
    else:
        raise ValueError("a value has 4 GiB or more")
    out += body


def write_binary(out: bytearray, value: bytes | bytearray | memoryview) -> None:
    _write_sized(out, 0xA0, value)


def write_string(out: bytearray, value: str) -> None:
    _write_sized(out, 0xA1, value.encode())


def write_symbol(out: bytearray, value: str) -> None:
    _write_sized(out, 0xA3, value.encode("ascii"))


# -- compounds ---------------------------------------------------------------------


def write_compound(out: bytearray, code: int, count: int, body: bytearray) -> None:
    """Write size, count and body; `code` is the constructor of the short form."""
    size = len(body)
    if size < 255 and count < 256:
        out.append(code)
        out.append(size + 1)
        out.append(count)
    elif size < 2**32 - 4:
        out += _COMPOUND_32(code + 0x10, size + 4, count)
    else:
        raise ValueError("a value has 4 GiB or more")
    out += body


def _write_list(out: bytearray, value: list[Any] | tuple[Any, ...]) -> None:
    if not value:
        out.append(0x45)
        return
    body = bytearray()
    for item in value:
        encode_into(body, item)
    write_compound(out, 0xC0, len(value), body)


def write_map(out: bytearray, value: dict[Any, Any]) -> None:
    body = bytearray()
    for key, item in value.items():
        encode_into(body, key)
        encode_into(body, item)
    write_compound(out, 0xC1, 2 * len(value), body)


def _write_described(out: bytearray, value: Described) -> None:
    out.append(0x00)
    encode_into(out, value.descriptor)
    encode_into(out, value.value)


# -- arrays ------------------------------------------------------------------------

# What a constructor without a value stands for, and where to go when that is not it.
_ZERO_WIDTH: dict[int, Any] = {
    0x40: None,
    0x41: True,
    0x42: False,
    0x43: 0,
    0x44: 0,
    0x45: [],
}
_WIDER = {0x41: 0x56, 0x42: 0x56, 0x43: 0x52, 0x44: 0x53, 0x45: 0xC0}
# Integers with a one byte form: the full constructor, its size, whether it is signed.
_INTEGERS = {
    0x52: (0x70, 4, False),
    0x53: (0x80, 8, False),
    0x54: (0x71, 4, True),
    0x55: (0x81, 8, True),
}


def _write_array(out: bytearray, value: Array) -> None:
    body = bytearray()
    _write_elements(body, value.code, value)
    write_compound(out, 0xE0, len(value), body)


def _write_elements(body: bytearray, code: int, items: list[Any]) -> None:
    """Write the constructor and the elements, all in one width."""
    if items and type(items[0]) is Described:
        _write_described_elements(body, code, items)
        return
    if code in _ZERO_WIDTH:
        if items.count(_ZERO_WIDTH[code]) == len(items):
            body.append(code)
            return
        code = _WIDER.get(code, code)
    if code in _INTEGERS:
        _write_small_integers(body, code, items)
    elif code >= 0xA0:
        _write_sized_elements(body, code & 0xEF, items)
    else:
        _write_fixed_elements(body, code, items)


def _write_described_elements(body: bytearray, code: int, items: list[Any]) -> None:
    descriptor = items[0].descriptor
    if any(
        type(item) is not Described
        # Not a number equals nothing, itself included.
        or (item.descriptor is not descriptor and item.descriptor != descriptor)
        for item in items
    ):
        raise ValueError("the elements of an array share one descriptor")
    body.append(0x00)
    encode_into(body, descriptor)
    _write_elements(body, code, [item.value for item in items])


def _write_small_integers(body: bytearray, code: int, items: list[int]) -> None:
    full, size, signed = _INTEGERS[code]
    low, high = (-128, 127) if signed else (0, 255)
    if all(low <= item <= high for item in items):
        full, size = code, 1
    body.append(full)
    for item in items:
        body += _int_bytes(item, size, signed)


def _write_fixed_elements(body: bytearray, code: int, items: list[Any]) -> None:
    pack = _FIXED.get(code)
    if pack is None:
        raise ValueError(f"an array cannot hold elements of type 0x{code:02x}")
    body.append(code)
    for item in items:
        body += pack(item)


def _write_sized_elements(body: bytearray, code: int, items: list[Any]) -> None:
    """Write elements with a size; `code` is the constructor of the short form."""
    split = _SIZED.get(code)
    if split is None:
        raise ValueError(f"an array cannot hold elements of type 0x{code:02x}")
    parts = [split(item) for item in items]
    compound = code >= 0xC0
    short = all(len(data) + compound < 256 and count < 256 for count, data in parts)
    width = 1 if short else 4
    body.append(code if short else code + 0x10)
    for count, data in parts:
        if compound:
            body += _int_bytes(len(data) + width, width, False)
            body += _int_bytes(count, width, False)
        else:
            body += _int_bytes(len(data), width, False)
        body += data


def _list_parts(value: list[Any]) -> tuple[int, bytes]:
    body = bytearray()
    for item in value:
        encode_into(body, item)
    return len(value), bytes(body)


def _map_parts(value: dict[Any, Any]) -> tuple[int, bytes]:
    body = bytearray()
    for key, item in value.items():
        encode_into(body, key)
        encode_into(body, item)
    return 2 * len(value), bytes(body)


def _array_parts(value: Array) -> tuple[int, bytes]:
    body = bytearray()
    _write_elements(body, value.code, value)
    return len(value), bytes(body)


def _decimal_of(size: int) -> Callable[[Any], bytes]:
    def pack(value: bytes) -> bytes:
        if len(value) != size:
            raise ValueError(f"a decimal of {size} bytes has {len(value)}")
        return value

    return pack


def _boolean_bytes(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


# -- tables ------------------------------------------------------------------------

_FIXED: dict[int, Callable[[Any], bytes]] = {
    0x50: lambda value: _int_bytes(value, 1, False),
    0x51: lambda value: _int_bytes(value, 1, True),
    0x56: _boolean_bytes,
    0x60: lambda value: _int_bytes(value, 2, False),
    0x61: lambda value: _int_bytes(value, 2, True),
    0x70: lambda value: _int_bytes(value, 4, False),
    0x71: lambda value: _int_bytes(value, 4, True),
    0x72: _float_bytes,
    0x73: _char_bytes,
    0x74: _decimal_of(4),
    0x80: lambda value: _int_bytes(value, 8, False),
    0x81: lambda value: _int_bytes(value, 8, True),
    0x82: struct.Struct(">d").pack,
    0x83: lambda value: _int_bytes(value, 8, True),
    0x84: _decimal_of(8),
    0x94: _decimal_of(16),
    0x98: lambda value: value.bytes,
}
_SIZED: dict[int, Callable[[Any], tuple[int, bytes]]] = {
    0xA0: lambda value: (0, value),
    0xA1: lambda value: (0, value.encode()),
    0xA3: lambda value: (0, value.encode("ascii")),
    0xC0: _list_parts,
    0xC1: _map_parts,
    0xE0: _array_parts,
}
_WRITERS: dict[type, Writer] = {
    type(None): write_null,
    bool: write_boolean,
    UByte: write_ubyte,
    UShort: write_ushort,
    UInt: write_uint,
    ULong: write_ulong,
    Byte: _write_byte,
    Short: _write_short,
    Int: _write_int,
    int: _write_long,
    Float32: _write_float,
    float: _write_double,
    Timestamp: _write_timestamp,
    Char: _write_char,
    Decimal: _write_decimal,
    UUID: _write_uuid,
    bytes: write_binary,
    bytearray: write_binary,
    memoryview: write_binary,
    str: write_string,
    Symbol: write_symbol,
    list: _write_list,
    tuple: _write_list,
    dict: write_map,
    Array: _write_array,
    Described: _write_described,
}
