"""Property values as two texts: the AMQP type, and the value written out.

A column has one type and application properties have many, so each value is a pair that
says which: `("int", "5")`, `("boolean", "true")`, `("uuid", "6ba7...")`.
Rule: `read(write(value))` is the value again, type included. What has no readable text
(described values, decimals, compounds) is of the type `amqp` and its text is the AMQP
encoding in base64. Knows nothing about messages or columns.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from twinbus.errors import ArgumentError, TwinbusError
from twinbus.wire.codec import decode, encode
from twinbus.wire.types import (
    Byte,
    Char,
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

# What a column holds for one value: its type and its text, None for null.
Pair = tuple[str, str | None]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)
# Name, class, and bounds of every integer type.
_INTEGERS: dict[str, tuple[type[int], int, int]] = {
    "byte": (Byte, -(1 << 7), (1 << 7) - 1),
    "short": (Short, -(1 << 15), (1 << 15) - 1),
    "int": (Int, -(1 << 31), (1 << 31) - 1),
    "long": (int, -(1 << 63), (1 << 63) - 1),
    "ubyte": (UByte, 0, (1 << 8) - 1),
    "ushort": (UShort, 0, (1 << 16) - 1),
    "uint": (UInt, 0, (1 << 32) - 1),
    "ulong": (ULong, 0, (1 << 64) - 1),
}
_INTEGER_NAMES = {kind: name for name, (kind, _, _) in _INTEGERS.items()}
_BOOLEANS = {"true": True, "false": False}


def write(value: Any) -> Pair:
    """A value as its type and its text."""
    kind = type(value)
    if kind is str:
        return "string", value
    if kind in _INTEGER_NAMES:
        return _INTEGER_NAMES[kind], str(int(value))
    writer = _WRITERS.get(kind)
    found = writer(value) if writer is not None else None
    return found or ("amqp", base64.b64encode(encode(value)).decode("ascii"))


def read(kind: str | None, text: str | None) -> Any:
    """The value of a type and a text; `ArgumentError` says what is wrong with them.

    Without a type it is a string.
    """
    if kind is None or kind == "string":
        return text
    if kind == "null" or text is None:
        return None
    try:
        if kind in _INTEGERS:
            return _integer(kind, text)
        return _READERS[kind](text)
    except KeyError:
        if kind in _READERS:
            raise ArgumentError(f"'{text[:40]}' is no {kind}.") from None
        known = ", ".join(("string", "null", *_INTEGERS, *_READERS))
        raise ArgumentError(f"'{kind}' is no type. Use {known}.") from None
    except (ValueError, OverflowError, TwinbusError):
        raise ArgumentError(f"'{text[:40]}' is no {kind}.") from None


def _integer(kind: str, text: str) -> int:
    made, low, high = _INTEGERS[kind]
    value = int(text)
    if not low <= value <= high:
        raise ValueError(text)
    return made(value)


def _write_timestamp(value: Timestamp) -> Pair | None:
    try:
        moment = _EPOCH + int(value) * _MILLISECOND
    except OverflowError:
        return None
    text = moment.isoformat(timespec="milliseconds").removesuffix("+00:00")
    return "timestamp", f"{text}Z"


def _read_timestamp(text: str) -> Timestamp:
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return Timestamp((moment - _EPOCH) // _MILLISECOND)


def _write_float(value: Float32) -> Pair:
    # The shortest text that gives the same 32 bits again.
    exact = struct.pack(">f", value)
    for digits in range(6, 10):
        text = f"{float(value):.{digits}g}"
        if struct.pack(">f", float(text)) == exact:
            break
    return "float", text


def _read_float(text: str) -> Float32:
    [value] = struct.unpack(">f", struct.pack(">f", float(text)))
    return Float32(value)


def _read_char(text: str) -> Char:
    if len(text) != 1:
        raise ValueError(text)
    return Char(text)


def _read_symbol(text: str) -> Symbol:
    text.encode("ascii")
    return Symbol(text)


def _read_binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(text) from None


def _read_amqp(text: str) -> Any:
    encoded = _read_binary(text)
    value, end = decode(encoded)
    if end != len(encoded):
        raise ValueError(text)
    return value


_WRITERS: dict[type, Callable[[Any], Pair | None]] = {
    type(None): lambda _: ("null", None),
    bool: lambda value: ("boolean", "true" if value else "false"),
    float: lambda value: ("double", repr(value)),
    Float32: _write_float,
    Symbol: lambda value: ("symbol", str(value)),
    Char: lambda value: ("char", str(value)),
    UUID: lambda value: ("uuid", str(value)),
    bytes: lambda value: ("binary", base64.b64encode(value).decode("ascii")),
    Timestamp: _write_timestamp,
}
_READERS: dict[str, Callable[[str], Any]] = {
    "boolean": lambda text: _BOOLEANS[text.lower()],
    "double": float,
    "float": _read_float,
    "symbol": _read_symbol,
    "char": _read_char,
    "uuid": UUID,
    "binary": _read_binary,
    "timestamp": _read_timestamp,
    "amqp": _read_amqp,
}
