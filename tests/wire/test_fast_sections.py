"""The fast way to split a message finds what the general one finds, always."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.errors import TwinbusError
from twinbus.wire.codec import encode
from twinbus.wire.message import sections
from twinbus.wire.message.fast_sections import fast_parse
from twinbus.wire.message.sections import Incoming, parse
from twinbus.wire.types import Described, Symbol, Timestamp, UByte, UInt, ULong

# Everything that a message has; a compiled class has it under another name.
_SLOTS = "__slots__" if hasattr(Incoming, "__slots__") else "__mypyc_attrs__"
NAMES = getattr(Incoming, _SLOTS)


def _section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def _seen(message: Incoming) -> list[object]:
    return [(type(v), v) for v in (getattr(message, n) for n in NAMES)]


def _verdict(payload: bytes) -> list[object] | type:
    """What the general way says."""
    try:
        return _seen(sections._parse_any(payload))
    except TwinbusError as error:
        return type(error)


def _check(payload: bytes) -> bool:
    message = Incoming()
    taken = fast_parse(message, payload)
    if taken:
        assert _seen(message) == _verdict(payload)
    return taken


_texts = st.text(max_size=20)
_fields = st.none() | _texts | st.binary(max_size=5) | st.uuids()
_values: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    _texts,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.uuids(),
    st.lists(st.booleans(), max_size=2),
    st.integers(0, 2**40).map(Timestamp),
    st.integers(0, 99).map(UByte),
)
_headers = st.lists(
    st.none() | st.booleans() | st.integers(0, 255).map(UByte) | st.just(UInt(5)),
    max_size=5,
)
_properties = st.lists(_fields, max_size=14).map(
    lambda fields: [
        Symbol("text/plain") if index == 6 and field else field
        for index, field in enumerate(fields)
    ]
)


def _wide(section: bytes) -> bytes:
    """With four bytes for the size and for the count, as some clients write both."""
    if section[3] not in (0xC0, 0xC1):
        return section
    size, count = section[4] + 3, section[5]
    numbers = size.to_bytes(4, "big") + count.to_bytes(4, "big")
    return section[:3] + bytes([section[3] + 0x10]) + numbers + section[6:]


def _empty(code: int) -> st.SearchStrategy[bytes]:
    """Nothing, or a section of annotations, mostly without any."""
    narrow = _section(code, {})
    some = _section(code, {Symbol("a"): 1})
    return st.sampled_from([b"", narrow, _wide(narrow), some])


@st.composite
def _messages(draw: st.DrawFn) -> bytes:
    wide = _wide if draw(st.booleans()) else bytes
    parts = [_section(sections.DATA, draw(st.binary(max_size=300)))]
    if draw(st.booleans()):
        pairs = st.dictionaries(_texts, _values, max_size=4)
        parts.insert(0, wide(_section(sections.APPLICATION_PROPERTIES, draw(pairs))))
    if draw(st.booleans()):
        parts.insert(0, wide(_section(sections.PROPERTIES, draw(_properties))))
    for code in (sections.MESSAGE_ANNOTATIONS, sections.DELIVERY_ANNOTATIONS):
        parts.insert(0, draw(_empty(code)))
    if draw(st.booleans()):
        parts.insert(0, _section(sections.HEADER, draw(_headers)))
    parts.append(draw(_empty(sections.FOOTER)))
    return b"".join(parts)


@settings(max_examples=500)
@given(_messages())
def test_fast_sections_equal_the_general_ones_or_give_up(payload: bytes) -> None:
    _check(payload)


@settings(max_examples=500)
@given(_messages(), st.integers(0, 2**32))
def test_damaged_bytes_give_the_same_result_in_both_parsers(
    payload: bytes, seed: int
) -> None:
    random = Random(seed)
    damaged = bytearray(payload)
    for _ in range(random.randrange(1, 4)):
        # The start is where the sizes and constructors are.
        at = random.randrange(min(len(damaged), 60))
        if random.random() < 0.5:
            damaged[at] = random.choice(b"\x00\x01\x40\x41\x45\x83\xa1\xa3\xc0\xff")
        else:
            del damaged[at : at + random.randrange(1, 4)]
        if not damaged:
            return

    _check(bytes(damaged))


_BODY = _section(sections.DATA, b"x" * 1024)
_ID = _section(sections.PROPERTIES, ["id"])


@pytest.mark.parametrize(
    "payload",
    [
        _BODY,
        _ID + _BODY,
        _section(sections.HEADER, [True]) + _ID + _BODY,
        _ID + _section(sections.APPLICATION_PROPERTIES, {"a": 1, "b": "c"}) + _BODY,
    ],
)
def test_the_usual_shapes_go_the_fast_way(payload: bytes) -> None:
    assert _check(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        _ID,
        _BODY + _BODY,
        _BODY + _ID,
        _ID + _BODY[:-1],
        _ID + _BODY + b"\x00",
        _section(sections.PROPERTIES, [b"id"]) + _BODY,
        b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff" + _BODY,
        b"\x00\x53\x73\xc0\x05\x01\xa1\x01i\x40" + _BODY,
        b"\x00\x53\x74\xc1\x05\x02\xa1\x01\xff\x40" + _BODY,
    ],
)
def test_unusual_messages_are_left_to_the_general_parser(payload: bytes) -> None:
    assert not _check(payload)


def test_a_fast_parse_that_gives_up_leaves_no_trace() -> None:
    message = parse(
        _section(sections.HEADER, [True])
        + _section(sections.PROPERTIES, ["id", None, None, b"no text"])
        + _section(sections.VALUE, "body")
    )

    assert message.message_id == "id"
    assert message.durable
    assert message.bare.endswith(_section(sections.VALUE, "body"))
