"""The body of a message as bytes and a kind, for callers that keep it in a column.

| the body is                     | kind     | bytes                            |
|---------------------------------|----------|----------------------------------|
| data, in one or more sections   | data     | their bytes, joined              |
| a value that is a string        | string   | its UTF-8                        |
| any other value                 | value    | the value in AMQP's encoding     |
| sequences                       | sequence | the lists in AMQP's encoding     |
| missing                         | None     | None                             |

The rule: `write_body(*read_body(m))` is the body of `m`, with data in one section.
"""

from __future__ import annotations

from twinbus.errors import DecodeError
from twinbus.wire.codec import decode, skip
from twinbus.wire.message import sections
from twinbus.wire.message.writing import encoded_section, section

DATA = "data"
STRING = "string"
VALUE = "value"
SEQUENCE = "sequence"
KINDS = (DATA, STRING, VALUE, SEQUENCE)

_STRINGS = (0xA1, 0xB1)
_LISTS = (0x45, 0xC0, 0xD0)


def read_body(payload: bytes) -> tuple[bytes | None, str | None]:
    """The bytes of a message's body, and their kind."""
    found = [
        each
        for each in sections.find_sections(payload)
        if sections.DATA <= each[0] <= sections.VALUE
    ]
    if not found:
        return None, None
    code, _begin, start, end = found[0]
    if code == sections.DATA:
        parts = [decode(payload, start)[0] for _, _, start, _ in found]
        return parts[0] if len(parts) == 1 else b"".join(parts), DATA
    if code == sections.SEQUENCE:
        return b"".join(payload[start:end] for _, _, start, end in found), SEQUENCE
    if payload[start] in _STRINGS:
        text: str = decode(payload, start)[0]
        return text.encode(), STRING
    return payload[start:end], VALUE


def write_body(content: bytes, kind: str) -> bytes:
    """The sections of a body; `DecodeError` if the content is not of that kind."""
    if kind == DATA:
        return section(sections.DATA, content)
    if kind == STRING:
        try:
            return section(sections.VALUE, content.decode())
        except UnicodeDecodeError:
            raise DecodeError("The text is no UTF-8.") from None
    if kind == SEQUENCE:
        return _sequences(content)
    if not content or skip(content) != len(content):
        raise DecodeError("The content is not one value.")
    return encoded_section(sections.VALUE, content)


def _sequences(content: bytes) -> bytes:
    """Lists that stand one after the other, each in a section."""
    parts: list[bytes] = []
    position = 0
    while position < len(content):
        if content[position] not in _LISTS:
            raise DecodeError("The content is not a list.")
        end = skip(content, position)
        parts.append(encoded_section(sections.SEQUENCE, content[position:end]))
        position = end
    if not parts:
        raise DecodeError("The content is not a list.")
    return b"".join(parts)
