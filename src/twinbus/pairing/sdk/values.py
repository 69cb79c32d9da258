"""Values of the official client as AMQP values: which Python type becomes what.

Owns the rules by which the official client chooses an AMQP type: a whole number is an
int, a datetime a timestamp, a tuple a described value, and a dict with `TYPE` and
`VALUE` the type that it names. What that client cannot send is sent here: whole numbers
of more than 32 bits become longs, and a value of `twinbus.wire.types` keeps its type.

Raises `TypeError` for what AMQP has no word for and `ValueError` for what does not fit,
as the official client does. Knows nothing about messages.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from twinbus.wire.types import (
    ARRAY_CODES,
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

Converter = Callable[[Any], Any]

_TYPE = "TYPE"
_VALUE = "VALUE"

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)

_INT_MAX = 2**31
_LONG_MAX = 2**63
_ULONG_MAX = 2**64

# A decimal of 128 bits: a sign, an exponent above the bias, and a whole number.
_DECIMAL_DIGITS_MAX = 34
_DECIMAL_BIAS = 6176
_DECIMAL_EXPONENTS = 3 << 12
_DECIMAL_NUMBER_BITS = 113


def as_amqp(value: Any) -> Any:
    """The value with the AMQP type that the official client would give it."""
    convert = _CONVERTERS.get(type(value))
    if convert is None:
        convert = _converter_of_base(value)
    return convert(value)


def _converter_of_base(value: Any) -> Converter:
    """For enumerations and the like, in the order of the official client."""
    for base, convert in _BASES:
        if isinstance(value, base):
            return convert
    raise TypeError(f"AMQP has no type for {type(value).__name__}: {value!r:.80}")


# -- plain values ------------------------------------------------------------------


def _same(value: Any) -> Any:
    return value


def _number(value: int) -> int:
    if -_INT_MAX <= value < _INT_MAX:
        return Int(value)
    if -_LONG_MAX <= value < _LONG_MAX:
        return int(value)
    if 0 < value < _ULONG_MAX:
        return ULong(value)
    raise ValueError(f"{value} does not fit into 64 bits")


def as_time_ms(value: dt.datetime) -> Timestamp:
    """Milliseconds since the epoch; a time without a zone is UTC."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return Timestamp((value - _EPOCH) // _MILLISECOND)


def _decimal(value: decimal.Decimal) -> Decimal:
    if not value.is_finite():
        raise ValueError(f"{value} is not a number that can be sent")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    biased = exponent + _DECIMAL_BIAS
    if len(digits) > _DECIMAL_DIGITS_MAX or not 0 <= biased < _DECIMAL_EXPONENTS:
        raise ValueError(
            f"{value!r:.80} does not fit into a decimal of {_DECIMAL_DIGITS_MAX} digits"
        )
    number = int("".join(map(str, digits)))
    bits = sign << 127 | biased << _DECIMAL_NUMBER_BITS | number
    return Decimal(bits.to_bytes(16, "big"))


# -- values with parts -------------------------------------------------------------


def _list(value: list[Any]) -> list[Any]:
    return [as_amqp(item) for item in value]


def _described(value: tuple[Any, ...]) -> Described:
    if len(value) != 2:
        raise ValueError(
            f"A tuple stands for a described value and has a descriptor and a value; "
            f"this one has {len(value)} items. Use a list for a list."
        )
    return Described(as_amqp(value[0]), as_amqp(value[1]))


def _map(value: Mapping[Any, Any]) -> Any:
    if _TYPE in value and _VALUE in value:
        name = value[_TYPE]
        convert = _NAMED.get(name) if isinstance(name, str) else None
        if convert is not None:
            return convert(value[_VALUE])
    return _plain_map(value)


def _plain_map(value: Any) -> dict[Any, Any]:
    pairs = value.items() if isinstance(value, Mapping) else value
    return {_key(key): as_amqp(item) for key, item in pairs}


def _key(value: Any) -> Any:
    key = as_amqp(value)
    # Python has no hash for lists, so it can have no map with such a key.
    hash(key)
    return key


def _array(value: Any) -> Array:
    items = [as_amqp(item) for item in value]
    kinds = {type(item) for item in items}
    if kinds == {Int, int}:
        # Whole numbers of both sizes are longs together.
        items, kinds = [int(item) for item in items], {int}
    if len(kinds) > 1:
        raise TypeError("All elements in an array must be the same type.")
    kind = kinds.pop() if kinds else type(None)
    if kind not in ARRAY_CODES:
        raise TypeError(f"An array cannot hold elements like {items[0]!r:.80}.")
    return Array(ARRAY_CODES[kind], items)


# -- values with a named type ------------------------------------------------------


def as_text(value: Any) -> str:
    """Text, also as the bytes that the official client makes of received text."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return str(value, "utf-8")
    raise TypeError(f"Expected text and got {type(value).__name__}: {value!r:.80}")


def as_symbol(value: Any) -> Symbol:
    """A name; only ASCII is allowed in one."""
    text = as_text(value)
    if not text.isascii():
        raise ValueError(f"{text!r:.80} must be ASCII")
    return Symbol(text)


def as_binary(value: Any) -> bytes:
    """Bytes; text is encoded."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"Expected bytes and got {type(value).__name__}: {value!r:.80}")


def as_time(value: Any) -> Timestamp:
    """A point in time, from a datetime or from milliseconds since the epoch."""
    return as_time_ms(value) if isinstance(value, dt.datetime) else Timestamp(value)


def _long(value: Any) -> int:
    return int(as_time(value))


def _uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    return UUID(value) if isinstance(value, str) else UUID(bytes=as_binary(value))


def _null(_value: Any) -> None:
    return None


# The names are the official client's.
_NAMED: dict[str, Converter] = {
    "NULL": _null,
    "BOOL": bool,
    "UBYTE": UByte,
    "USHORT": UShort,
    "UINT": UInt,
    "ULONG": ULong,
    "BYTE": Byte,
    "SHORT": Short,
    "INT": Int,
    "LONG": _long,
    "FLOAT": Float32,
    "DOUBLE": float,
    "TIMESTAMP": as_time,
    "UUID": _uuid,
    "BINARY": as_binary,
    "STRING": as_text,
    "SYMBOL": as_symbol,
    "LIST": _list,
    "MAP": _plain_map,
    "ARRAY": _array,
    "DESCRIBED": _described,
    "DECIMAL128": _decimal,
}

# -- tables ------------------------------------------------------------------------

_BASES: tuple[tuple[type, Converter], ...] = (
    (str, str),
    (UUID, _same),
    (bytes, bytes),
    (bytearray, bytes),
    (float, float),
    (int, _number),
    (dt.datetime, as_time_ms),
    (list, _list),
    (tuple, _described),
    (dict, _map),
    (decimal.Decimal, _decimal),
)
_OWN_TYPES = (
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
_CONVERTERS: dict[type, Converter] = {
    type(None): _same,
    bool: _same,
    **dict(_BASES),
    str: _same,
    bytes: _same,
    float: _same,
    **dict.fromkeys(_OWN_TYPES, _same),
}
