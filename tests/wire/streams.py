"""Byte streams for tests of the frame reader.

Owns the reading of a whole stream with its verdict, and frames with odd headers.
"""

from __future__ import annotations

from typing import Any

from twinbus import limits
from twinbus.errors import PeerError
from twinbus.wire.frames import FrameReader

FRAME_BYTES = limits.FRAME_BYTES_MAX


def reader_of(data: bytes, max_frame_bytes: int = FRAME_BYTES) -> FrameReader:
    reader = FrameReader(max_frame_bytes)
    reader.feed(data)
    return reader


def drain(reader: FrameReader) -> list[Any]:
    """All frames that are there, and the failure that ends them, if there is one."""
    events: list[Any] = []
    try:
        while (item := reader.next()) is not None:
            events.append(item)
    except PeerError as failure:
        events.append((type(failure), failure.text))
    return events


def frame_bytes(body: bytes, doff: int = 2, kind: int = 0, channel: int = 0) -> bytes:
    size = 4 * doff + len(body)
    head = size.to_bytes(4, "big") + bytes((doff, kind)) + channel.to_bytes(2, "big")
    return head + bytes(4 * (doff - 2)) + body
