"""The three performatives that come with every message, decoded by hand.

Owns speed and nothing else: each function gives exactly what `decode_composite` would,
or None. Then the caller asks `decode_composite`, which also finds the words for what
is wrong. So these know the usual encodings only, raise nothing, and never judge.

A function gets the buffer, where the first field starts, where the list ends, and the
number of fields. The list must lie within the buffer.
"""

from __future__ import annotations

import struct
from itertools import product
from typing import Any

from twinbus.limits import DELIVERY_TAG_BYTES_MAX
from twinbus.wire.performatives import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Disposition,
    Flow,
    Transfer,
)

_UINT32 = struct.Struct(">I").unpack_from
# A delivery id, and the constructor and size of the tag behind it.
_ID_AND_TAG = struct.Struct(">IBB").unpack_from

_new = Transfer.__new__


# -- the ends of lists ---------------------------------------------------------------
# The last fields have few values, so they are looked up as one piece. An encoder
# writes booleans in one of two ways, with or without a byte of their own.

_NULL = b"\x40"
_BOOLEAN_STYLES = ((b"\x41", b"\x42"), (b"\x56\x01", b"\x56\x00"))


def _transfer_tails() -> dict[bytes, tuple[int, bool, bool, bool]]:
    """Encoded fields from `settled` on: their number, settled, more, batchable."""
    tails: dict[bytes, tuple[int, bool, bool, bool]] = {}
    for true, false in _BOOLEAN_STYLES:
        any_boolean = (_NULL, false, true)
        no = (_NULL, false)
        no_more = (_NULL,) * 7
        choices = (any_boolean, any_boolean, (_NULL,), (_NULL,), no, no, any_boolean)
        for count in range(8):
            for parts in product(*choices[:count]):
                settled, more, *_, batchable = (*parts, *no_more[count:])
                flags = (settled == true, more == true, batchable == true)
                tails[b"".join(parts)] = (count, *flags)
    return tails


def _disposition_tails() -> dict[bytes, tuple[int, bool, DeliveryState | None, bool]]:
    """Encoded fields from `settled` on: their number, settled, state, batchable."""
    states: dict[bytes, DeliveryState | None] = {
        _NULL: None,
        b"\x00\x53\x24\x45": ACCEPTED,
        b"\x00\x53\x24\xc0\x01\x00": ACCEPTED,
        b"\x00\x53\x26\x45": RELEASED,
        b"\x00\x53\x26\xc0\x01\x00": RELEASED,
    }
    tails: dict[bytes, tuple[int, bool, DeliveryState | None, bool]] = {}
    for true, false in _BOOLEAN_STYLES:
        for settled, (code, state) in product((_NULL, false, true), states.items()):
            start = settled + code
            tails[start] = (2, settled == true, state, False)
            for batchable in (_NULL, false, true):
                tails[start + batchable] = (
                    3,
                    settled == true,
                    state,
                    batchable == true,
                )
    return tails


def _flow_tails() -> dict[bytes, tuple[int, bool, bool]]:
    """Encoded fields from `drain` on: their number, drain, echo."""
    tails: dict[bytes, tuple[int, bool, bool]] = {}
    for true, false in _BOOLEAN_STYLES:
        any_boolean = (_NULL, false, true)
        choices = (any_boolean, any_boolean, (_NULL,))
        for count in range(4):
            for parts in product(*choices[:count]):
                drain = count > 0 and parts[0] == true
                echo = count > 1 and parts[1] == true
                tails[b"".join(parts)] = (count, drain, echo)
    return tails


_TRANSFER_TAILS = _transfer_tails()
_DISPOSITION_TAILS = _disposition_tails()
_FLOW_TAILS = _flow_tails()
_EIGHT = range(8)
_EIGHT_NULLS = [None] * 8


# -- decoding ------------------------------------------------------------------------


