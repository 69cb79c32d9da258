"""Messages that are joined come apart as they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.test_fast_sections import NAMES
from twinbus import limits
from twinbus.wire.message import names, sections
from twinbus.wire.message.bundle import bundled
from twinbus.wire.message.sections import Incoming, parse
from twinbus.wire.message.writing import section
from twinbus.wire.types import Symbol, Timestamp, UInt

MANY = limits.PACK_MESSAGES_MIN

_HEADERS = st.sampled_from(
    [b"", *(section(sections.HEADER, fields) for fields in ([True], [None, 4], []))]
)
_ANNOTATIONS = st.sampled_from(
    [
        b"",
        section(sections.MESSAGE_ANNOTATIONS, {}),
        section(sections.MESSAGE_ANNOTATIONS, {Symbol("x-mine"): 7}),
        section(sections.DELIVERY_ANNOTATIONS, {Symbol("x-other"): "y"}),
    ]
)
_BODIES = st.sampled_from(
    [
        section(sections.DATA, b"body"),
        section(sections.DATA, b"one") + section(sections.DATA, b"two"),
        section(sections.VALUE, {"a": [1]}),
        section(sections.DATA, b"") + section(sections.FOOTER, {}),
        section(sections.APPLICATION_PROPERTIES, {"k": 1})
        + section(sections.DATA, b""),
    ]
)


def _properties(values: dict[int, Any]) -> bytes:
    fields = [values.get(place) for place in range(max(values) + 1)]
    return section(sections.PROPERTIES, fields)


@st.composite
def _alike(draw: st.DrawFn) -> list[bytes]:
    front = draw(_HEADERS) + draw(_ANNOTATIONS)
    payloads = []
    for number in range(draw(st.integers(MANY, MANY + 3))):
        values: dict[int, Any] = {sections.MESSAGE_ID: f"m{number}"}
        if draw(st.booleans()):
            values[sections.CONTENT_TYPE] = draw(
                st.sampled_from(["text/plain", Symbol("a/b")])
            )
        payloads.append(front + _properties(values) + draw(_BODIES))
    return payloads


def _fields(message: Incoming) -> dict[str, Any]:
    return {name: getattr(message, name) for name in NAMES}


@given(_alike(), st.booleans())
def test_what_is_joined_comes_apart_as_it_was(
    payloads: list[bytes], is_batch: bool
) -> None:
    bundle = bundled([parse(payload) for payload in payloads], is_batch)

    assert bundle is not None
    assert len(bundle) == len(payloads)
    assert bundle.is_batch is is_batch
    apart = bundle.messages()
    assert [_fields(each) for each in apart] == [_fields(parse(p)) for p in payloads]
    assert {each.head() for each in apart} == {bundle.first.head()}
    assert bundle.largest_bytes == max(len(each.bare) for each in apart)


def _messages(count: int) -> list[Incoming]:
    return [parse(_payload({sections.MESSAGE_ID: f"m{n}"})) for n in range(count)]


def _payload(values: dict[int, Any], front: bytes = b"") -> bytes:
    return front + _properties(values) + section(sections.DATA, b"x")


def _annotated(name: str, value: Any) -> bytes:
    annotations = section(sections.MESSAGE_ANNOTATIONS, {Symbol(name): value})
    return _payload({sections.MESSAGE_ID: "m"}, annotations)


def test_too_few_are_not_joined() -> None:
    assert bundled(_messages(MANY - 1), is_batch=False) is None
    assert bundled(_messages(MANY), is_batch=False) is not None


def test_messages_that_no_store_would_keep_together_are_not_joined() -> None:
    most = limits.PACKED_MESSAGE_BYTES_MAX
    text = _properties({sections.MESSAGE_ID: "m"})

    def sized(body: int) -> Incoming:
        return parse(text + section(sections.DATA, bytes(body)))

    body = 2 * most - len(sized(most).bare)
    large, larger = sized(body), sized(body + 1)
    assert len(large.bare) == most

    assert bundled([*_messages(MANY), large], is_batch=False) is not None
    assert bundled([*_messages(MANY), larger], is_batch=False) is None


@pytest.mark.parametrize(
    "payload",
    [
        _payload({sections.MESSAGE_ID: "m", sections.GROUP_ID: "s"}),
        _payload({sections.MESSAGE_ID: "m" * (limits.MESSAGE_ID_CHARS_MAX + 1)}),
        _payload({sections.MESSAGE_ID: UInt(7)}),
        _payload({sections.MESSAGE_ID: Symbol("m")}),
        _payload({sections.MESSAGE_ID: b"m"}),
        _payload({sections.SUBJECT: "no id"}),
        _payload(
            {
                sections.MESSAGE_ID: "m",
                sections.CONTENT_TYPE: sections.PING_CONTENT_TYPE,
            }
        ),
        _payload({sections.MESSAGE_ID: "m"}, section(sections.HEADER, [None, 5])),
        _payload(
            {sections.MESSAGE_ID: "m"}, section(sections.HEADER, [None, None, UInt(1)])
        ),
        _annotated(names.PARTITION_KEY, "k"),
        _annotated(names.SCHEDULED_ENQUEUE_TIME, Timestamp(1)),
        _annotated("x-mine", 1),
    ],
    ids=[
        *["session", "long id", "number as id", "symbol as id", "bytes as id", "no id"],
        *["ping", "priority", "time to live", "partition key", "schedule"],
        "annotation",
    ],
)
def test_messages_with_one_that_differs_are_not_joined(payload: bytes) -> None:
    messages = [*_messages(MANY), parse(payload)]

    assert bundled(messages, is_batch=False) is None
    assert bundled(messages[::-1], is_batch=False) is None


@pytest.mark.parametrize(
    "payload",
    [
        _payload({sections.MESSAGE_ID: "m", sections.GROUP_ID: "s"}),
        _annotated(names.PARTITION_KEY, "k"),
        _annotated(names.SCHEDULED_ENQUEUE_TIME, Timestamp(1)),
        _payload(
            {sections.MESSAGE_ID: "m"}, section(sections.HEADER, [None, None, UInt(1)])
        ),
    ],
    ids=["session", "partition key", "schedule", "time to live"],
)
def test_what_no_bundle_has_is_not_joined_if_all_have_it(payload: bytes) -> None:
    assert bundled([parse(payload)] * MANY, is_batch=False) is None
