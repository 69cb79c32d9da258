"""Batches: many messages in one transfer, filled by bytes.

The format of the official clients: an envelope that repeats the id, the session and the
partition of its first message, then a data section for each message. The server takes
a batch whole or not at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from twinbus import limits
from twinbus.errors import MessageTooLarge, TwinbusError
from twinbus.wire.codec import encode
from twinbus.wire.message import names, sections
from twinbus.wire.types import Described, ULong

_SHORT = struct.Struct(">IB").pack
_LONG = struct.Struct(">II").pack
# Start of a data section with a length of one byte, and of four.
_DATA_SHORT = 0x005375A0
_DATA_LONG = 0x005375B0
# What a section adds to its message, with a length of one byte, and of four.
_SECTION_BYTES_SHORT = 5
_SECTION_BYTES = 8


class Parcel(NamedTuple):
    """One transfer: a message as it is, or a batch."""

    payload: bytes
    form: int
    # The place of its first message among those given, and how many it holds.
    first: int
    length: int


class Room(NamedTuple):
    """What a link takes, in bytes."""

    message_bytes_max: int
    batch_bytes_max: int


def pack(messages: Sequence[bytes], room: Room) -> Iterator[Parcel]:
    """Put messages into as few transfers as they fit in, in their order.

    `MessageTooLarge` comes before the first one if any of them does not fit.
    """
    for place, message in enumerate(messages):
        if len(message) > room.message_bytes_max:
            raise MessageTooLarge(
                f"Message {place} has {len(message)} bytes; the entity takes at most "
                f"{room.message_bytes_max}."
            )
    first = 0
    while first < len(messages):
        head = _envelope(messages[first])
        last = _fill(messages, first, len(head), room.batch_bytes_max)
        if last - first == 1:
            yield Parcel(messages[first], 0, first, 1)
        else:
            payload = _join(head, messages[first:last])
            yield Parcel(payload, sections.BATCH_FORMAT, first, last - first)
        first = last


def _fill(messages: Sequence[bytes], first: int, size: int, bytes_max: int) -> int:
    """Where the batch that starts with `first` ends: at least one message behind it."""
    most = min(len(messages), first + limits.BATCH_MESSAGES_MAX)
    last = first
    while last < most:
        length = len(messages[last])
        size += length + (_SECTION_BYTES_SHORT if length < 256 else _SECTION_BYTES)
        if size > bytes_max and last > first:
            break
        last += 1
    return last


def _join(head: bytes, messages: Sequence[bytes]) -> bytes:
    parts = [head]
    for message in messages:
        size = len(message)
        if size < 256:
            parts.append(_SHORT(_DATA_SHORT, size))
        else:
            parts.append(_LONG(_DATA_LONG, size))
        parts.append(message)
    return b"".join(parts)


def _envelope(first: bytes) -> bytes:
    """What a service reads before it looks at the messages."""
    try:
        message = sections.parse(first)
    except TwinbusError:
        # The server finds the words for what is wrong with it.
        return b""
    head = b""
    if message.partition_key is not None:
        value = {names.PARTITION_KEY: message.partition_key}
        head += _section(sections.MESSAGE_ANNOTATIONS, value)
    fields: list[Any] = [message.message_id]
    if message.session_id is not None:
        fields += [None] * (sections.GROUP_ID - 1) + [message.session_id]
    if fields != [None]:
        head += _section(sections.PROPERTIES, fields)
    return head


def _section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))
