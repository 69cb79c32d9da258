"""The usual message of a backlog queue, read and restored by hand.

Owns speed and nothing else. `fast_stamp` reads what the broker wrote on a delivery, and
`fast_restore` makes the bytes that `envelope.py` would make, or they say that they
cannot; then the slow way decides, and finds the words for what is wrong. Usual is what
our own server delivers: its header, its four annotations first, then properties, short
application properties with our aliases last, and a body. So this raises nothing and
never judges.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

from twinbus.errors import PeerError
from twinbus.pairing.rules.envelope import (
    ALIASES,
    DIVERTED_AT,
    ESCAPE,
    HEADER_TTL_MS_MAX,
    PATH,
    SESSION_ID,
    TICKS_PER_MS,
    TIME_TO_LIVE,
    TIMESPAN,
)
from twinbus.wire.codec import decode, encode
from twinbus.wire.message import names
from twinbus.wire.message.sections import GROUP_ID
from twinbus.wire.types import UInt


class Stamp(NamedTuple):
    """What the broker wrote on a delivery. All times are by its clock."""

    sequence: int
    enqueued_ms: int
    locked_until_ms: int
    # How often it was delivered before.
    deliveries: int


_HEADER = b"\x00\x53\x70\xc0"
_HEADER_FIELDS = 5
_HEADER_FIELDS_OF_SENDER = 3
_COUNT = 4
_TOKEN = b"\x00\x53\x71\xc1" + bytes((36, 2)) + encode(names.LOCK_TOKEN)
_TOKEN_BYTES = len(_TOKEN) + 17
_ANNOTATIONS = b"\x00\x53\x72\xd1"
_SEQUENCE = encode(names.SEQUENCE_NUMBER) + b"\x81"
_ENQUEUED = encode(names.ENQUEUED_TIME) + b"\x83"
_ORIGIN = encode(names.ENQUEUE_SEQUENCE_NUMBER) + b"\x81"
_LOCKED = encode(names.LOCKED_UNTIL) + b"\x83"
# Section, size, count, and the four pairs that the broker writes first.
_BROKERS = struct.Struct(
    f">4sII{len(_SEQUENCE)}sq{len(_ENQUEUED)}sq{len(_ORIGIN)}sq{len(_LOCKED)}sq"
)
_read_brokers = _BROKERS.unpack_from
_BROKERS_ELEMENTS = 8
_PROPERTIES = b"\x00\x53\x73\xc0"
_APPLICATION = b"\x00\x53\x74\xc1"
_DATA = b"\x00\x53\x75"
_SIZE = struct.Struct(">I").unpack_from
_LONG = struct.Struct(">q").unpack_from
_PING = names.PING_CONTENT_TYPE.encode("ascii")
# Names of aliases, with the first byte of their usual value.
_PATH_KEY = encode(PATH) + b"\xa1"
_SESSION_KEY = encode(SESSION_ID) + b"\xa1"
_TTL_KEY = encode(TIME_TO_LIVE) + b"\x00" + encode(TIMESPAN) + b"\x81"
# Our aliases end with the time of the diversion, whose value is a timestamp.
_DIVERTED_KEY = encode(DIVERTED_AT) + b"\x83"
_DIVERTED_BYTES = len(_DIVERTED_KEY) + 8
# Bytes of values that have a fixed size.
_WIDTHS = {
    **dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44, 0x45), 1),
    **dict.fromkeys((0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56), 2),
    **dict.fromkeys((0x60, 0x61), 3),
    **dict.fromkeys((0x70, 0x71, 0x72, 0x73), 5),
    **dict.fromkeys((0x80, 0x81, 0x82, 0x83), 9),
    0x98: 17,
}
_SHORT = frozenset((0xA0, 0xA1, 0xA3))


def fast_stamp(payload: bytes) -> Stamp | None:
    """What the broker wrote; None if it has another shape."""
    if payload[:4] != _HEADER:
        return None
    p = 5 + payload[4]
    header = _header(payload[3:p])
    if header is None or payload[p : p + len(_TOKEN)] != _TOKEN:
        return None
    try:
        fields = _read_brokers(payload, p + _TOKEN_BYTES)
    except struct.error:
        return None
    kind, _, _, key_1, sequence, key_2, enqueued_ms, _, _, key_4, until_ms = fields
    if kind != _ANNOTATIONS or key_1 != _SEQUENCE:
        return None
    if key_2 != _ENQUEUED or key_4 != _LOCKED:
        return None
    return Stamp(sequence, enqueued_ms, until_ms, header[1])


def fast_restore(
    payload: bytes, now_ms: int, restarts_ttl: bool
) -> tuple[str, bytes] | None:
    """Destination and restored message, if nothing about it needs thought.

    What expired needs thought, and so do schedules, partition keys and pings.
    """
    try:
        if payload[:4] != _HEADER:
            return None
        p = 5 + payload[4]
        header = _header(payload[3:p])
        if header is None or payload[p : p + len(_TOKEN)] != _TOKEN:
            return None
        p += _TOKEN_BYTES
        fields = _read_brokers(payload, p)
        p += 8 + fields[1]
        if fields[0] != _ANNOTATIONS or fields[2] != _BROKERS_ELEMENTS:
            return None
        if (fields[3], fields[5], fields[7], fields[9]) != _BROKERS_KEYS:
            return None
        middle = p
        if payload[p : p + 4] == _PROPERTIES:
            p += 5 + payload[p + 4]
        aliases = _read_application(payload, p)
        if aliases is None:
            return None
        own, path, session, ttl_ms, diverted_ms, body = aliases
        start = header[0]
        if ttl_ms is not None:
            if not restarts_ttl:
                ttl_ms -= max(now_ms - diverted_ms, 0)
            if not _TTL_MS_MIN <= ttl_ms <= HEADER_TTL_MS_MAX:
                return None
            start = header[2] + ttl_ms.to_bytes(4, "big")
        properties = _restore_properties(payload, middle, p, session)
        if properties is None:
            return None
        return path, b"".join((start, properties, own, payload[body:]))
    except (IndexError, struct.error):
        return None


_BROKERS_KEYS = (_SEQUENCE, _ENQUEUED, _ORIGIN, _LOCKED)
# Shorter ones are encoded in fewer bytes.
_TTL_MS_MIN = 256


def _read_application(
    payload: bytes, p: int
) -> tuple[bytes, str, bytes | None, int | None, int, int] | None:
    """Read the section at `p`: the user's part of it, our aliases, where it ends.

    Our own aliases are the last ones, and always in the same order.
    """
    if payload[p : p + 4] != _APPLICATION:
        return None
    body = p + 5 + payload[p + 4]
    tail = body - _DIVERTED_BYTES
    count = payload[p + 5]
    if payload[tail : tail + len(_DIVERTED_KEY)] != _DIVERTED_KEY:
        return None
    if not _is_one_body(payload, body):
        return None
    p += 6
    start = p
    users = 0
    while payload[p : p + len(_PATH_KEY)] != _PATH_KEY:
        p = _after_pair(payload, p)
        users += 2
        if not 0 <= p < tail:
            return None
    own = payload[start:p]
    if own:
        own = _APPLICATION + bytes((len(own) + 1, users)) + own
    p += len(_PATH_KEY)
    end = p + 1 + payload[p]
    path = _path(payload[p + 1 : end])
    count -= users + 4
    p = end
    session: bytes | None = None
    if payload[p : p + len(_SESSION_KEY)] == _SESSION_KEY:
        p += len(_SESSION_KEY)
        end = p + 1 + payload[p]
        session = payload[p - 1 : end]
        count -= 2
        p = end
    ttl_ms: int | None = None
    if payload[p : p + len(_TTL_KEY)] == _TTL_KEY:
        p += len(_TTL_KEY) + 8
        ttl_ms = _LONG(payload, p - 8)[0] // TICKS_PER_MS
        count -= 2
    if p != tail or count or not path:
        return None
    return own, path, session, ttl_ms, _LONG(payload, body - 8)[0], body


def _restore_properties(
    payload: bytes, p: int, end: int, session: bytes | None
) -> bytes | None:
    """The properties section from `p` to `end`, with the session put in."""
    if p == end:
        return b"" if session is None else None
    start = p
    count = payload[p + 5]
    session_at = 0
    p += 6
    for index in range(count):
        kind = payload[p]
        if index == GROUP_ID:
            session_at = p
        if kind == 0x40:
            p += 1
        elif kind in _SHORT:
            p += 2 + payload[p + 1]
        elif kind in _WIDTHS:
            p += _WIDTHS[kind]
        else:
            return None
    properties = payload[start:end]
    if p != end or _PING in properties:
        return None
    if session is None:
        return properties
    size = payload[start + 4] + len(session) - 1
    if not session_at or payload[session_at] != 0x40 or size > 255:
        return None
    try:
        str(session[2:], "utf-8")
    except UnicodeDecodeError:
        return None
    return b"".join(
        (
            _PROPERTIES,
            bytes((size, count)),
            payload[start + 6 : session_at],
            session,
            payload[session_at + 1 : end],
        )
    )


def _after_pair(payload: bytes, p: int) -> int:
    """Where the user's property at `p` ends; -1 if it needs thought."""
    if payload[p] != 0xA1:
        return -1
    start = p
    p += 2 + payload[p + 1]
    if not _is_users(payload[start:p]):
        return -1
    kind = payload[p]
    if kind in _SHORT:
        return p + 2 + payload[p + 1]
    return p + _WIDTHS[kind] if kind in _WIDTHS else -1


