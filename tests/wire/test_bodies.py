"""A body as bytes and a kind."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.errors import DecodeError
from twinbus.wire.codec import encode
from twinbus.wire.message import bodies, sections
from twinbus.wire.message.writing import section
from twinbus.wire.types import Symbol


@pytest.mark.parametrize(
    ("content", "kind", "values"),
    [
        (b"", bodies.DATA, [b""]),
        ("täxt".encode(), bodies.STRING, ["täxt"]),
        (b"x" * 300, bodies.STRING, ["x" * 300]),
        (encode(Symbol("a")), bodies.VALUE, [Symbol("a")]),
        (encode([1]) + encode([]), bodies.SEQUENCE, [[1], []]),
    ],
)
def test_a_body_is_read_as_it_was_written(
    content: bytes, kind: str, values: list[Any]
) -> None:
    codes = {bodies.DATA: sections.DATA, bodies.SEQUENCE: sections.SEQUENCE}
    code = codes.get(kind, sections.VALUE)
    written = b"".join(section(code, value) for value in values)

    assert bodies.write_body(content, kind) == written
    assert bodies.read_body(written) == (content, kind)


def test_data_in_several_sections_is_joined() -> None:
    parts = section(sections.DATA, b"a") + section(sections.DATA, b"b")

    assert bodies.read_body(parts) == (b"ab", bodies.DATA)
    assert bodies.read_body(section(sections.PROPERTIES, ["id"])) == (None, None)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\xff", bodies.STRING),
        (b"", bodies.VALUE),
        (b"\xff", bodies.VALUE),
        (encode(1) + encode(2), bodies.VALUE),
        (b"", bodies.SEQUENCE),
        (encode([1]) + encode(1), bodies.SEQUENCE),
        (encode([1])[:-1], bodies.SEQUENCE),
    ],
)
def test_content_of_another_kind_is_refused(content: bytes, kind: str) -> None:
    with pytest.raises(DecodeError):
        bodies.write_body(content, kind)
