"""Messages as people see them: a line of a list, and everything that one has.

Owns the names of fields in pages and in JSON. Bytes that are no text are shown as such,
and nothing here fails on a message that cannot be read: what can be read is shown.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

from twinbus import limits
from twinbus.errors import PeerError
from twinbus.server.broker.rendering import render_stored
from twinbus.server.http.console.looking import LookPlace
from twinbus.server.http.console.page import when
from twinbus.server.http.rest.messages import plain
from twinbus.store.base import POSTPONED, State, Stored
from twinbus.wire.codec import decode
from twinbus.wire.message import sections
from twinbus.wire.message.names import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON

_SECTIONS = {
    sections.HEADER: "header",
    sections.DELIVERY_ANNOTATIONS: "delivery annotations",
    sections.MESSAGE_ANNOTATIONS: "annotations",
    sections.PROPERTIES: "properties",
    sections.APPLICATION_PROPERTIES: "application properties",
    sections.FOOTER: "footer",
}
_HEADER = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
PROPERTIES = (
    *("message-id", "user-id", "to", "subject", "reply-to", "correlation-id"),
    *("content-type", "content-encoding", "absolute-expiry-time", "creation-time"),
    *("group-id", "group-sequence", "reply-to-group-id"),
)
_LISTS = {sections.HEADER: _HEADER, sections.PROPERTIES: PROPERTIES}


def summary(place: LookPlace, stored: Stored) -> dict[str, Any]:
    """A message as a line of a list."""
    fields: list[Any] = [None] * 13
    properties: dict[str, Any] = {}
    with suppress(PeerError):
        fields = sections.read_properties(stored.bare)
        properties = sections.read_application_properties(stored.bare)
    text = body_of(stored)[: limits.CONSOLE_PREVIEW_BYTES]
    is_postponed = stored.due_ms == POSTPONED
    return {
        "sequence": place.number(stored),
        "state": "copying" if is_postponed else State(stored.state).name.lower(),
        "enqueued_ms": stored.enqueued_ms,
        "enqueued_at": when(stored.enqueued_ms),
        "due_at": when(stored.due_ms) if stored.is_scheduled else None,
        "expires_at": when(stored.expires_ms) if stored.expires_ms else None,
        "deliveries": stored.deliveries,
        "session": stored.session or _text(fields[sections.GROUP_ID]),
        "message_id": _text(fields[sections.MESSAGE_ID]),
        "subject": _text(fields[sections.SUBJECT]),
        "content_type": _text(fields[sections.CONTENT_TYPE]),
        "size_bytes": len(stored.bare) + len(stored.head),
        "reason": _text(properties.get(DEAD_LETTER_REASON)),
        "description": _text(properties.get(DEAD_LETTER_DESCRIPTION)),
        "source": stored.source,
        "preview": text.decode("utf-8", "replace"),
    }


def detail(place: LookPlace, stored: Stored) -> dict[str, Any]:
    """Everything that a message has."""
    message = render_stored(stored, None, None, place.base)
    parts: dict[str, list[dict[str, Any]]] = {}
    with suppress(PeerError):
        for code, _begin, start, _end in sections.find_sections(message):
            name = _SECTIONS.get(code)
            if name is not None:
                parts[name] = _entries(code, message, start)
    return {**summary(place, stored), "sections": parts, "body": _body(stored)}


def _entries(code: int, message: bytes, start: int) -> list[dict[str, Any]]:
    """The fields of a section, each with its name, value and type."""
    try:
        value, _ = decode(message, start, budget=limits.SECTION_NODES_MAX)
    except PeerError as error:
        return [{"name": "", "value": error.text, "type": "not readable"}]
    if isinstance(value, list):
        named = zip(_LISTS[code], value, strict=False)
        pairs = [(name, each) for name, each in named if each is not None]
    else:
        pairs = [(str(name), each) for name, each in value.items()]
    return [
        {"name": name, "value": plain(each), "type": type(each).__name__.lower()}
        for name, each in pairs
    ]


def _body(stored: Stored) -> dict[str, Any]:
    content = body_of(stored)
    shown = content[: limits.CONSOLE_BODY_BYTES_MAX]
    text = _decoded(shown, is_cut=len(shown) < len(content))
    return {
        "size_bytes": len(content),
        "is_cut": len(shown) < len(content),
        "text": text,
        "json": _pretty(text) if text is not None else None,
        "base64": base64.b64encode(shown).decode("ascii"),
        "hex": _hex(shown),
    }


def body_of(stored: Stored) -> bytes:
    """The bytes of a body; of a value its text, or JSON."""
    data: list[bytes] = []
    values: list[Any] = []
    with suppress(PeerError):
        for code, _begin, start, _end in sections.find_sections(stored.bare):
            if code in (sections.DATA, sections.SEQUENCE, sections.VALUE):
                value = decode(stored.bare, start, budget=limits.SECTION_NODES_MAX)[0]
                (data if code == sections.DATA else values).append(value)
    if not values:
        return b"".join(data)
    value = values[0] if len(values) == 1 else values
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(plain(value))).encode(
        "utf-8", "replace"
    )


def _decoded(shown: bytes, *, is_cut: bool) -> str | None:
    """The bytes as text; None if they are none. A cut may be inside a character."""
    for missing in range(4 if is_cut else 1):
        with suppress(UnicodeDecodeError):
            text = shown[: len(shown) - missing].decode()
            return None if "\x00" in text else text
    return None


def _pretty(text: str) -> str | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict | list):
        return None
    return json.dumps(found, indent=2, ensure_ascii=False)


def _hex(content: bytes) -> str:
    """Sixteen bytes in a line: where, what, and as characters."""
    lines = []
    for at in range(0, len(content), 16):
        row = content[at : at + 16]
        codes = " ".join(f"{byte:02x}" for byte in row)
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {codes:<47}  {shown}")
    return "\n".join(lines)


def _text(value: Any) -> str | None:
    """An id or a name: text as it is, other types as they are written."""
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)
