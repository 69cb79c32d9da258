"""The table of everything that reads bytes from a peer.

Owns which corpus goes with which parser, and what must hold beyond "only `PeerError`".
A run function raises what it finds; `AssertionError` is as good as any.
"""

from __future__ import annotations

import re
import tracemalloc
from contextlib import suppress
from random import Random

from tests.fuzz import broker_targets, grammar
from tests.fuzz.engine import Target
from twinbus import limits
from twinbus.errors import LimitExceeded, PeerError
from twinbus.wire.codec import decode, encode, skip
from twinbus.wire.frames import (
    HEARTBEAT,
    SASL_FRAME,
    Frame,
    FrameReader,
    Header,
    encode_frame,
)
from twinbus.wire.performatives_codec import decode_composite, encode_composite


def run_codec(data: bytes, random: Random) -> None:
    """A value decodes to something that encodes, and stays within its memory."""
    if random.random() < 0.01:
        _check_memory(data)
    value, end = decode(data, budget=limits.SECTION_NODES_MAX)
    assert skip(data) == end
    again = encode(value)
    assert len(again) <= end
    # A shorter encoding also pays for fewer elements without bytes.
    with suppress(LimitExceeded):
        second, end = decode(again, budget=limits.SECTION_NODES_MAX)
        assert end == len(again)
        assert _plain(second) == _plain(value)


def _check_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        value = decode(data, budget=limits.SECTION_NODES_MAX)
    except PeerError:
        value = None
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= 64 * len(data) + 8192, f"{peak} bytes for {len(data)}"
    del value


def run_skip(data: bytes, random: Random) -> None:
    """Skipping sees less than decoding, but never ends elsewhere."""
    end = skip(data)
    assert 0 < end <= len(data)
    assert skip(data[:end]) == end
    assert skip(b"\x40" + memoryview(data), 1) == end + 1


def run_performatives(data: bytes, random: Random) -> None:
    """A composite decodes to something that encodes to the same thing."""
    value, end = decode_composite(data)
    assert end <= len(data)
    again = encode_composite(value)
    with suppress(LimitExceeded):
        # Compared as text, because not-a-number is not equal to itself.
        assert _plain(decode_composite(again)[0]) == _plain(value)


def _plain(value: object) -> str:
    """The text of a value without the widths of its arrays, which may narrow."""
    return re.sub(r"Array\(0x[0-9a-f]{2}, ", "Array(", repr(value))


def run_frames(data: bytes, random: Random) -> None:
    """The cut of a stream changes nothing."""
    whole = _read(data, [len(data)], header=False)
    _compare_cuts(data, random, whole, header=False)
    _write_again(whole)
    _raise_failure(whole)


def run_handshake(data: bytes, random: Random) -> None:
    """The same, with the protocol headers that the start of a connection has."""
    whole = _read(data, [len(data)], header=True)
    _compare_cuts(data, random, whole, header=True)
    _raise_failure(whole)


def run_fast_path(data: bytes, random: Random) -> None:
    """The fast path gives what the general one gives; an odd header takes that."""
    size = len(data)
    fast = (size + 8).to_bytes(4, "big") + b"\x02\x00\x00\x05" + data
    general = (size + 12).to_bytes(4, "big") + b"\x03\x00\x00\x05\0\0\0\0" + data
    # Both are followed by more, which must not be read as part of them.
    rest = HEARTBEAT * random.randrange(4)

    events = _read(fast + rest, [size + 100], header=False)

    assert events == _read(general + rest, [size + 100], header=False)
    _raise_failure(events)


def _compare_cuts(data: bytes, random: Random, whole: Events, *, header: bool) -> None:
    largest = random.choice((3, 20, 200))
    sizes = [random.randint(1, largest) for _ in range(20)]
    assert _read(data, sizes, header=header) == whole
    if len(data) < 100:
        assert _read(data, [1], header=header) == whole


def _read(data: bytes, sizes: list[int], *, header: bool) -> Events:
    """All events of a stream that comes in pieces; a failure is the last of them."""
    reader = FrameReader(limits.FRAME_BYTES_MAX)
    if header:
        reader.expect_header()
    events: Events = []
    sasl_frames = position = turn = 0
    try:
        while position < len(data):
            size = sizes[turn % len(sizes)]
            reader.feed(data[position : position + size])
            position += size
            turn += 1
            while (item := reader.next()) is not None:
                events.append(Event(item))
                # As in the corpus: two SASL frames, then a header again.
                sasl_frames += isinstance(item, Frame) and item.kind == SASL_FRAME
                if header and sasl_frames == 2:
                    sasl_frames = 0
                    reader.expect_header()
    except PeerError as failure:
        events.append(Event(failure))
    return events


class Event:
    """What the reader gave, compared by its text: not-a-number differs from itself."""

    def __init__(self, item: Frame | Header | PeerError) -> None:
        self.item = item

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.item)


Events = list[Event]


def _write_again(events: Events) -> None:
    """What was read can be written, and is then read as the same."""
    for event in events:
        frame = event.item
        if not isinstance(frame, Frame):
            continue
        data = encode_frame(
            frame.channel, frame.performative, frame.payload, frame.kind
        )
        (again,) = _read(data, [len(data)], header=False)
        if not isinstance(again.item, LimitExceeded):
            assert _plain(again) == _plain(event)


def _raise_failure(events: Events) -> None:
    """Tell the engine that the input was refused."""
    if events and isinstance(events[-1].item, PeerError):
        raise events[-1].item


# name -> (corpus, run)
TARGETS: dict[str, Target] = {
    "codec": (grammar.value, run_codec),
    "skip": (grammar.value, run_skip),
    "performatives": (grammar.any_composite, run_performatives),
    "fast-path": (grammar.hot_body, run_fast_path),
    "frames": (grammar.frames, run_frames),
    "handshake": (grammar.handshake, run_handshake),
    **broker_targets.TARGETS,
}
