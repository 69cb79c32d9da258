"""The AMQP type system, against the bytes of the specification and against abuse."""

from __future__ import annotations

import copy
import enum
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.values import same, values
from twinbus.errors import DecodeError, PeerError
from twinbus.wire import codec
from twinbus.wire.codec import decode, encode, encode_into, skip
from twinbus.wire.encoder import write_compound
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

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
LONG_TEXT = "é" * 128

# Encodings as sections 1.6.1 to 1.6.24 of the AMQP 1.0 type system define them. The
# first of each value is the smallest, which is the one that `encode` must choose.
GOLDEN: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("50ff", UByte(255)),
    ("60fffe", UShort(65534)),
    ("43", UInt(0)),
    ("52ff", UInt(255)),
    ("7000000100", UInt(256)),
    ("70ffffffff", UInt(2**32 - 1)),
    ("44", ULong(0)),
    ("53ff", ULong(255)),
    ("800000000000000100", ULong(256)),
    ("80ffffffffffffffff", ULong(2**64 - 1)),
    ("5180", Byte(-128)),
    ("618000", Short(-32768)),
    ("5480", Int(-128)),
    ("71ffffff7f", Int(-129)),
    ("547f", Int(127)),
    ("7100000080", Int(128)),
    ("5580", -128),
    ("81ffffffffffffff7f", -129),
    ("557f", 127),
    ("817fffffffffffffff", 2**63 - 1),
    ("723fc00000", Float32(1.5)),
    ("823ff8000000000000", 1.5),
    ("7422500001", Decimal(bytes.fromhex("22500001"))),
    ("842234000000000001", Decimal(bytes.fromhex("2234000000000001"))),
    ("94" + "22" * 16, Decimal(b"\x22" * 16)),
    ("730001f600", Char("\U0001f600")),
    ("830000018bcfe56800", Timestamp(1_700_000_000_000)),
    ("83ffffffffffffffff", Timestamp(-1)),
    ("9800112233445566778899aabbccddeeff", UUID),
    ("a003000102", b"\x00\x01\x02"),
    ("b000000100" + "61" * 256, b"a" * 256),
    ("a102c3a9", "é"),
    ("b100000100" + "c3a9" * 128, LONG_TEXT),
    ("a3026869", Symbol("hi")),
    ("b300000100" + "61" * 256, Symbol("a" * 256)),
    ("45", []),
    ("c003024142", [True, False]),
    ("c0fffe" + "40" * 254, [None] * 254),
    ("d000000103000000ff" + "40" * 255, [None] * 255),
    ("c10100", {}),
    ("c10502a1016140", {"a": None}),
    ("e00903a301610162026363", Array(0xA3, map(Symbol, ["a", "b", "cc"]))),
    ("e0120281000000000000000100000000000000ff", Array(0x81, [1, 255])),
    ("00532445", Described(ULong(0x24), [])),
    ("00a3016140", Described(Symbol("a"), None)),
]

# Longer encodings of the same values: legal, so read, but never written.
LONGER: list[tuple[str, Any]] = [
    ("5601", True),
    ("5600", False),
    ("5200", UInt(0)),
    ("7000000000", UInt(0)),
    ("5300", ULong(0)),
    ("800000000000000000", ULong(0)),
    ("71ffffffff", Int(-1)),
    ("81ffffffffffffffff", -1),
    ("b0000000026162", b"ab"),
    ("b1000000026162", "ab"),
    ("b3000000026162", Symbol("ab")),
    ("b300000000", Symbol("")),
    ("c00100", []),
    ("d00000000400000000", []),
    ("d0000000050000000140", [None]),
    ("d10000000400000000", {}),
    ("d10000000800000002a1016140", {"a": None}),
    ("f00000000900000002a301610162", Array(0xA3, map(Symbol, "ab"))),
    ("f00000000500000000a3", Array(0xA3, [])),
]