def _is_one_body(payload: bytes, p: int) -> bool:
    """Whether one data section fills the rest."""
    if payload[p : p + 3] != _DATA:
        return False
    if payload[p + 3] == 0xB0:
        end = p + 8 + _SIZE(payload, p + 4)[0]
    elif payload[p + 3] == 0xA0:
        end = p + 5 + payload[p + 4]
    else:
        return False
    return bool(end == len(payload))


# A broker writes few different headers, and senders repeat names and paths.
@lru_cache(1024)
def _header(encoded: bytes) -> tuple[bytes, int, bytes] | None:
    """The sender's part of a header, the delivery count, and that part again.

    The last one is up to the time to live, which follows in four bytes.
    """
    try:
        fields: Any = decode(encoded)[0]
    except PeerError:
        return None
    if len(fields) != _HEADER_FIELDS or not isinstance(fields[_COUNT], int):
        return None
    senders = encode(fields[:_HEADER_FIELDS_OF_SENDER])
    with_ttl = encode([fields[0], fields[1], UInt(HEADER_TTL_MS_MAX)])
    start = b"\x00\x53\x70"
    return start + senders, int(fields[_COUNT]), start + with_ttl[:-4]


@lru_cache(1024)
def _is_users(encoded: bytes) -> bool:
    """Whether a name is neither an alias nor escaped."""
    try:
        lower = decode(encoded)[0].lower()
    except PeerError:
        return False
    return lower not in ALIASES and not lower.startswith(ESCAPE)


@lru_cache(4096)
def _path(encoded: bytes) -> str | None:
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError:
        return None
