"""The fast path of the frame reader gives what the general one gives, always."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire import composites
from tests.wire.streams import drain, frame_bytes, reader_of
from twinbus.wire.fast_performatives import (
    fast_disposition,
    fast_flow,
    fast_transfer,
)
from twinbus.wire.frames import HEARTBEAT, Frame, encode_frame
from twinbus.wire.performatives import Body, Disposition, Flow, Transfer

_uint_codes = st.sampled_from([0x40, 0x43, 0x52, 0x70])
_boolean_codes = st.sampled_from([b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])
_state_codes = st.sampled_from(
    [
        b"\x40",
        b"\x00\x53\x24\x45",
        b"\x00\x53\x24\xc0\x01\x00",
        b"\x00\x53\x24\xd0\x00\x00\x00\x04\x00\x00\x00\x00",
        b"\x00\x53\x26\x45",
        b"\x00\x53\x26\xc0\x01\x00",
        b"\x00\x53\x25\xc0\x02\x01\x40",
        b"\x00\x53\x27\xc0\x04\x03\x41\x42\x40",
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x24\x45",
        b"\x00\xa3\x12amqp:accepted:list\x45",
        b"\x00\x53\x29\x45",
    ]
)


@st.composite
def _uint_fields(draw: st.DrawFn) -> bytes:
    """A uint in any of its encodings, null, or at times something else."""
    code = draw(_uint_codes)
    if code == 0x52:
        return bytes((code, draw(st.integers(0, 255))))
    if code == 0x70:
        return bytes((code,)) + draw(st.binary(min_size=4, max_size=4))
    return bytes((code,))


_odd_fields = st.sampled_from([b"\x45", b"\x53\x01", b"\xa1\x01a", b"\xc1\x01\x00"])
_tag_fields = st.binary(max_size=34).map(lambda tag: bytes((0xA0, len(tag))) + tag)
_long_tags = st.binary(max_size=34).map(
    lambda tag: b"\xb0" + len(tag).to_bytes(4, "big") + tag
)
_ubyte_fields = st.sampled_from([b"\x40", b"\x50\x01"])
_map_fields = st.sampled_from([b"\x40", b"\xc1\x01\x00"])

_u, _b = _uint_fields(), _boolean_codes
_TRANSFER = [_u, _u, _tag_fields | _long_tags, _u, _b, _b]
_TRANSFER += [_ubyte_fields, _state_codes, _b, _b, _b]
_DISPOSITION = [_b, _u, _u, _b, _state_codes, _b]
_FLOW = [*[_u] * 8, _b, _b, _map_fields]


@st.composite
def hot_bodies(draw: st.DrawFn) -> bytes:
    """A transfer, disposition or flow in any mixture of legal encodings, or nearly."""
    code, kinds = draw(
        st.sampled_from([(0x14, _TRANSFER), (0x15, _DISPOSITION), (0x13, _FLOW)])
    )
    count = draw(st.integers(0, len(kinds)))
    parts = [draw(kind) for kind in kinds[:count]]
    if draw(st.integers(0, 9)) == 0 and parts:
        parts[draw(st.integers(0, count - 1))] = draw(_odd_fields)
    if draw(st.integers(0, 19)) == 0:
        parts += [b"\x40"] * draw(st.integers(1, 3))
    fields = b"".join(parts)
    claimed = len(parts) + draw(st.sampled_from([0] * 18 + [-1, 1])) & 0xFF
    slip = draw(st.sampled_from([0] * 18 + [-1, 1]))
    start = bytes((0x00, 0x53, code))
    if draw(st.booleans()) and len(fields) < 250:
        size = max(0, len(fields) + 1 + slip)
        return start + bytes((0xC0, size, claimed)) + fields
    size = max(0, len(fields) + 4 + slip)
    return (
        start + b"\xd0" + size.to_bytes(4, "big") + claimed.to_bytes(4, "big") + fields
    )


@settings(max_examples=1000)
@given(hot_bodies(), st.binary(max_size=20), st.booleans())
def test_the_fast_path_equals_the_general_one(
    body: bytes, payload: bytes, more_follows: bool
) -> None:
    body += payload
    rest = HEARTBEAT * 5 if more_follows else b""

    # An extended header is unusual enough to take the general path.
    fast = drain(reader_of(frame_bytes(body, channel=3) + rest))
    general = drain(reader_of(frame_bytes(body, doff=3, channel=3) + rest))

    assert fast == general
    assert [_types(event) for event in fast] == [_types(event) for event in general]


def _types(event: Any) -> list[type]:
    if not isinstance(event, Frame) or event.performative is None:
        return [type(event)]
    performative = event.performative
    return [type(getattr(performative, name)) for name in performative.__slots__]


@given(composites.transfers | composites.flows | composites.dispositions)
def test_our_own_frames_read_the_same_on_both_paths(performative: Body) -> None:
    body = encode_frame(9, performative)[8:]

    fast = drain(reader_of(frame_bytes(body, channel=9)))
    general = drain(reader_of(frame_bytes(body, doff=3, channel=9)))

    assert fast == general == [Frame(0, 9, performative, b"")]


@pytest.mark.parametrize("fast", [fast_transfer, fast_flow, fast_disposition])
@pytest.mark.parametrize(
    "performative",
    [
        Transfer(70_000, 70_000, b"tag", 70_000),
        Flow(70_000, 70_000, 70_000, 70_000, 70_000),
        Disposition(True, 70_000, 70_000),
    ],
)
def test_a_list_at_the_end_of_the_buffer_may_be_cut_anywhere(
    fast: Callable[[bytes, int, int, int], Body | None], performative: Body
) -> None:
    body = encode_frame(0, performative)[8:]

    for end in range(6, len(body)):
        assert fast(body[:end], 6, end, body[5]) is None


def test_the_last_number_of_a_flow_cannot_reach_into_the_next_frame() -> None:
    # Eight fields; the last says four bytes and has one. The fuzzer found this.
    fields = b"\x43" * 7 + b"\x70\x01"
    body = b"\x00\x53\x13\xc0" + bytes((len(fields) + 1, 8)) + fields

    events = drain(reader_of(frame_bytes(body) + HEARTBEAT))

    assert events == drain(reader_of(frame_bytes(body, doff=3) + HEARTBEAT))
    assert not isinstance(events[0], Frame)
