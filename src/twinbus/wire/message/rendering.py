"""Messages on their way out: the broker's header and annotations before the bare bytes.

Nearly every delivery has the same shape, which `render_locked` packs in one go;
`render` writes any. The bare message follows as it was sent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache

from twinbus.wire.codec import encode
from twinbus.wire.message import names
from twinbus.wire.message.sections import (
    DURABLE,
    FIRST,
    HAS_PRIORITY,
    HAS_TTL,
    HEAD,
    NOT_DURABLE,
    NOT_FIRST,
    SHORT_HEADS,
    split_annotations,
)

KEY_SEQUENCE = encode(names.SEQUENCE_NUMBER) + b"\x81"
KEY_ENQUEUED = encode(names.ENQUEUED_TIME) + b"\x83"
KEY_ORIGIN = encode(names.ENQUEUE_SEQUENCE_NUMBER) + b"\x81"
KEY_LOCKED = encode(names.LOCKED_UNTIL) + b"\x83"
KEY_STATE = encode(names.MESSAGE_STATE) + b"\x54"
KEY_SOURCE = encode(names.DEAD_LETTER_SOURCE)
_LOCK_TOKEN = encode(names.LOCK_TOKEN) + b"\x98"
TOKEN_SECTION = b"\x00\x53\x71\xc1" + bytes((len(_LOCK_TOKEN) + 17, 2)) + _LOCK_TOKEN
_DELIVERY_START = b"\x00\x53\x71\xd1"
_DELIVERY_NONE = b"\x00\x53\x71\xc1\x01\x00"
ANNOTATIONS_START = b"\x00\x53\x72\xd1"
_SIZES = struct.Struct(">II")

# Token and annotations in the shape that nearly every delivery has; the second is that
# of a copy for a subscription, which also has its number at the topic.
_HOT_A = TOKEN_SECTION
_HOT_KEYS = (KEY_SEQUENCE, KEY_ENQUEUED, KEY_LOCKED)
_COPY_KEYS = (KEY_SEQUENCE, KEY_ENQUEUED, KEY_ORIGIN, KEY_LOCKED)


def _start(keys: tuple[bytes, ...]) -> bytes:
    """The annotations up to the first value, if all values have eight bytes."""
    size = 4 + sum(len(key) + 8 for key in keys)
    return ANNOTATIONS_START + _SIZES.pack(size, 2 * len(keys)) + keys[0]


def _layout(keys: tuple[bytes, ...]) -> struct.Struct:
    pairs = "".join(f"{len(key)}sq" for key in keys[1:])
    return struct.Struct(f">{len(_HOT_A)}sQQ{len(_start(keys))}sq{pairs}")


_HOT_B = _start(_HOT_KEYS)
_HOT = _layout(_HOT_KEYS).pack
_COPY_B = _start(_COPY_KEYS)
_COPY = _layout(_COPY_KEYS).pack

_LONG = struct.Struct(">q").pack
_ULONG = struct.Struct(">Q").pack
_BOOLEANS = {None: b"\x40", True: b"\x41", False: b"\x42"}


def _header(
    durable: bool | None,
    priority: int | None,
    ttl: int | None,
    first: bool | None,
    count: int,
) -> bytes:
    fields = (
        _BOOLEANS[durable],
        (b"\x40" if priority is None else bytes((0x50, priority))),
        (b"\x40" if ttl is None else b"\x70" + ttl.to_bytes(4, "big")),
        _BOOLEANS[first],
        # Written out even when 0: the SDKs read it as it stands.
        (
            b"\x52" + bytes((count,))
            if count < 256
            else b"\x70" + count.to_bytes(4, "big")
        ),
    )
    body = b"".join(fields)
    return b"\x00\x53\x70\xc0" + bytes((len(body) + 1, 5)) + body


def _said(flags: int, yes: int, no: int) -> bool | None:
    """What the sender has said of a field, if anything."""
    return True if flags & yes else False if flags & no else None


# The headers of usual heads, by the number of deliveries.
_HEADERS = {
    head: [
        _header(
            _said(flags, DURABLE, NOT_DURABLE),
            None,
            None,
            _said(flags, FIRST, NOT_FIRST),
            count,
        )
        for count in range(256)
    ]
    for flags, head in SHORT_HEADS.items()
}


class BrokerFields:
    """What the broker adds to a message on its way out."""

    __slots__ = (
        "deliveries",
        "enqueued_ms",
        "locked_until_ms",
        "origin",
        "sequence",
        "source",
        "state",
        "token",
        "ttl_ms",
    )

    def __init__(self, sequence: int, enqueued_ms: int, deliveries: int) -> None:
        self.sequence = sequence
        self.enqueued_ms = enqueued_ms
        self.deliveries = deliveries
        # Its number at the entity that it was sent to, if it was forwarded from there.
        self.origin: int | None = None
        self.state: int | None = None
        self.source: str | None = None
        # Empty: delivered without a lock. None: only shown.
        self.token: bytes | None = None
        self.locked_until_ms: int | None = None
        # What the broker grants; None shows what the sender asked for.
        self.ttl_ms: int | None = None


def render_locked(
    numbers: tuple[int, int, int],
    token: tuple[int, int],
    until_ms: int,
    head: bytes,
    origin: int | None = None,
) -> bytes | None:
    """Everything before the bare bytes of a locked delivery, for the usual head.

    `numbers` are sequence, enqueued time and deliveries; the token is in two halves.
    None if the head has more in it: then `render` is the way.
    """
    sequence, enqueued_ms, deliveries = numbers
    high, low = token
    headers = _HEADERS.get(head)
    if headers is None or deliveries > 255:
        return None
    if origin:
        return headers[deliveries] + _COPY(
            _HOT_A,
            high,
            low,
            _COPY_B,
            sequence,
            KEY_ENQUEUED,
            enqueued_ms,
            KEY_ORIGIN,
            origin,
            KEY_LOCKED,
            until_ms,
        )
    return headers[deliveries] + _HOT(
        _HOT_A,
        high,
        low,
        _HOT_B,
        sequence,
        KEY_ENQUEUED,
        enqueued_ms,
        KEY_LOCKED,
        until_ms,
    )


def render_locked_run(
    ids: Sequence[int],
    sequences: Sequence[int],
    stamp: tuple[int, int, int],
    head: bytes,
    origins: Sequence[int] | None = None,
) -> list[bytes] | None:
    """The same for locked messages that were never delivered and are alike.

    The lock tokens are the ids and one nonce; `stamp` has it, the enqueued time and the
    end of the locks.
    """
    headers = _HEADERS.get(head)
    if headers is None or (origins is not None and not origins[0]):
        return None
    nonce, enqueued_ms, until_ms = stamp
    start = headers[0] + TOKEN_SECTION
    enqueued = KEY_ENQUEUED + _LONG(enqueued_ms)
    locked = KEY_LOCKED + _LONG(until_ms)
    if origins is None:
        middle = _ULONG(nonce) + _HOT_B
        end = enqueued + locked
        pack = _run_layout(len(start), len(middle), len(end))
        return [
            pack(start, key, middle, sequence, end)
            for key, sequence in zip(ids, sequences, strict=True)
        ]
    middle = _ULONG(nonce) + _COPY_B
    enqueued += KEY_ORIGIN
    pack = _run_layout(len(start), len(middle), len(enqueued), len(locked))
    return [
        pack(start, key, middle, sequence, enqueued, origin, locked)
        for key, sequence, origin in zip(ids, sequences, origins, strict=True)
    ]


@cache
def _run_layout(*sizes: int) -> Callable[..., bytes]:
    """Packs pieces of these sizes with a number between any two."""
    return struct.Struct(">" + "q".join(f"{size}s" for size in sizes)).pack


def render(out: BrokerFields, head: bytes, bare: bytes) -> bytes:
    """A message as it goes out."""
    flags = priority = ttl = count = delivery_count = 0
    pairs = delivery = b""
    if head:
        flags, priority, ttl, count = HEAD.unpack_from(head)
        delivery_count, delivery, pairs = split_annotations(head)
    if out.ttl_ms is not None:
        flags |= HAS_TTL
        # The field is no larger; the SDKs cut longer times in the same way.
        ttl = min(out.ttl_ms, 0xFFFFFFFF)
    parts = [
        _header(
            _said(flags, DURABLE, NOT_DURABLE),
            priority if flags & HAS_PRIORITY else None,
            ttl if flags & HAS_TTL else None,
            _said(flags, FIRST, NOT_FIRST),
            out.deliveries,
        )
    ]
    parts.append(_delivery_section(out.token, delivery_count, delivery))
    own = [
        KEY_SEQUENCE + out.sequence.to_bytes(8, "big"),
        KEY_ENQUEUED + out.enqueued_ms.to_bytes(8, "big", signed=True),
    ]
    if out.origin is not None:
        own.append(KEY_ORIGIN + out.origin.to_bytes(8, "big"))
    if out.locked_until_ms is not None:
        own.append(KEY_LOCKED + out.locked_until_ms.to_bytes(8, "big"))
    if out.state is not None:
        own.append(KEY_STATE + bytes((out.state,)))
    if out.source is not None:
        own.append(KEY_SOURCE + encode(out.source))
    body = b"".join(own) + pairs
    elements = 2 * (len(own) + count)
    parts.append(ANNOTATIONS_START + _SIZES.pack(len(body) + 4, elements) + body)
    parts.append(bare)
    return b"".join(parts)


def _delivery_section(token: bytes | None, count: int, pairs: bytes) -> bytes:
    """The lock token and what the sender has set."""
    if not count:
        if token is None:
            return b""
        return TOKEN_SECTION + token if token else _DELIVERY_NONE
    if token:
        pairs = _LOCK_TOKEN + token + pairs
        count += 1
    return _DELIVERY_START + _SIZES.pack(len(pairs) + 4, 2 * count) + pairs
