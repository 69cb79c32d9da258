"""The fields of performatives: types, presence, number and encodings.

Every rule is tried on every field of every type in the table.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.wire.composites import composite_of, sample
from twinbus.errors import DecodeError
from twinbus.wire.codec import decode, encode
from twinbus.wire.performatives import Declare, Flow, Received, Source, Transfer
from twinbus.wire.performatives_codec import SPECS, decode_composite, encode_composite

# One value for each wire type that a field can have.
_BY_KIND: dict[str, bytes] = {
    "boolean": b"\x41",
    "ubyte": b"\x50\x01",
    "ushort": b"\x60\x00\x01",
    "uint": b"\x52\x01",
    "ulong": b"\x53\x01",
    "byte": b"\x51\x01",
    "short": b"\x61\x00\x01",
    "int": b"\x54\x01",
    "long": b"\x55\x01",
    "float": b"\x72\x00\x00\x00\x00",
    "double": b"\x82" + bytes(8),
    "char": b"\x73\x00\x00\x00\x61",
    "timestamp": b"\x83" + bytes(8),
    "uuid": b"\x98" + bytes(16),
    "binary": b"\xa0\x01a",
    "string": b"\xa1\x01a",
    "symbol": b"\xa3\x01a",
    "symbols": b"\xe0\x04\x01\xa3\x01a",
    "strings": b"\xe0\x04\x01\xa1\x01a",
    "described symbols": b"\xe0\x06\x01\x00\x40\xa3\x01a",
    "list": b"\x45",
    "map": b"\xc1\x01\x00",
    "error": b"\x00\x53\x1d\xc0\x04\x01\xa3\x01a",
    "source": b"\x00\x53\x28\x45",
    "target": b"\x00\x53\x29\x45",
    "coordinator": b"\x00\x53\x30\x45",
    "outcome": b"\x00\x53\x24\x45",
    "state": b"\x00\x53\x23\xc0\x03\x02\x43\x44",
    "described": b"\x00\x40\x40",
}
# What each Python type of a dataclass field may be on the wire.
_WIRE: dict[str, set[str]] = {
    "bool": {"boolean"},
    "str": {"string"},
    "bytes": {"binary"},
    "int": {"uint"},
    "Fields": {"map"},
    "list[str]": {"symbol", "symbols"},
    "Error": {"error"},
    "Source": {"source"},
    "Target | Coordinator": {"target", "coordinator"},
    "Outcome": {"outcome"},
    "DeliveryState": {"outcome", "state"},
}
# Where the Python type does not say it all.
_SPECIAL: dict[tuple[str, str], str] = {
    ("Open", "channel_max"): "ushort",
    ("Begin", "remote_channel"): "ushort",
    ("Attach", "snd_settle_mode"): "ubyte",
    ("Attach", "rcv_settle_mode"): "ubyte",
    ("Attach", "max_message_size"): "ulong",
    ("Transfer", "rcv_settle_mode"): "ubyte",
    ("Received", "section_offset"): "ulong",
    ("SaslOutcome", "code"): "ubyte",
    ("SaslInit", "mechanism"): "symbol",
    ("Error", "condition"): "symbol",
    ("Source", "expiry_policy"): "symbol",
    ("Source", "distribution_mode"): "symbol",
    ("Target", "expiry_policy"): "symbol",
}


def _wire_kinds(cls: type, name: str, annotation: str) -> set[str]:
    special = _SPECIAL.get((cls.__name__, name))
    if special is not None:
        return {special}
    return _WIRE[annotation.removesuffix(" | None")]


def _parts(code: int) -> list[bytes]:
    """The encoded fields of the sample."""
    items = decode(encode_composite(sample(code)))[0].value
    return [encode(item) for item in items]


@pytest.mark.parametrize("code", SPECS)
def test_a_field_of_a_wrong_type_is_refused(code: int) -> None:
    cls = SPECS[code].cls
    for index, field in enumerate(fields(cls)):
        right = _wire_kinds(cls, field.name, str(field.type))
        for kind, data in _BY_KIND.items():
            parts = _parts(code)
            parts[index] = data
            encoded = composite_of(code, parts)
            if kind in right:
                assert decode_composite(encoded)[1] == len(encoded)
            else:
                with pytest.raises(DecodeError):
                    decode_composite(encoded)


@pytest.mark.parametrize("code", SPECS)
def test_a_mandatory_field_must_be_there_and_not_null(code: int) -> None:
    spec = SPECS[code]
    for index, mandatory in enumerate(spec.mandatory):
        parts = _parts(code)
        nulled = composite_of(code, [*parts[:index], b"\x40", *parts[index + 1 :]])
        cut = composite_of(code, parts[:index])
        if mandatory:
            for data in (nulled, cut):
                with pytest.raises(DecodeError):
                    decode_composite(data)
        else:
            value, _ = decode_composite(nulled)
            assert getattr(value, spec.names[index]) == spec.defaults[index]


@pytest.mark.parametrize("code", SPECS)
def test_missing_fields_at_the_end_get_their_defaults(code: int) -> None:
    spec = SPECS[code]
    least = max((i + 1 for i, must in enumerate(spec.mandatory) if must), default=0)
    parts = _parts(code)

    for count in range(least, len(parts) + 1):
        assert decode_composite(composite_of(code, parts[:count]))[0] == sample(code)


@pytest.mark.parametrize("code", SPECS)
def test_an_extra_field_is_refused(code: int) -> None:
    with pytest.raises(DecodeError):
        decode_composite(composite_of(code, [*_parts(code), b"\x40"]))


@pytest.mark.parametrize("code", SPECS)
def test_a_list_that_does_not_end_where_it_says_is_refused(code: int) -> None:
    parts = _parts(code)
    body = len(parts).to_bytes(4, "big") + b"".join(parts) + b"\x40"
    start = bytes((0, 0x53, code, 0xD0)) + len(body).to_bytes(4, "big")

    with pytest.raises(DecodeError):
        decode_composite(start + body)


def test_long_encodings_of_fields_are_read() -> None:
    flow = [b"\x70\x00\x00\x00\x01"] * 8 + [b"\x56\x01", b"\x56\x00", b"\x40"]
    source = [b"\xb1\x00\x00\x00\x01a", b"\x52\x01", b"\xb3\x00\x00\x00\x01b"]
    received = [b"\x52\x01", b"\x80" + bytes(7) + b"\x02"]
    declare = [b"\xb0\x00\x00\x00\x01a"]

    assert decode_composite(composite_of(0x13, flow))[0] == Flow(
        1, 1, 1, 1, 1, 1, 1, 1, drain=True
    )
    assert decode_composite(composite_of(0x28, source))[0] == Source("a", 1, "b")
    assert decode_composite(composite_of(0x23, received))[0] == Received(1, 2)
    assert decode_composite(composite_of(0x31, declare))[0] == Declare(b"a")


def test_a_boolean_of_two_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode_composite(composite_of(0x15, [b"\x56\x02", b"\x43"]))


@pytest.mark.parametrize("size", [32, 33])
def test_a_delivery_tag_has_at_most_32_bytes(size: int) -> None:
    parts = [b"\x43", b"\x43", b"\xa0" + bytes((size,)) + bytes(size)]

    if size <= 32:
        assert decode_composite(composite_of(0x14, parts))[0] == Transfer(
            0, 0, bytes(size)
        )
    else:
        with pytest.raises(DecodeError):
            decode_composite(composite_of(0x14, parts))