def fast_transfer(buffer: bytes, p: int, end: int, count: int) -> Transfer | None:
    """Decode a transfer that has an id, a tag and a format, and carries no state."""
    try:
        code = buffer[p]
        if code == 0x52:
            handle = buffer[p + 1]
            p += 2
        elif code == 0x43:
            handle = 0
            p += 1
        elif code == 0x70:
            handle = _UINT32(buffer, p + 1)[0]
            p += 5
        else:
            return None
        code = buffer[p]
        if code == 0x70:
            delivery_id, code, size = _ID_AND_TAG(buffer, p + 1)
            p += 7
        elif code == 0x52:
            delivery_id = buffer[p + 1]
            code = buffer[p + 2]
            size = buffer[p + 3]
            p += 4
        elif code == 0x43:
            delivery_id = 0
            code = buffer[p + 1]
            size = buffer[p + 2]
            p += 3
        else:
            return None
        if code != 0xA0 or size > DELIVERY_TAG_BYTES_MAX:
            return None
        tag_end = p + size
        code = buffer[tag_end]
        if code == 0x43:
            message_format = 0
            tail = _TRANSFER_TAILS.get(buffer[tag_end + 1 : end])
        elif code == 0x70:
            message_format = _UINT32(buffer, tag_end + 1)[0]
            tail = _TRANSFER_TAILS.get(buffer[tag_end + 5 : end])
        else:
            return None
    except (IndexError, struct.error):
        return None
    if tail is None or tail[0] != count - 4:
        return None
    transfer = _new(Transfer)
    transfer.handle = handle
    transfer.delivery_id = delivery_id
    transfer.delivery_tag = buffer[p:tag_end]
    transfer.message_format = message_format
    _, transfer.settled, transfer.more, transfer.batchable = tail
    transfer.rcv_settle_mode = None
    transfer.state = None
    transfer.resume = False
    transfer.aborted = False
    return transfer


def fast_disposition(buffer: bytes, p: int, end: int, count: int) -> Disposition | None:
    """Decode a disposition that accepts, releases or only settles."""
    try:
        code = buffer[p]
        if code == 0x56:
            p += 1
            code = 0x42 - buffer[p]
        if code not in (0x41, 0x42):
            return None
        role = code == 0x41
        code = buffer[p + 1]
        if code == 0x70:
            first = _UINT32(buffer, p + 2)[0]
            p += 6
        elif code == 0x52:
            first = buffer[p + 2]
            p += 3
        elif code == 0x43:
            first = 0
            p += 2
        else:
            return None
        last: int | None
        code = buffer[p]
        if code == 0x70:
            last = _UINT32(buffer, p + 1)[0]
            p += 5
        elif code == 0x40:
            last = None
            p += 1
        elif code == 0x52:
            last = buffer[p + 1]
            p += 2
        elif code == 0x43:
            last = 0
            p += 1
        else:
            return None
    except (IndexError, struct.error):
        return None
    tail = _DISPOSITION_TAILS.get(buffer[p:end])
    if tail is None or tail[0] != count - 3:
        return None
    return Disposition(role, first, last, tail[1], tail[2], tail[3])


def fast_flow(buffer: bytes, p: int, end: int, count: int) -> Flow | None:
    """Decode a flow without properties."""
    numbers: list[Any] = []
    append = numbers.append
    try:
        for _ in _EIGHT if count > 8 else range(count):
            code = buffer[p]
            if code == 0x70:
                append(_UINT32(buffer, p + 1)[0])
                p += 5
            elif code == 0x52:
                append(buffer[p + 1])
                p += 2
            elif code == 0x43:
                append(0)
                p += 1
            elif code == 0x40:
                append(None)
                p += 1
            else:
                return None
    except (IndexError, struct.error):
        return None
    if count < 8:
        numbers += _EIGHT_NULLS[count:]
    # The last number may have reached beyond the list; then the tail looks empty.
    tail = _FLOW_TAILS.get(buffer[p:end]) if p <= end else None
    if tail is None or tail[0] != max(count, 8) - 8 or None in numbers[1:4]:
        return None
    numbers += tail[1:]
    return Flow(*numbers)