# Not AMQP, whatever follows.
BROKEN: list[str] = [
    "",
    "01",
    "3f",
    "46",
    "4f",
    "57",
    "5f",
    "62",
    "75",
    "85",
    "95",
    "99",
    "a2",
    "b2",
    "c2",
    "d2",
    "e1",
    "f1",
    "ff",
    "00",
    "0053",
    "005324",
    "50",
    "5602",
    "60ff",
    "7000",
    "80",
    "7300110000",
    "730000d800",
    "730000dfff",
    "7400",
    "9800",
    "a001",
    "a102c3",
    "a102c328",
    "a101ff",
    "a302c3a9",
    "a304616263",
    "b0ffffffff61",
    "b1ffffffff61",
    "b3ffffffff61",
    "b3000000026180",
    "b1000000026180",
    "c0",
    "c000",
    "c00000",
    "c00101",
    "c00201",
    "c0030140",
    "c003014040",
    "c0020240",
    "d000000003000000",
    "d0ffffffff00000000",
    "d000000004ffffffff",
    "c1020140",
    "c1020340",
    "c1030340",
    "c10502a10161",
    "c105024040",
    "c10402404041",
    "c103024540",
    "e0",
    "e00100",
    "e0020000",
    "e0020001",
    "e0020146",
    "e00202a1",
    "e00302a100",
    "e0030160ff",
    "e00502a101610161",
    "e0ff0040",
    "f000000005ffffffffa1",
]


@pytest.mark.parametrize(("data", "value"), GOLDEN)
def test_the_smallest_encoding_is_written_and_read(data: str, value: Any) -> None:
    encoded = bytes.fromhex(data)

    assert encode(value) == encoded
    decoded, end = decode(encoded)
    assert same(decoded, value)
    assert end == skip(encoded) == len(encoded)


@pytest.mark.parametrize(("data", "value"), LONGER)
def test_every_legal_encoding_is_read(data: str, value: Any) -> None:
    encoded = bytes.fromhex(data)

    decoded, end = decode(encoded)

    assert same(decoded, value)
    assert end == skip(encoded) == len(encoded)


@pytest.mark.parametrize("data", BROKEN)
def test_bytes_that_are_not_amqp_are_a_decode_error(data: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["", "00", "46", "c2", "a001", "b0ffffffff61", "b000"])
def test_a_value_that_cannot_be_skipped_is_a_decode_error(data: str) -> None:
    with pytest.raises(DecodeError):
        skip(bytes.fromhex(data))


@given(values)
def test_a_value_survives_the_round_trip_with_its_type(value: Any) -> None:
    encoded = encode(value)

    decoded, end = decode(encoded, budget=10_000)

    assert same(decoded, value)
    assert end == skip(encoded) == len(encoded)


@given(values, st.binary(max_size=4), st.binary(max_size=4))
def test_a_value_is_found_in_the_midst_of_a_buffer(
    value: Any, before: bytes, after: bytes
) -> None:
    out = bytearray(before)
    encode_into(out, value)
    end = len(out)
    out += after

    for buffer in (bytes(out), out, memoryview(out)):
        decoded, position = decode(buffer, len(before), budget=10_000)
        assert same(decoded, value)
        assert position == skip(buffer, len(before)) == end


@given(values)
def test_a_value_cut_short_is_refused(value: Any) -> None:
    encoded = encode(value)

    for length in range(min(len(encoded), 300)):
        with pytest.raises(DecodeError):
            decode(encoded[:length], budget=10_000)
        with pytest.raises(DecodeError):
            skip(encoded[:length])


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_peer_error(data: bytes) -> None:
    try:
        _, end = decode(data)
    except PeerError:
        return
    assert skip(data) == end


# -- maps ----------------------------------------------------------------------------


def test_the_last_of_two_equal_keys_wins() -> None:
    assert decode(bytes.fromhex("c10904a1016141a1016142"))[0] == {"a": False}


@pytest.mark.parametrize(
    "key", ["45", "c10100", "e00200a1", "00534045", "004540", "00c003014040"]
)
def test_a_compound_value_cannot_be_a_key(key: str) -> None:
    pair = bytes.fromhex(key) + b"\x40"
    data = bytes((0xC1, len(pair) + 1, 2)) + pair

    with pytest.raises(DecodeError):
        decode(data)


def test_a_described_scalar_can_be_a_key() -> None:
    key = Described(Symbol("a"), 1)

    assert decode(encode({key: 2}))[0] == {key: 2}


