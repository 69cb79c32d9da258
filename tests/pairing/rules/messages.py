"""Any message the codec can build, for property tests, and what equal means.

Owns strategies for whole messages and `canonical`, the form in which two messages are
compared: all sections, but for delivery annotations, what the broker writes into the
header, and the broker's own annotations. An empty map is the same as none.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.wire import values
from twinbus.pairing.rules import envelope
from twinbus.wire.codec import decode, encode
from twinbus.wire.message import sections
from twinbus.wire.message.names import BROKER_ANNOTATIONS
from twinbus.wire.types import Described, Symbol, Timestamp, UByte, ULong


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


# -- strategies --------------------------------------------------------------------

_none = st.none()
_times = st.integers(0, 2**45).map(Timestamp)

headers = st.lists(_none, max_size=5) | st.tuples(
    _none | st.booleans(),
    _none | st.integers(0, 255).map(UByte),
    _none | values.uints,
    _none | st.booleans(),
    _none | values.uints,
).flatmap(lambda fields: st.integers(0, 5).map(lambda size: list(fields[:size])))

_ids = values.ulongs | st.uuids() | values.binaries | values.strings
_properties = st.tuples(
    _none | _ids,
    _none | values.binaries,
    *[_none | values.strings] * 3,
    _none | _ids,
    *[_none | values.symbols] * 2,
    *[_none | values.timestamps] * 2,
    _none | values.strings,
    _none | values.uints,
    _none | values.strings,
)
properties = st.tuples(_properties, st.integers(0, 13)).map(
    lambda pair: list(pair[0][: pair[1]])
)

_reserved = sorted(envelope.ALIASES)
_colliding = st.sampled_from(
    [
        *_reserved,
        *(name.upper() for name in _reserved),
        envelope.ESCAPE,
        *(envelope.ESCAPE + name for name in _reserved),
        envelope.ESCAPE.title() + "own",
        envelope.ESCAPE * 2 + envelope.PATH,
        "x-ms-other",
    ]
)
application_properties = st.dictionaries(
    _colliding | values.strings, values.values, max_size=6
)

_annotation_keys = values.symbols | values.ulongs
annotation_maps = st.dictionaries(_annotation_keys, values.values, max_size=3)

bodies = (
    st.just(b"")
    | st.lists(values.binaries, min_size=1, max_size=3).map(
        lambda items: b"".join(section(sections.DATA, item) for item in items)
    )
    | st.lists(st.lists(values.values, max_size=3), min_size=1, max_size=3).map(
        lambda items: b"".join(section(sections.SEQUENCE, item) for item in items)
    )
    | values.values.map(lambda value: section(sections.VALUE, value))
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """An encoded message, its sections in the usual order."""
    out = b""
    fields = draw(_none | properties)
    if draw(st.booleans()):
        out += section(sections.HEADER, draw(headers))
    if draw(st.booleans()):
        out += section(sections.DELIVERY_ANNOTATIONS, draw(annotation_maps))
    if draw(st.booleans()):
        out += section(sections.MESSAGE_ANNOTATIONS, _annotations(draw, fields))
    if fields is not None:
        out += section(sections.PROPERTIES, fields)
    if draw(st.booleans()):
        out += section(sections.APPLICATION_PROPERTIES, draw(application_properties))
    out += draw(bodies)
    if draw(st.booleans()):
        out += section(sections.FOOTER, draw(annotation_maps))
    return out


def _annotations(draw: st.DrawFn, fields: list[Any] | None) -> dict[Any, Any]:
    found: dict[Any, Any] = draw(annotation_maps)
    if draw(st.booleans()):
        found[Symbol("x-opt-scheduled-enqueue-time")] = draw(_none | _times)
    session_id = fields[10] if fields is not None and len(fields) > 10 else None
    if draw(st.booleans()):
        own = values.strings if session_id is None else st.just(session_id)
        found[Symbol("x-opt-partition-key")] = draw(own)
    if draw(st.booleans()):
        found[Symbol("x-opt-sequence-number")] = draw(values.longs)
    return found


# -- what equal means --------------------------------------------------------------


def canonical(payload: bytes, after_a_broker: bool = False) -> dict[int, Any]:
    """All that must survive. A broker writes no durable as not durable."""
    found: dict[int, Any] = {sections.HEADER: [None] * 3, sections.PROPERTIES: None}
    for code, begin, start, end in sections.find_sections(payload):
        if code == sections.HEADER:
            fields = decode(payload, start)[0]
            found[code] = [encode(each) for each in (fields + [None] * 3)[:3]]
        elif code == sections.PROPERTIES:
            fields = decode(payload, start)[0]
            found[code] = encode(fields + [None] * (13 - len(fields)))
        elif code in (sections.MESSAGE_ANNOTATIONS, sections.APPLICATION_PROPERTIES):
            pairs = decode(payload, start, budget=10_000)[0]
            kept = sorted(
                (encode(key), encode(value))
                for key, value in pairs.items()
                if key not in BROKER_ANNOTATIONS
            )
            if kept:
                found[code] = kept
        elif code != sections.DELIVERY_ANNOTATIONS:
            found[code] = found.get(code, b"") + payload[begin:end]
    header = [encode(None) if each is None else each for each in found[sections.HEADER]]
    if after_a_broker:
        header[0] = encode(header[0] == encode(True))
    found[sections.HEADER] = header
    if found[sections.PROPERTIES] in (None, encode([None] * 13)):
        # Nothing is said by properties that are all empty.
        del found[sections.PROPERTIES]
    return found
