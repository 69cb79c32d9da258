"""Property values: two texts that keep the type."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.errors import ArgumentError, PeerError
from twinbus.spark import values
from twinbus.wire.codec import decode, encode
from twinbus.wire.types import (
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

SAMPLES = [
    (None, "null", None),
    (True, "boolean", "true"),
    (5, "long", "5"),
    (Byte(-128), "byte", "-128"),
    (Short(-5), "short", "-5"),
    (Int(5), "int", "5"),
    (UByte(255), "ubyte", "255"),
    (UShort(5), "ushort", "5"),
    (UInt(5), "uint", "5"),
    (ULong(2**64 - 1), "ulong", "18446744073709551615"),
    (1.5, "double", "1.5"),
    (Float32(0.5), "float", "0.5"),
    ("text", "string", "text"),
    (Symbol("name"), "symbol", "name"),
    (Char("ü"), "char", "ü"),
    (b"\x00\xff", "binary", "AP8="),
    (UUID(int=5), "uuid", "00000000-0000-0000-0000-000000000005"),
    (Timestamp(1_714_557_600_123), "timestamp", "2024-05-01T10:00:00.123Z"),
    (Timestamp(-1), "timestamp", "1969-12-31T23:59:59.999Z"),
]
OPAQUE = [
    Timestamp(10**18),
    Decimal(b"1234"),
    Described(Symbol("com.microsoft:timespan"), 5),
    [1, "two"],
]


@pytest.mark.parametrize(("value", "kind", "text"), SAMPLES)
def test_a_value_is_its_type_and_its_text(value: Any, kind: str, text: str) -> None:
    assert values.write(value) == (kind, text)
    again = values.read(kind, text)
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("value", OPAQUE)
def test_values_without_a_text_keep_their_encoding(value: Any) -> None:
    kind, text = values.write(value)

    assert kind == "amqp"
    assert values.read(kind, text) == value


@given(st.binary(max_size=64))
def test_any_decoded_value_survives_a_round_trip(data: bytes) -> None:
    try:
        value, _ = decode(data)
    except PeerError:
        return
    again = values.read(*values.write(value))
    if not (isinstance(value, float) and math.isnan(value)):
        assert encode(again) == encode(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "2147483648"),
        ("ubyte", "-1"),
        ("long", "five"),
        ("boolean", "yes"),
        ("uuid", "x"),
        ("char", "ab"),
        ("symbol", "ü"),
        ("binary", "*"),
        ("amqp", "//8="),
        ("timestamp", "tomorrow"),
        ("double", "x"),
        ("float", "1e60"),
        ("number", "1"),
    ],
)
def test_a_text_that_does_not_fit_its_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ArgumentError, match=kind):
        values.read(kind, text)


def test_a_value_without_a_type_is_a_string() -> None:
    assert values.read(None, "plain") == "plain"
