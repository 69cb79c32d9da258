"""Messages that are read in runs are those that are read one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.pair import Pair
from tests.wire.streams import frame_bytes
from twinbus import limits
from twinbus.errors import PeerError
from twinbus.wire.events import Delivered
from twinbus.wire.frames import encode_transfer
from twinbus.wire.link import Link

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
    runs = 0
    try:
        position = 0
        for turn in range(len(stream)):
            size = sizes[turn % len(sizes)]
            pair.server.feed(stream[position : position + size])
            position += size
            while (event := pair.server.next_event()) is not None:
                if not isinstance(event, Delivered):
                    found.append(type(event))
                    continue
                runs += event.run is not None
                for each in event.apart():
                    known = (each.delivery_id, each.payload, each.settled)
                    about = (each.message_format, each.oversize, each.link.name)
                    found.append((known, about))
    except PeerError as error:
        found.append(error.text)
    assert takes_runs or not runs
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
