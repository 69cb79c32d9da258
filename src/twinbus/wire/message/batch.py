"""Batches: many messages in one transfer, filled by bytes.

The format of the official clients: an envelope that repeats the id, the session and the
partition of its first message, then a data section for each message. The server takes
a batch whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from twinbus import limits
from twinbus.errors import MessageTooLarge, TwinbusError
from twinbus.wire.message import names, sections
from twinbus.wire.message.writing import data_start, section


class Parcel(NamedTuple):
    """One transfer: a message as it is, or a batch."""

    payload: bytes
    form: int
    # The place of its first message among those given, and how many it holds.
    first: int
    length: int


class LinkLimits(NamedTuple):
    """What a link takes, in bytes."""

    message_bytes_max: int
    batch_bytes_max: int


def pack(messages: Sequence[bytes], room: LinkLimits) -> Iterator[Parcel]:
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
        pieces = _fill(messages, first, room.batch_bytes_max)
        count = len(pieces) // 2
        if count == 1:
            yield Parcel(messages[first], 0, first, 1)
        else:
            yield Parcel(b"".join(pieces), sections.BATCH_FORMAT, first, count)
        first += count


def _fill(messages: Sequence[bytes], first: int, bytes_max: int) -> list[bytes]:
    """A batch that starts with `first`: its envelope, then two pieces per message."""
    head = _envelope(messages[first])
    pieces = [head]
    size = len(head)
    for message in messages[first : first + limits.BATCH_MESSAGES_MAX]:
        start = data_start(len(message))
        size += len(start) + len(message)
        if size > bytes_max and len(pieces) > 1:
            break
        pieces.append(start)
        pieces.append(message)
    return pieces


def _envelope(first: bytes) -> bytes:
    """What a service reads before it looks at the messages."""
    try:
        message = sections.parse(first)
    except TwinbusError:
        # Send it without hints: the server refuses it and says what is wrong.
        return b""
    head = b""
    if message.partition_key is not None:
        value = {names.PARTITION_KEY: message.partition_key}
        head += section(sections.MESSAGE_ANNOTATIONS, value)
    fields: list[Any] = [message.message_id]
    if message.session_id is not None:
        fields += [None] * (sections.GROUP_ID - 1) + [message.session_id]
    if fields != [None]:
        head += section(sections.PROPERTIES, fields)
    return head
