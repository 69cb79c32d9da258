"""Sections that are written from parts are those that the codec would write."""

from __future__ import annotations

import pytest

from twinbus.wire.codec import encode
from twinbus.wire.message import parts, sections, writing
from twinbus.wire.types import Described, ULong


def described(code: int, value: object) -> bytes:
    return encode(Described(ULong(code), value))


@pytest.mark.parametrize("code", range(sections.HEADER, sections.FOOTER + 1))
def test_a_section_starts_with_its_descriptor(code: int) -> None:
    expected = described(code, ["a", None])

    assert writing.section(code, ["a", None]) == expected
    assert writing.encoded_section(code, encode(["a", None])) == expected
    fields = bytearray(encode("a") + writing.NULL)
    assert writing.list_section(code, 2, fields) == expected
    pair = bytearray(encode("a") + encode(1))
    assert writing.map_section(code, 1, pair) == described(code, {"a": 1})


@pytest.mark.parametrize("size", [0, 255, 256, 70_000])
def test_data_starts_with_its_length(size: int) -> None:
    content = b"x" * size

    assert writing.data_start(size) + content == described(sections.DATA, content)


@pytest.mark.parametrize("size", [0, 252, 253, 300])
def test_properties_with_an_id_only(size: int) -> None:
    expected = described(sections.PROPERTIES, ["x" * size])

    assert writing.id_properties("x" * size) == expected
    body = described(sections.DATA, b"body")
    assert parts.with_message_id(body, "x" * size) == expected + body
