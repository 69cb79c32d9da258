"""Sections: found in any order, kept to the byte, edited without touching the body."""

from __future__ import annotations

from itertools import permutations
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus import limits
from twinbus.errors import DecodeError, InvalidField, PeerError, TwinbusError
from twinbus.wire.codec import decode, encode
from twinbus.wire.message import parts, sections
from twinbus.wire.message.rendering import (
    BrokerFields,
    render,
    render_locked,
    render_locked_run,
)
from twinbus.wire.types import (
    Decimal,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


HEADER = section(sections.HEADER, [True, UByte(7), UInt(60_000)])
DELIVERY = section(sections.DELIVERY_ANNOTATIONS, {Symbol("x"): 1})
ANNOTATIONS = section(
    sections.MESSAGE_ANNOTATIONS,
    {
        Symbol("x-opt-partition-key"): "k",
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(5),
        Symbol("x-opt-sequence-number"): 99,
        Symbol("mine"): "kept",
    },
)
PROPERTIES = section(
    sections.PROPERTIES,
    ["id", b"user", "to", "subject", None, None, "text/plain", *[None] * 3, "session"],
)
APPLICATION = section(sections.APPLICATION_PROPERTIES, {"a": 1, "b": "two"})
BODY = section(sections.DATA, b"body")
FOOTER = section(sections.FOOTER, {Symbol("f"): 1})
BARE = PROPERTIES + APPLICATION + BODY + FOOTER


def test_a_message_is_split_and_its_bare_part_kept_to_the_byte() -> None:
    message = sections.parse(HEADER + DELIVERY + ANNOTATIONS + BARE)

    assert message.bare == BARE
    assert message.message_id == "id"
    assert message.session_id == "session"
    assert message.content_type == "text/plain"
    assert (message.durable, message.priority, message.ttl_ms) == (True, 7, 60_000)
    assert message.partition_key == "k"
    assert message.scheduled_ms == 5


def test_a_binary_partition_key_is_taken_for_text() -> None:
    key = Symbol("x-opt-partition-key")

    message = sections.parse(section(sections.MESSAGE_ANNOTATIONS, {key: b"k"}) + BODY)

    assert message.partition_key == "k"
    assert message.pairs == encode(key) + encode("k")
    for value in (b"\xff", 1, Decimal(b"1234")):
        with pytest.raises(InvalidField, match="must be a string"):
            sections.parse(section(sections.MESSAGE_ANNOTATIONS, {key: value}) + BODY)


def test_sections_are_accepted_in_any_order() -> None:
    parts = [HEADER, ANNOTATIONS, PROPERTIES, APPLICATION, BODY]
    for order in permutations(parts):
        message = sections.parse(b"".join(order))

        assert message.bare == PROPERTIES + APPLICATION + BODY
        assert message.ttl_ms == 60_000


@pytest.mark.parametrize(
    "twice", [HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, FOOTER]
)
def test_a_repeated_section_is_refused(twice: bytes) -> None:
    with pytest.raises(DecodeError):
        sections.parse(twice + BODY + twice)


def test_data_may_repeat_but_bodies_may_not_mix() -> None:
    assert sections.parse(BODY + BODY).bare == BODY + BODY
    with pytest.raises(DecodeError):
        sections.parse(BODY + section(sections.VALUE, "v"))


@pytest.mark.parametrize(
    "bad",
    [
        b"\x00",
        b"\x00\x53\x79\x40",
        b"\x00\x53\x75\xa1\x01x",
        b"\x00\x53\x73\xc1\x01\x00",
        b"\x00\x53\x74\xc0\x01\x00",
        b"\x00\x53\x75\xa0\xff",
        b"\x53\x75\xa0\x00",
        section(sections.MESSAGE_ANNOTATIONS, {"string": 1}),
        section(sections.PROPERTIES, [None] * 14),
    ],
)
def test_bytes_that_are_no_message_are_refused(bad: bytes) -> None:
    with pytest.raises(PeerError):
        sections.parse(bad)


@pytest.mark.parametrize(
    "bad",
    [
        section(sections.PROPERTIES, [None] * 10 + [5]),
        section(
            sections.MESSAGE_ANNOTATIONS, {Symbol("x-opt-scheduled-enqueue-time"): "x"}
        ),
        section(sections.MESSAGE_ANNOTATIONS, {Symbol("x-opt-partition-key"): 1}),
    ],
)
def test_a_field_of_a_wrong_type_is_the_callers_fault(bad: bytes) -> None:
    with pytest.raises(InvalidField):
        sections.parse(bad)


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_our_errors(data: bytes) -> None:
    try:
        message = sections.parse(data)
    except TwinbusError:
        return
    message.head()


@given(st.data())
def test_a_mutated_message_is_split_or_refused(data: st.DataObject) -> None:
    raw = bytearray(HEADER + ANNOTATIONS + BARE)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = sections.parse(bytes(raw))
        sections.read_application_properties(message.bare)
    except TwinbusError:
        return


# -- batches -------------------------------------------------------------------------


def test_a_batch_is_taken_apart() -> None:
    envelope = section(sections.PROPERTIES, ["first"])
    inner = [BODY, PROPERTIES + BODY]
    payload = envelope + b"".join(section(sections.DATA, each) for each in inner)

    assert sections.split_batch(payload) == inner


def test_a_batch_may_have_a_footer_and_wide_descriptors() -> None:
    inner = [BODY, bytes(300), b""]
    wide = b"\x00\x80" + bytes(7) + b"\x75\xa0\x02ab"
    footer = section(sections.FOOTER, {Symbol("a"): 1})
    payload = b"".join(section(sections.DATA, each) for each in inner) + wide + footer

    assert sections.split_batch(payload) == [*inner, b"ab"]


@pytest.mark.parametrize(
    "payload",
    [
        section(sections.DATA, BODY)[:-1],
        section(sections.DATA, bytes(300))[:-1],
        section(sections.DATA, bytes(300))[:6],
        section(sections.DATA, BODY) + b"\x00",
        section(sections.DATA, BODY) + section(sections.VALUE, 1),
        section(sections.VALUE, 1) + section(sections.DATA, BODY),
        section(sections.SEQUENCE, [1]),
        PROPERTIES + PROPERTIES + section(sections.DATA, BODY),
        PROPERTIES + section(sections.DATA, BODY) + PROPERTIES,
    ],
)
def test_a_batch_that_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        sections.split_batch(payload)


def test_a_batch_has_a_bounded_number_of_messages() -> None:
    payload = section(sections.DATA, b"") * (limits.BATCH_MESSAGES_MAX + 1)

    with pytest.raises(InvalidField):
        sections.split_batch(payload)


# -- on the way out --------------------------------------------------------------------


def _sections_of(payload: bytes) -> dict[int, Any]:
    return {
        code: decode(payload, start)[0]
        for code, _, start, _ in sections.find_sections(payload)
    }


def test_a_message_keeps_its_senders_properties() -> None:
    message = sections.parse(HEADER + ANNOTATIONS + BARE)
    out = BrokerFields(sequence=3, enqueued_ms=1000, deliveries=2)
    out.state = 1

    found = _sections_of(render(out, message.head(), message.bare))

    assert found[sections.HEADER] == [True, 7, 60_000, None, 2]
    annotations = found[sections.MESSAGE_ANNOTATIONS]
    assert annotations["x-opt-sequence-number"] == 3
    assert annotations["x-opt-enqueued-time"] == 1000
    assert annotations["x-opt-message-state"] == 1
    assert annotations["x-opt-partition-key"] == "k"
    assert annotations["mine"] == "kept"
    assert found[sections.APPLICATION_PROPERTIES] == {"a": 1, "b": "two"}


@pytest.mark.parametrize("durable", [None, True, False])
@pytest.mark.parametrize("first", [None, True, False])
@pytest.mark.parametrize("deliveries", [0, 1, 255])
@pytest.mark.parametrize("origin", [None, 5, (1 << 63) - 1])
def test_the_fast_way_out_writes_what_the_other_does(
    durable: bool | None, first: bool | None, deliveries: int, origin: int | None
) -> None:
    header = section(sections.HEADER, [durable, None, None, first])
    message = sections.parse(header + BARE)
    token = bytes(range(16))
    out = BrokerFields(sequence=7, enqueued_ms=1000, deliveries=deliveries)
    out.token = token
    out.locked_until_ms = 2000

    halves = (int.from_bytes(token[:8], "big"), int.from_bytes(token[8:], "big"))
    out.origin = origin
    numbers = (7, 1000, deliveries)
    fast = render_locked(numbers, halves, 2000, message.head(), origin)

    assert fast is not None
    assert fast + message.bare == render(out, message.head(), message.bare)
    found = _sections_of(fast)
    # As the sender has said it, and absent if it has said nothing.
    assert found[sections.HEADER] == [durable, None, None, first, deliveries]
    assert [*found[sections.MESSAGE_ANNOTATIONS]] == [
        "x-opt-sequence-number",
        "x-opt-enqueued-time",
        *([] if origin is None else ["x-opt-enqueue-sequence-number"]),
        "x-opt-locked-until",
    ]


def test_the_number_at_the_first_entity_is_told_after_a_forward() -> None:
    out = BrokerFields(sequence=7, enqueued_ms=1000, deliveries=0)
    out.origin = 5

    found = _sections_of(render(out, b"", BARE))[sections.MESSAGE_ANNOTATIONS]

    assert found["x-opt-enqueue-sequence-number"] == 5


def test_the_fast_way_out_leaves_unusual_messages_alone() -> None:
    unusual = sections.parse(HEADER + BARE).head()

    assert render_locked((1, 1, 0), (0, 0), 1, unusual) is None
    assert render_locked((1, 1, 256), (0, 0), 1, b"") is None


@pytest.mark.parametrize("origin", [None, 90])
@pytest.mark.parametrize("head", [b"", *sections.SHORT_HEADS.values()])
def test_a_run_of_alike_messages_is_rendered_as_each_of_them(
    head: bytes, origin: int | None
) -> None:
    ids = range(7 << 40 | 5, 7 << 40 | 8)
    sequences = range(3 << 48 | 5, 3 << 48 | 8)
    origins = None if origin is None else range(origin, origin + 3)

    run = render_locked_run(ids, sequences, (9, -1, 2000), head, origins)

    assert run == [
        render_locked(
            (sequences[place], -1, 0),
            (ids[place], 9),
            2000,
            head,
            None if origin is None else origin + place,
        )
        for place in range(3)
    ]


def test_a_run_of_another_head_or_without_origins_is_left_to_the_general_way() -> None:
    unusual = sections.parse(HEADER + BARE).head()

    assert render_locked_run(range(2), range(2), (1, 1, 1), unusual) is None
    assert render_locked_run(range(2), range(2), (1, 1, 1), b"", range(2)) is None


def test_a_large_delivery_count_is_written_in_full() -> None:
    found = _sections_of(render(BrokerFields(1, 1, 70_000), b"", BARE))

    assert found[sections.HEADER][4] == 70_000


# -- editing ---------------------------------------------------------------------------


def test_properties_are_set_and_removed_and_the_body_stays() -> None:
    bare = parts.with_application_properties(BARE, {"c": UUID(int=1)}, frozenset({"a"}))

    assert sections.read_application_properties(bare) == {"b": "two", "c": UUID(int=1)}
    assert bare.endswith(BODY + FOOTER)
    assert bare.startswith(PROPERTIES)


@pytest.mark.parametrize(
    "bare", [b"", BODY, PROPERTIES, PROPERTIES + BODY, APPLICATION]
)
def test_properties_can_be_added_to_any_message(bare: bytes) -> None:
    edited = parts.with_application_properties(bare, {"x": "y"})

    assert sections.read_application_properties(edited)["x"] == "y"
    assert sections.parse(edited).bare == edited


def test_properties_that_a_message_had_not_are_removed_to_the_byte() -> None:
    marked = parts.with_application_properties(PROPERTIES + BODY, {"why": "x"})

    assert parts.without_application_properties(BARE, frozenset({"no"})) == BARE
    assert parts.without_application_properties(marked, frozenset({"why"})) == (
        PROPERTIES + BODY
    )
    left = parts.without_application_properties(BARE, frozenset({"a"}))
    assert sections.read_application_properties(left) == {"b": "two"}


@pytest.mark.parametrize("bare", [BARE, PROPERTIES + FOOTER, b""])
def test_a_body_is_replaced_and_the_rest_stays(bare: bytes) -> None:
    edited = parts.with_body(bare, b"new")

    new = section(sections.DATA, b"new")
    kept = bare.replace(BODY, b"")
    assert new in edited
    assert edited.replace(new, b"") == kept
    assert sections.parse(edited).bare == edited


@pytest.mark.parametrize(
    "bare", [b"", BODY, section(sections.PROPERTIES, [None, b"u"])]
)
def test_a_message_without_an_id_gets_one(bare: bytes) -> None:
    named = parts.with_message_id(bare, "given")

    assert sections.parse(named).message_id == "given"
    assert sections.read_properties(named)[1] == sections.read_properties(bare)[1]


@pytest.mark.parametrize("message_id", ["text", ULong(7), UUID(int=9), b"raw"])
def test_message_ids_keep_their_type(message_id: Any) -> None:
    bare = section(sections.PROPERTIES, [message_id])

    message = sections.parse(bare)

    assert message.message_id == message_id
    assert type(message.message_id) is type(message_id)


# -- requests --------------------------------------------------------------------------


def test_a_reply_answers_its_request() -> None:
    payload = section(sections.PROPERTIES, [UUID(int=4), None, None, None, "reply"])
    payload += section(sections.APPLICATION_PROPERTIES, {"operation": "op"})
    payload += section(sections.VALUE, {"key": 1})
    request = sections.Request(payload)

    reply = sections.encode_reply(request.message_id, {"statusCode": 200}, {"a": None})

    assert request.reply_to == "reply"
    assert request.body == {"key": 1}
    found = _sections_of(reply)
    assert found[sections.PROPERTIES][sections.CORRELATION_ID] == UUID(int=4)
    assert found[sections.VALUE] == {"a": None}
