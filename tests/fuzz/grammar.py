"""Random AMQP in every legal encoding, and a little that is not.

Owns the corpora of the wire: values, performatives, frames and streams of frames. The
table of performatives drives it, so a new field is fuzzed without a change here.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from twinbus.wire import field_kinds, performatives_codec
from twinbus.wire.frames import AMQP_HEADER, HEARTBEAT, SASL_HEADER
from twinbus.wire.performatives_codec import SPECS

Make = Callable[[Random], bytes]

_WIDTHS = {0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SCALARS = (
    *(0x40, 0x41, 0x42, 0x43, 0x44, 0x45),
    *(0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x60, 0x61),
    *(0x70, 0x71, 0x72, 0x73, 0x74, 0x80, 0x81, 0x82, 0x83, 0x84, 0x94, 0x98),
    *(0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3),
)
_COMPOUNDS = (0x00, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0)
_TEXTS = ("", "a", "q1/$management", "é", "amqp:accepted:list", "\U0001f600", "x" * 260)


# -- values --------------------------------------------------------------------------


def value(random: Random, depth: int = 4) -> bytes:
    """Any value with its constructor."""
    codes = _SCALARS if depth <= 0 or random.random() < 0.6 else _COMPOUNDS
    code = random.choice(codes)
    return bytes((code,)) + content(random, code, depth)


def content(random: Random, code: int, depth: int) -> bytes:
    """What follows a constructor."""
    half = code >> 4
    if code == 0x00:
        return _descriptor(random) + value(random, depth - 1)
    if half == 0x4:
        return b""
    if code == 0x56:
        return random.choice((b"\x00", b"\x01"))
    if code == 0x73:
        return random.choice(("a", "é", "\U0001f600")).encode("utf-32-be")
    if half in _WIDTHS:
        width = _WIDTHS[half]
        return random.choice((bytes(width), random.randbytes(width), b"\xff" * width))
    if half in {0xA, 0xB}:
        return _sized(random, code)
    return _compound(random, code, depth)


def _descriptor(random: Random) -> bytes:
    return random.choice(
        (
            b"\x53" + bytes((random.choice(list(SPECS)),)),
            b"\x80" + random.randbytes(8),
            b"\xa3\x04a:b:",
            b"\x53" + random.randbytes(1),
        )
    )


def _sized(random: Random, code: int) -> bytes:
    text = random.choice(_TEXTS)
    body = text.encode("ascii", "replace") if code & 0xF == 3 else text.encode()
    if code & 0xF == 0 and random.random() < 0.5:
        body = random.randbytes(random.choice((1, 4, 16, 32, 33)))
    if code < 0xB0:
        # Only the text of ASCII letters is longer, so no character is cut in two.
        return bytes((len(body[:255]),)) + body[:255]
    return len(body).to_bytes(4, "big") + body


def _compound(random: Random, code: int, depth: int) -> bytes:
    count = random.choice((0, 1, 2, 3, 4))
    if code & 0xF0 in {0xE0, 0xF0}:
        element = random.choice((*_SCALARS, 0xC0, 0xC1, 0xD0, 0xE0))
        body = bytes((element,))
        body += b"".join(content(random, element, depth - 1) for _ in range(count))
    else:
        count += count & 1 if code & 1 else 0
        body = b"".join(value(random, depth - 1) for _ in range(count))
    return extent(body, count, wide=code & 0x10 != 0)


def extent(body: bytes, count: int, *, wide: bool) -> bytes:
    """Size, count and body. A short form that is too short is left to be wrong."""
    if wide:
        return (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body
    return bytes(((len(body) + 1) & 0xFF, count & 0xFF)) + body


# -- performatives -------------------------------------------------------------------


def _boolean(random: Random) -> bytes:
    return random.choice((b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"))


def _ubyte(random: Random) -> bytes:
    return b"\x50" + bytes((random.choice((0, 1, 2, 255)),))


def _ushort(random: Random) -> bytes:
    return b"\x60" + random.randbytes(2)


def _uint(random: Random) -> bytes:
    return random.choice((b"\x43", b"\x52\x05", b"\x70" + random.randbytes(4)))


def _ulong(random: Random) -> bytes:
    return random.choice((b"\x44", b"\x53\x05", b"\x80" + random.randbytes(8)))


def _coded(*codes: int) -> Make:
    def make(random: Random) -> bytes:
        code = random.choice(codes)
        return bytes((code,)) + content(random, code, 2)

    return make


def _symbols(random: Random) -> bytes:
    if random.random() < 0.3:
        return _symbol(random)
    count = random.randrange(4)
    body = b"\xa3" + b"\x01a" * count
    wide = random.random() < 0.5
    return (b"\xf0" if wide else b"\xe0") + extent(body, count, wide=wide)


def _tag(random: Random) -> bytes:
    tag = random.randbytes(random.choice((0, 1, 4, 16, 32, 33)))
    return b"\xa0" + bytes((len(tag),)) + tag


def _one_of(*codes: int) -> Make:
    return lambda random: composite(random, random.choice(codes))


_string = _coded(0xA1, 0xA1, 0xB1)
_symbol = _coded(0xA3, 0xA3, 0xB3)
_map = _coded(0xC1, 0xC1, 0xD1)
_outcome = _one_of(0x24, 0x24, 0x25, 0x26, 0x27, 0x33)
_MAKES: dict[object, Make] = {
    field_kinds.BOOLEAN.read: _boolean,
    field_kinds.UBYTE.read: _ubyte,
    field_kinds.USHORT.read: _ushort,
    field_kinds.UINT.read: _uint,
    field_kinds.ULONG.read: _ulong,
    field_kinds.STRING.read: _string,
    field_kinds.SYMBOL.read: _symbol,
    field_kinds.SYMBOLS.read: _symbols,
    field_kinds.BINARY.read: _coded(0xA0, 0xB0),
    field_kinds.TAG.read: _tag,
    field_kinds.MAP.read: _map,
    performatives_codec._ERROR.read: _one_of(0x1D),
    performatives_codec._SOURCE.read: _one_of(0x28),
    performatives_codec._TARGET.read: _one_of(0x29, 0x29, 0x30),
    performatives_codec._OUTCOME.read: _outcome,
    performatives_codec._STATE.read: _one_of(0x24, 0x25, 0x26, 0x27, 0x23, 0x33, 0x34),
}


def composite(random: Random, code: int) -> bytes:
    """A performative or nested type, with few fields that are wrong."""
    spec = SPECS[code]
    parts = []
    for read, mandatory in zip(spec.reads, spec.mandatory, strict=True):
        chance = random.random()
        if chance < 0.004:
            parts.append(value(random, 2))
        elif chance < 0.5 and not mandatory:
            parts.append(b"\x40")
        else:
            parts.append(_MAKES[read](random))
    if random.random() < 0.3:
        least = max((i + 1 for i, must in enumerate(spec.mandatory) if must), default=0)
        parts = parts[: random.randint(least, len(parts))]
    body = b"".join(parts)
    wide = len(body) > 250 or random.random() < 0.3
    start = b"\x00\x53" + bytes((code,))
    if not parts and random.random() < 0.7:
        return start + b"\x45"
    return start + (b"\xd0" if wide else b"\xc0") + extent(body, len(parts), wide=wide)


def any_composite(random: Random) -> bytes:
    return composite(random, random.choice(list(SPECS)))


# -- frames --------------------------------------------------------------------------

_PERFORMATIVES = (0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18)
_HOT = (0x13, 0x14, 0x14, 0x15)
_SASL = (0x40, 0x41, 0x42, 0x43, 0x44)


def frame(random: Random, body: bytes, kind: int = 0) -> bytes:
    """A frame around a body, at times with an extended header."""
    doff = random.choice((2, 2, 2, 2, 2, 2, 3, 5))
    size = (4 * doff + len(body)).to_bytes(4, "big")
    channel = random.choice((0, 1, 65535)).to_bytes(2, "big")
    return size + bytes((doff, kind)) + channel + bytes(4 * (doff - 2)) + body


def amqp_frame(random: Random) -> bytes:
    if random.random() < 0.1:
        return HEARTBEAT
    code = random.choice(_HOT if random.random() < 0.6 else _PERFORMATIVES)
    body = composite(random, code)
    if code == 0x14:
        body += random.randbytes(random.choice((0, 0, 10, 600)))
    return frame(random, body)


def hot_body(random: Random) -> bytes:
    """The body of a frame that the fast path may take."""
    body = composite(random, random.choice(_HOT))
    return body + random.randbytes(random.choice((0, 0, 0, 10)))


def frames(random: Random) -> bytes:
    """A few frames back to back."""
    return b"".join(amqp_frame(random) for _ in range(random.randint(1, 6)))


def handshake(random: Random) -> bytes:
    """What a peer says first, as far as it gets."""
    parts = [SASL_HEADER]
    parts += [
        frame(random, composite(random, c), kind=1) for c in random.sample(_SASL, 2)
    ]
    parts += [AMQP_HEADER, frame(random, composite(random, 0x10)), frames(random)]
    return b"".join(parts[: random.randint(1, len(parts))])
