"""Any AMQP value, for property tests.

Owns one strategy for each type and one for whole trees of them, and the comparison
that looks at types too: `1 == True == UInt(1)` is not good enough for a codec.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from hypothesis import strategies as st

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

Values = st.SearchStrategy[Any]


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    """Integers of a width, with the edges of the short encodings well represented."""
    low = -(2 ** (bits - 1)) if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    edges = [low, high, *range(-2, 3), *range(-130, -126), *range(126, 130), 255, 256]
    return st.integers(low, high) | st.sampled_from(
        [edge for edge in edges if low <= edge <= high]
    )


def _short_or_long(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Text or bytes, at times of about 256 bytes, where the encoding changes."""
    return values | values.flatmap(
        lambda value: st.integers(250, 260).map(
            lambda size: (value * size)[:size] if value else value
        )
    )


def _float32(value: float) -> Float32:
    return Float32(struct.unpack(">f", struct.pack(">f", value))[0])


ubytes = _integers(8, signed=False).map(UByte)
ushorts = _integers(16, signed=False).map(UShort)
uints = _integers(32, signed=False).map(UInt)
ulongs = _integers(64, signed=False).map(ULong)
byte_values = _integers(8, signed=True).map(Byte)
shorts = _integers(16, signed=True).map(Short)
ints = _integers(32, signed=True).map(Int)
longs = _integers(64, signed=True)
timestamps = _integers(64, signed=True).map(Timestamp)
floats = st.floats(width=32).map(_float32)
doubles = st.floats()
chars = st.characters(exclude_categories=["Cs"]).map(Char)
decimals = st.sampled_from([4, 8, 16]).flatmap(
    lambda size: st.binary(min_size=size, max_size=size).map(Decimal)
)
strings = _short_or_long(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
symbols = _short_or_long(st.text(st.characters(max_codepoint=127), max_size=20)).map(
    Symbol
)
binaries = _short_or_long(st.binary(max_size=20))

# The strategy of the elements for each constructor that an array may have.
_ELEMENTS: dict[int, Values] = {
    0x40: st.none(),
    0x41: st.just(True),
    0x42: st.just(False),
    0x43: st.just(UInt(0)),
    0x44: st.just(ULong(0)),
    0x50: ubytes,
    0x51: byte_values,
    0x52: uints,
    0x53: ulongs,
    0x54: ints,
    0x55: longs,
    0x56: st.booleans(),
    0x60: ushorts,
    0x61: shorts,
    0x70: uints,
    0x71: ints,
    0x72: floats,
    0x73: chars,
    0x74: st.binary(min_size=4, max_size=4).map(Decimal),
    0x80: ulongs,
    0x81: longs,
    0x82: doubles,
    0x83: timestamps,
    0x84: st.binary(min_size=8, max_size=8).map(Decimal),
    0x94: st.binary(min_size=16, max_size=16).map(Decimal),
    0x98: st.uuids(),
    0xA0: binaries,
    0xA1: strings,
    0xA3: symbols,
    0xB0: binaries,
    0xB1: strings,
    0xB3: symbols,
}
flat_arrays = st.sampled_from(sorted(_ELEMENTS)).flatmap(
    lambda code: st.lists(_ELEMENTS[code], max_size=5).map(
        lambda items: Array(code, items)
    )
)
_keys = (
    st.booleans()
    | ubytes
    | uints
    | ulongs
    | longs
    | chars
    | strings
    | symbols
    | binaries
    | st.uuids()
    | timestamps
)
scalars: Values = (
    _keys
    | st.none()
    | ushorts
    | byte_values
    | shorts
    | ints
    | floats
    | doubles
    | decimals
)


def _compounds(inner: Values) -> Values:
    lists = st.lists(inner, max_size=5)
    maps = st.dictionaries(_keys, inner, max_size=4)
    return (
        lists
        | maps
        | st.lists(lists, max_size=3).map(lambda items: Array(0xC0, items))
        | st.lists(maps, max_size=3).map(lambda items: Array(0xD1, items))
        | st.lists(flat_arrays, max_size=3).map(lambda items: Array(0xE0, items))
        | st.tuples(ulongs | symbols, st.lists(longs, max_size=3)).map(
            lambda pair: Array(0x55, [Described(pair[0], item) for item in pair[1]])
        )
        | st.tuples(ulongs | symbols, inner).map(lambda pair: Described(*pair))
    )


values: Values = st.recursive(scalars | flat_arrays, _compounds, max_leaves=20)
maps = st.dictionaries(symbols, values, max_size=3)


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal in type and content, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, tuple):
        return all(map(same, left, right))
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    return bool(left == right)