# -- arrays --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "data"),
    [
        # A width that does not suit all elements gives way to one that does.
        (Array(0x53, [1, 256]), "e0120280" + "00" * 7 + "01" + "00" * 6 + "0100"),
        (Array(0x43, [0, 1]), "e00402520001"),
        (Array(0x44, [1]), "e003015301"),
        (Array(0x41, [True, False]), "e00402560100"),
        (Array(0x42, [False, False]), "e0020242"),
        (Array(0x45, [[], [True]]), "e00702c00100020141"),
        (Array(0xB3, ["a"]), "e00401a30161"),
        (Array(0xA0, []), "e00200a0"),
    ],
)
def test_the_elements_of_an_array_share_one_width(array: Array, data: str) -> None:
    assert encode(array).hex() == data
    assert decode(bytes.fromhex(data))[0] == array


def test_an_array_of_long_text_has_four_byte_sizes() -> None:
    array = Array(0xA1, ["a", "b" * 256])

    encoded = encode(array)

    assert encoded[9] == 0xB1
    assert decode(encoded)[0] == array


def test_an_array_of_long_lists_has_four_byte_sizes() -> None:
    array = Array(0xC0, [[], [b"b" * 256]])

    encoded = encode(array)

    assert encoded[9] == 0xD0
    assert decode(encoded)[0] == array


def test_an_array_of_described_values_has_one_descriptor() -> None:
    inner = [Described(ULong(5), UByte(1)), Described(ULong(5), UByte(2))]
    array = Array(0x50, [Described(Symbol("a"), value) for value in inner])

    encoded = encode(array)

    assert encoded.hex() == "e00b0200a30161005305500102"
    assert decode(encoded)[0] == array


# -- local mistakes ------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        UByte(256),
        UByte(-1),
        UShort(65536),
        UInt(2**32),
        UInt(-1),
        ULong(2**64),
        ULong(-1),
        Byte(128),
        Short(-32769),
        Int(2**31),
        Timestamp(2**63),
        Float32(1e300),
        Char("ab"),
        Char(""),
        Decimal(b"abc"),
        Symbol("é"),
        Array(0x40, [1]),
        Array(0x46, [1]),
        Array(0xA2, [1]),
        Array(0x74, [Decimal(b"12345678")]),
        Array(0x50, [256]),
        Array(0x50, [Described(1, 2), Described(2, 2)]),
        Array(0x50, [Described(1, 2), 2]),
    ],
)
def test_a_value_that_does_not_fit_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(value)


def test_a_type_that_amqp_lacks_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="complex"):
        encode([1j])


def test_a_subclass_is_written_as_its_base() -> None:
    class Colour(enum.IntEnum):
        RED = 1

    assert encode(Colour.RED) == encode(1)


def test_tuples_and_views_are_written_as_lists_and_binary() -> None:
    assert encode((1, memoryview(b"a"), bytearray(b"b"))) == encode([1, b"a", b"b"])


class _Endless(bytes):
    """Bytes that claim to be 4 GiB long."""

    def __len__(self) -> int:
        return 2**32


class _EndlessBody(bytearray):
    """The same, for the inside of a list."""

    def __len__(self) -> int:
        return 2**32


@pytest.mark.skipif(
    not codec.__file__.endswith(".py"), reason="compiled code asks bytes for no length"
)
def test_a_value_of_4_gib_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="4 GiB"):
        encode(_Endless())
    with pytest.raises(ValueError, match="4 GiB"):
        write_compound(bytearray(), 0xC0, 1, _EndlessBody())


# -- types ---------------------------------------------------------------------------


def test_values_show_what_they_are() -> None:
    assert repr(Array(0xA3, ["a"])) == "Array(0xa3, ['a'])"
    assert repr(Described(1, None)) == "Described(1, None)"


def test_an_array_can_be_copied() -> None:
    array = copy.deepcopy(Array(0xA3, [Symbol("a")]))

    assert array == [Symbol("a")]
    assert array.code == 0xA3


def test_described_values_compare_by_content() -> None:
    assert Described(1, [2]) == Described(1, [2])
    assert Described(1, [2]) != Described(1, [3])
    assert Described(1, 2) != (1, 2)
    assert hash(Described(1, 2)) == hash(Described(1, 2))


def test_floats_keep_their_width() -> None:
    (nearest,) = struct.unpack(">f", struct.pack(">f", 0.1))

    assert decode(encode(Float32(0.1)))[0] == nearest
    assert decode(encode(0.1))[0] == 0.1
