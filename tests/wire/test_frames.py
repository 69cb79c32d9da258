"""Frames: cutting the stream, refusing early, and the fast path's equality."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import composites
from tests.wire.streams import FRAME_BYTES, drain, frame_bytes, reader_of
from twinbus.errors import DecodeError, FrameError, LimitExceeded
from twinbus.wire.frames import (
    AMQP_HEADER,
    HEARTBEAT,
    SASL_HEADER,
    Frame,
    FrameReader,
    Header,
    encode_disposition,
    encode_frame,
    encode_transfer,
)
from twinbus.wire.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Attach,
    Body,
    Close,
    DeliveryState,
    Disposition,
    Error,
    Flow,
    Open,
    Rejected,
    SaslInit,
    Transfer,
)

# -- protocol headers ----------------------------------------------------------------


@pytest.mark.parametrize("protocol_id", [0, 2, 3])
def test_an_expected_header_is_read_once(protocol_id: int) -> None:
    reader = reader_of(b"AMQP" + bytes((protocol_id, 1, 0, 0)) + HEARTBEAT)

    reader.expect_header()

    assert reader.next() == Header(protocol_id)
    assert reader.next() == Frame(0, 0, None, b"")
    assert reader.next() is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"AMQP\x01\x01\x00\x00",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x00\x01\x00\x01",
        b"AMQP\x00\x02\x00\x00",
        b"amqp\x00\x01\x00\x00",
        HEARTBEAT,
        bytes(8),
    ],
)
def test_any_other_header_is_refused(data: bytes) -> None:
    reader = reader_of(data)
    reader.expect_header()

    with pytest.raises(FrameError):
        reader.next()


@pytest.mark.parametrize(
    ("data", "spoken"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x28\x00", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /q/messages HTTP/1.1\r\n", "HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
    ],
)
def test_another_protocol_is_named_with_its_ports(data: bytes, spoken: str) -> None:
    reader = reader_of(data)
    reader.expect_header()

    with pytest.raises(FrameError) as refused:
        reader.next()

    text = refused.value.text
    assert text.startswith(f"The peer speaks {spoken}, not AMQP. {spoken} is for the")


def test_an_unexpected_protocol_header_is_refused() -> None:
    with pytest.raises(FrameError):
        reader_of(AMQP_HEADER).next()


def test_headers_and_frames_may_be_pipelined() -> None:
    init = SaslInit("ANONYMOUS", b"", "h")
    stream = SASL_HEADER + encode_frame(0, init, kind=1)
    stream += AMQP_HEADER + encode_frame(0, Open("c"))
    reader = reader_of(stream)

    reader.expect_header()
    first = [reader.next(), reader.next()]
    reader.expect_header()
    second = [reader.next(), reader.next(), reader.next()]

    assert first == [Header(3), Frame(1, 0, init, b"")]
    assert second == [Header(0), Frame(0, 0, Open("c"), b""), None]


# -- frame headers -------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_frame_shorter_than_its_header_is_refused_after_four_bytes(size: int) -> None:
    with pytest.raises(FrameError):
        reader_of(size.to_bytes(4, "big")).next()


@pytest.mark.parametrize("doff", [0, 1, 3, 255])
def test_a_wrong_data_offset_is_refused_after_eight_bytes(doff: int) -> None:
    size = 11

    with pytest.raises(FrameError):
        reader_of(size.to_bytes(4, "big") + bytes((doff, 0, 0, 0))).next()


@pytest.mark.parametrize("kind", [2, 255])
def test_an_unknown_frame_type_is_refused_after_eight_bytes(kind: int) -> None:
    with pytest.raises(FrameError):
        reader_of(b"\x00\x00\x10\x00" + bytes((2, kind, 0, 0))).next()


def test_a_frame_at_the_limit_is_read_and_one_above_it_is_not() -> None:
    frame = encode_frame(0, Transfer(0, 0, b"", 0), bytes(1000))

    assert reader_of(frame, len(frame)).next() is not None
    with pytest.raises(FrameError):
        reader_of(frame[:4], len(frame) - 1).next()
    with pytest.raises(FrameError):
        reader_of(frame, len(frame) - 1).next()


def test_the_limit_can_be_raised_between_frames() -> None:
    small, large = encode_frame(0, Open("c")), encode_frame(0, Open("c" * 1000))
    reader = reader_of(small + large, 100)

    assert reader.next() is not None
    reader.max_frame_bytes = 2000

    assert reader.next() == Frame(0, 0, Open("c" * 1000), b"")


def test_an_extended_frame_header_is_skipped() -> None:
    body = encode_frame(0, Open("c"))[8:]

    assert reader_of(frame_bytes(body, doff=4, channel=7)).next() == Frame(
        0, 7, Open("c"), b""
    )


def test_an_empty_frame_is_a_heartbeat() -> None:
    assert encode_frame(0, None) == HEARTBEAT
    assert reader_of(HEARTBEAT).next() == Frame(0, 0, None, b"")
    assert reader_of(frame_bytes(b"", doff=3)).next() == Frame(0, 0, None, b"")


def test_an_empty_sasl_frame_is_refused() -> None:
    with pytest.raises(FrameError):
        reader_of(frame_bytes(b"", kind=1)).next()


def test_only_a_transfer_has_a_payload() -> None:
    for frame in (
        encode_frame(0, Open("c"), b"x"),
        encode_frame(0, Flow(), b"x"),
        encode_frame(0, Disposition(state=ACCEPTED), b"x"),
        encode_frame(0, SaslInit("a"), b"x", kind=1),
    ):
        with pytest.raises(FrameError):
            reader_of(frame).next()


def test_performatives_of_the_other_frame_type_are_refused() -> None:
    for frame in (encode_frame(0, Open("c"), kind=1), encode_frame(0, SaslInit("a"))):
        with pytest.raises(DecodeError):
            reader_of(frame).next()


def test_a_body_cannot_reach_into_the_next_frame() -> None:
    # The list says that it is longer than its frame; the bytes are there, but not its.
    body = bytearray(encode_frame(0, Open("c"))[8:])
    body[4] += 8
    stream = frame_bytes(bytes(body)) + HEARTBEAT

    with pytest.raises(DecodeError):
        reader_of(stream).next()


@pytest.mark.parametrize("extra", [1, 30, 250])
@pytest.mark.parametrize("code", [0x13, 0x14, 0x15])
def test_a_hot_body_cannot_reach_into_the_next_frame(code: int, extra: int) -> None:
    performative: dict[int, Body] = {
        0x13: Flow(),
        0x14: Transfer(0, 0, b"", 0),
        0x15: Disposition(),
    }
    body = bytearray(encode_frame(0, performative[code])[8:])
    body[4] = min(255, body[4] + extra)
    stream = frame_bytes(bytes(body)) + HEARTBEAT * 40

    with pytest.raises(DecodeError):
        reader_of(stream).next()


def test_a_reader_that_failed_stays_failed_and_keeps_nothing() -> None:
    reader = reader_of(bytes(8))
    with pytest.raises(FrameError):
        reader.next()

    reader.feed(HEARTBEAT * 1000)

    with pytest.raises(FrameError, match="shorter"):
        reader.next()
    assert not reader._waiting
    assert not reader._buffer


def test_a_failure_keeps_its_class() -> None:
    deep = b"\x00" * 100 + b"\x40" * 101
    properties = b"\xd1" + (len(deep) + 5).to_bytes(4, "big") + b"\0\0\0\x02\x40" + deep
    fields = b"\0\0\0\x0a\xa1\x00" + b"\x40" * 8 + properties
    body = b"\x00\x53\x10\xd0" + len(fields).to_bytes(4, "big") + fields
    reader = reader_of(frame_bytes(body))

    for _ in range(2):
        with pytest.raises(LimitExceeded):
            reader.next()


# -- chunks --------------------------------------------------------------------------

frames = st.builds(
    encode_frame, st.integers(0, 65535), composites.performatives, st.just(b"")
)
transfer_frames = st.builds(
    encode_frame,
    st.integers(0, 65535),
    composites.transfers,
    st.binary(max_size=300),
)
mutated = st.builds(
    lambda frame, index, octet: (
        frame[: index % len(frame)] + bytes((octet,)) + frame[index % len(frame) + 1 :]
    ),
    frames | transfer_frames,
    st.integers(0, 400),
    st.integers(0, 255),
)
streams = st.lists(
    frames | transfer_frames | mutated | st.just(HEARTBEAT), min_size=1, max_size=5
).map(b"".join)


@given(streams, st.lists(st.integers(1, 60), min_size=1), st.booleans())
def test_chunk_boundaries_do_not_matter(
    stream: bytes, sizes: list[int], eager: bool
) -> None:
    whole = drain(reader_of(stream, 4096))

    reader = FrameReader(4096)
    events: list[Any] = []
    position = 0
    turn = 0
    while position < len(stream) and not (events and isinstance(events[-1], tuple)):
        size = sizes[turn % len(sizes)]
        reader.feed(stream[position : position + size])
        position += size
        turn += 1
        if eager or turn % 3 == 0:
            events += drain(reader)
    if not (events and isinstance(events[-1], tuple)):
        events += drain(reader)

    assert events == whole


@given(streams)
def test_byte_by_byte_gives_the_same(stream: bytes) -> None:
    whole = drain(reader_of(stream, 4096))

    reader = FrameReader(4096)
    events: list[Any] = []
    for position in range(len(stream)):
        reader.feed(stream[position : position + 1])
        events += drain(reader)
        if events and isinstance(events[-1], tuple):
            break

    assert events == whole


def test_a_large_frame_byte_by_byte_is_joined_a_few_times_only() -> None:
    frame = encode_frame(0, Transfer(0, 0, b"", 0), bytes(60_000))
    reader = FrameReader(FRAME_BYTES)
    frames_read = joins = 0

    for position in range(len(frame)):
        before = reader._buffer
        reader.feed(frame[position : position + 1])
        frames_read += reader.next() is not None
        joins += reader._buffer is not before

    # The first byte, the size, the header, the frame.
    assert joins <= 4
    assert frames_read == 1


def test_the_payload_is_a_copy_of_its_own() -> None:
    data = encode_frame(0, Transfer(0, 0, b"", 0), b"payload")

    frame = reader_of(data).next()

    assert isinstance(frame, Frame)
    assert type(frame.payload) is bytes
    assert frame.payload == b"payload"


# -- writing -------------------------------------------------------------------------


@given(
    composites.transfers,
    st.binary(max_size=2000),
    st.integers(100, 700),
)
def test_a_delivery_is_written_as_frames_of_the_peers_size(
    transfer: Transfer, payload: bytes, max_frame_bytes: int
) -> None:
    handle, settled = transfer.handle, transfer.settled
    delivery_id = transfer.delivery_id or 0
    tag = transfer.delivery_tag or b""
    message_format = transfer.message_format or 0

    data = encode_transfer(
        5, handle, delivery_id, tag, payload, settled, max_frame_bytes, message_format
    )

    written = drain(reader_of(data, max_frame_bytes))
    assert b"".join(frame.payload for frame in written) == payload
    for index, frame in enumerate(written):
        more = index < len(written) - 1
        assert frame.channel == 5
        assert frame.performative == Transfer(
            handle, delivery_id, tag, message_format, settled, more
        )
    longest = [len(frame.payload) for frame in written]
    assert max(longest) - min(longest[:-1], default=max(longest)) == 0


@pytest.mark.parametrize("slack", [-1, 0, 1])
def test_a_payload_that_just_fits_takes_one_frame(slack: int) -> None:
    payload = bytes(500 + slack)
    exact = len(encode_transfer(0, 0, 0, b"t", bytes(500), False, 10_000))

    data = encode_transfer(0, 0, 0, b"t", payload, False, exact)

    assert len(drain(reader_of(data))) == (2 if slack > 0 else 1)


def test_an_empty_delivery_takes_one_frame() -> None:
    assert drain(reader_of(encode_transfer(0, 1, 2, b"t", b"", True, 512))) == [
        Frame(0, 0, Transfer(1, 2, b"t", 0, True), b"")
    ]


@given(
    st.integers(0, 65535),
    composites.boolean,
    composites.uint,
    composites.maybe(composites.uint),
    composites.boolean,
    composites.maybe(composites.states),
)
def test_a_disposition_is_written(
    channel: int,
    role: bool,
    first: int,
    last: int | None,
    settled: bool,
    state: DeliveryState | None,
) -> None:
    data = encode_disposition(channel, role, first, last, settled, state)

    expected = Disposition(role, first, last, settled, state)
    assert drain(reader_of(data)) == [Frame(0, channel, expected, b"")]


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED, None, Rejected(Error("a:b"))])
def test_a_disposition_has_all_its_fields(state: DeliveryState | None) -> None:
    data = encode_disposition(0, False, 1, 2, True, state)

    assert data[8:12] == b"\x00\x53\x15\xc0"
    assert data[13] == 6
    assert len(data) == int.from_bytes(data[:4], "big")


@pytest.mark.parametrize(
    "arguments",
    [
        (65536, 0, 0, b"", b"", False, 512),
        (-1, 0, 0, b"", b"", False, 512),
        (0, 2**32, 0, b"", b"", False, 512),
        (0, 0, 2**32, b"", b"", False, 512),
        (0, 0, 0, bytes(33), b"", False, 512),
        (0, 0, 0, b"", b"payload", False, 34),
        (0, 0, 0, b"", b"payload", False, 512, 2**32),
    ],
)
def test_a_transfer_that_cannot_be_written_is_a_value_error(
    arguments: tuple[Any, ...],
) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_transfer(*arguments)


def test_a_disposition_that_cannot_be_written_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="disposition"):
        encode_disposition(0, True, 2**32, 0, True, Accepted())
    with pytest.raises(ValueError, match=r"."):
        encode_disposition(0, True, 0, 2**32, True, Rejected())


def test_a_frame_that_cannot_be_written_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="header"):
        encode_frame(65536, Close())


def test_a_long_frame_is_written_with_long_lists() -> None:
    attach = Attach("a" * 300)

    data = encode_frame(1, attach)

    assert data[11] == 0xD0
    assert drain(reader_of(data)) == [Frame(0, 1, attach, b"")]
