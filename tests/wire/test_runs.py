"""What is read in runs is what would be read one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.pair import Pair
from tests.wire.streams import frame_bytes
from twinbus import limits
from twinbus.errors import PeerError
from twinbus.wire.connection import Engine
from twinbus.wire.events import Answered, Delivered, Disposed, Event
from twinbus.wire.frames import encode_disposition, encode_transfer
from twinbus.wire.link import Link
from twinbus.wire.performatives import Accepted

_MESSAGE_BYTES_MAX = 40
_ID_MAX = 0xFFFFFFFF


def _uint(value: int, short: bool) -> bytes:
    if short and value == 0:
        return b"\x43"
    if short and value < 256:
        return bytes((0x52, value))
    return b"\x70" + value.to_bytes(4, "big")


@st.composite
def _transfers(draw: st.DrawFn) -> bytes:
    """Transfers that mostly follow each other, as a sender writes them, or nearly."""
    frames = []
    number = draw(st.sampled_from([0, 3, 254, _ID_MAX - 2]))
    short, is_long = draw(st.booleans()), draw(st.booleans())
    for _ in range(draw(st.integers(1, 8))):
        odd = draw(st.integers(0, 24))
        handle = 1 if odd == 1 else 0
        tag = draw(st.binary(max_size=33 if odd == 2 else 4))
        fields = _uint(handle, short) + _uint(number & _ID_MAX, short != (odd == 3))
        if odd == 4:
            fields = _uint(handle, short) + b"\x40"
        fields += bytes((0xA0, len(tag))) + tag
        fields += b"\x70\x80\x01\x37\x00" if odd == 5 else b"\x43"
        fields += (b"\x41" if odd == 6 else b"\x42") + (
            b"\x41" if odd == 7 else b"\x42"
        )
        count = 6 if odd != 8 else 5
        size = len(fields) + 4 if is_long != (odd == 9) else len(fields) + 1
        if is_long != (odd == 9):
            head = b"\xd0" + size.to_bytes(4, "big") + count.to_bytes(4, "big")
        else:
            head = bytes((0xC0, size, count))
        payload = draw(st.binary(max_size=60 if odd == 10 else 30))
        channel = 1 if odd == 11 else 0
        frames.append(
            frame_bytes(b"\x00\x53\x14" + head + fields + payload, channel=channel)
        )
        if odd == 12:
            frames[-1] = frames[-1][: draw(st.integers(1, len(frames[-1])))]
        number += 2 if odd == 13 else 1
    return b"".join(frames)


def _events(engine: Engine, stream: bytes, sizes: list[int]) -> Iterator[Event | str]:
    """What an engine says of a stream in pieces; the text of an error ends it."""
    rest = stream
    for size in cycle(sizes):
        engine.feed(rest[:size])
        rest = rest[size:]
        try:
            while (event := engine.next_event()) is not None:
                yield event
        except PeerError as error:
            yield error.text
            return
        if not rest:
            return


def _read(stream: bytes, sizes: list[int], takes_runs: bool) -> list[Any]:
    """What a server makes of the stream: deliveries, then counters or the error."""
    pair = Pair()
    links: list[Link] = []
    session = pair.session()
    for name in ("a", "b"):
        session.attach(name, True, pair.attach())
    pair.run()
    for link in next(iter(pair.server.sessions.values())).links.values():
        link.takes_runs = takes_runs
        link.max_message_bytes = _MESSAGE_BYTES_MAX
        link.grant(5)
        links.append(link)
    found: list[Any] = []
    for event in _events(pair.server, stream, sizes):
        if not isinstance(event, Delivered):
            found.append(event if isinstance(event, str) else type(event))
            continue
        assert takes_runs or event.run is None
        for each in event.apart():
            known = (each.delivery_id, each.payload, each.settled)
            about = (each.message_format, each.oversize, each.link.name)
            found.append((known, about))
    for link in links:
        inward = (link.session.frames_in, link.session.next_delivery_in)
        found.append((link.delivery_count, link.credit, link.state, inward))
    return found


@settings(max_examples=200)
@given(_transfers(), st.lists(st.integers(1, 400), min_size=1, max_size=4))
def test_a_run_says_what_single_messages_say(stream: bytes, sizes: list[int]) -> None:
    assert _read(stream, sizes, True) == _read(stream, sizes, False)


def _deliveries(count: int, takes_runs: bool = True) -> list[Delivered]:
    pair = Pair()
    _, theirs = pair.link("l", client_sends=True)
    theirs.takes_runs = takes_runs
    theirs.max_message_bytes = _MESSAGE_BYTES_MAX
    theirs.grant(count)
    frames = [
        encode_transfer(0, 0, number, b"%d" % number, b"m%d" % number, False, 512)
        for number in range(count)
    ]
    pair.server.feed(b"".join(frames))
    found: list[Delivered] = []
    while (event := pair.server.next_event()) is not None:
        assert isinstance(event, Delivered)
        found.append(event)
    return found


def test_messages_that_came_together_are_one_event() -> None:
    (delivery,) = _deliveries(5)

    assert delivery.payload == b"m0"
    assert delivery.run == [b"m1", b"m2", b"m3", b"m4"]


def test_a_run_is_bounded() -> None:
    found = _deliveries(2 * limits.RUN_MESSAGES_MAX)

    assert [len(each.run or ()) for each in found] == [
        limits.RUN_MESSAGES_MAX,
        limits.RUN_MESSAGES_MAX - 2,
    ]


def test_a_link_that_takes_no_runs_gets_each_alone() -> None:
    assert [each.run for each in _deliveries(3, takes_runs=False)] == [None] * 3


# -- dispositions ----------------------------------------------------------------------

_SENT = 12
_STATES = (b"\x00\x53\x24\x45", b"\x00\x53\x26\x45", b"\x40", b"\x00\x53\x25\x45")


@st.composite
def _dispositions(draw: st.DrawFn) -> bytes:
    """Dispositions that mostly go on where the last one ended."""
    frames = []
    number, state = draw(st.integers(0, 3)), draw(st.sampled_from(_STATES))
    for _ in range(draw(st.integers(1, 8))):
        odd = draw(st.integers(0, 12))
        last = number + draw(st.integers(0, 2)) - (3 if odd == 1 and number > 2 else 0)
        fields = (b"\x42" if odd == 2 else b"\x41") + _uint(number, odd != 3)
        fields += b"\x40" if last == number else _uint(last, odd != 4)
        fields += b"\x42" if odd == 5 else b"\x41"
        fields += _STATES[0] if odd == 6 else state
        if odd == 7:
            fields += b"\x41"
        head = bytes((0xC0, len(fields) + 1, 6 if odd == 7 else 5))
        frame = frame_bytes(
            b"\x00\x53\x15" + head + fields, channel=1 if odd == 8 else 0
        )
        frames.append(frame[: draw(st.integers(1, len(frame)))] if odd == 9 else frame)
        number = last + (2 if odd == 10 else 1)
    return b"".join(frames)


def _sent() -> tuple[Pair, Link]:
    """A server that has sent messages, and its end of the link."""
    pair = Pair()
    ours, theirs = pair.link("l", client_sends=False)
    ours.grant(_SENT)
    pair.run()
    for number in range(_SENT):
        theirs.send(b"m", b"%d" % number, number)
    return pair, theirs


def _settle(stream: bytes, sizes: list[int], most: int) -> list[Any]:
    """What a sender hears of its deliveries, one by one, then what is left."""
    pair, theirs = _sent()
    heard: list[Any] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "RUN_FRAMES_MAX", most)
        for event in _events(pair.server, stream, sizes):
            heard += _told(event)
    return [*heard, sorted(theirs.session.unsettled)]


def _told(event: Event | str) -> Iterator[Any]:
    if isinstance(event, str):
        yield event
    elif isinstance(event, Disposed):
        for each in event.deliveries:
            yield each.delivery_id, event.settled, event.state
    elif isinstance(event, Answered):
        for number in range(event.first, event.last + 1):
            yield number, event.settled, event.state, "ours"
    else:
        yield type(event)


@settings(max_examples=200)
@given(_dispositions(), st.lists(st.integers(1, 200), min_size=1, max_size=4))
def test_joined_dispositions_say_what_single_ones_say(
    stream: bytes, sizes: list[int]
) -> None:
    joined = _settle(stream, sizes, limits.RUN_FRAMES_MAX)

    assert joined == _settle(stream, sizes, 0)


def test_dispositions_that_came_together_are_one_event() -> None:
    pair, _ = _sent()
    frames = [
        encode_disposition(0, True, first, first + 2, True, Accepted())
        for first in range(0, _SENT, 3)
    ]
    pair.server.feed(b"".join(frames))

    event = pair.server.next_event()

    assert isinstance(event, Disposed)
    assert [each.cookie for each in event.deliveries] == list(range(_SENT))
    assert pair.server.next_event() is None


def test_a_range_that_runs_backwards_is_not_joined() -> None:
    said = [(5, 3), (4, 6)]
    frames = [
        encode_disposition(0, True, first, last, True, Accepted())
        for first, last in said
    ]

    heard = _settle(b"".join(frames), [200], limits.RUN_FRAMES_MAX)

    assert [each[0] for each in heard[:-1]] == [4, 5, 6]
