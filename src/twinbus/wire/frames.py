"""Frames: a stream of bytes to performatives with payloads, and back.

Owns the frame header, buffering and the fast path. The reader promises:

* the same frames and the same verdict, however the stream is cut into pieces;
* a frame that breaks a rule is refused when its header is there, before its body is;
* O(n) work for n bytes fed, also byte by byte, and one copy for each payload;
* after a failure the reader gives that failure again, never another frame.

Knows nothing about sessions, links, or which frame may come when.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinbus.errors import FrameError, PeerError
from twinbus.limits import DELIVERY_TAG_BYTES_MAX
from twinbus.wire.encoder import write_uint
from twinbus.wire.fast_performatives import (
    fast_disposition,
    fast_flow,
    fast_transfer,
)
from twinbus.wire.performatives import (
    Accepted,
    Body,
    DeliveryState,
    Disposition,
    Flow,
    Released,
    Transfer,
)
from twinbus.wire.performatives_codec import (
    decode_performative,
    decode_sasl,
    encode_composite,
)

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEARTBEAT: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

# AMQP without security, TLS, SASL.
_PROTOCOL_IDS = (0, 2, 3)
# An alert or a handshake; and the words that requests and answers begin with.
_TLS_RECORDS = (0x15, 0x16)
_HTTP_STARTS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"HTTP/")
_UINT32 = struct.Struct(">I").unpack_from
_HEAD = struct.Struct(">IBBH").unpack_from
_pack_head = struct.Struct(">IBBH").pack
# A frame header and the start of a performative in a short list, read in one go.
_HOT_HEAD = struct.Struct(">IBBHIBB").unpack_from
_HOT_BYTES: Final = 14
_FLOW_LIST: Final = 0x005313C0
_TRANSFER_LIST: Final = 0x005314C0
_DISPOSITION_LIST: Final = 0x005315C0
_TWO_UINT32 = struct.Struct(">II").unpack_from
_ID_AND_TAG = struct.Struct(">IBB").unpack_from


class Header(NamedTuple):
    """A protocol header: 0 is AMQP, 2 is TLS, 3 is SASL."""

    protocol_id: int


@dataclass(slots=True)
class Frame:
    """One frame. `performative` is None for a heartbeat."""

    kind: int
    channel: int
    performative: Body | None
    payload: bytes


_new = Frame.__new__


def _parts(buffer: bytes, p: int, size_bytes: int, id_at: int) -> tuple[int, int, int]:
    """Of the transfer at `p`: the id of its delivery, where its list and tag end.

    The id is -1 if it has an unusual form.
    """
    if size_bytes == 1:
        list_end = p + 13 + buffer[p + 12]
    else:
        list_end = p + 16 + _UINT32(buffer, p + 12)[0]
    p += id_at
    code = buffer[p]
    if code == 0x70:
        delivery_id, code, size = _ID_AND_TAG(buffer, p + 1)
        p += 7
    elif code == 0x52:
        delivery_id, code, size = buffer[p + 1 : p + 4]
        p += 4
    elif code == 0x43:
        delivery_id, code, size = 0, buffer[p + 1], buffer[p + 2]
        p += 3
    else:
        return -1, list_end, list_end
    if code != 0xA0 or size > DELIVERY_TAG_BYTES_MAX:
        return -1, list_end, list_end
    return delivery_id, list_end, p + size


class FrameReader:
    """Cuts the stream of one peer into frames."""

    __slots__ = (
        "_buffer",
        "_end",
        "_failure",
        "_header_expected",
        "_last",
        "_need",
        "_position",
        "_waiting",
        "frame_bytes",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = b""
        self._position = 0
        self._end = 0
        # Bytes that came after the buffer. They are joined to it once, when there are
        # as many as the next step needs; joining at each feed would be quadratic.
        self._waiting = bytearray()
        # Bytes from the position on that the next step needs; 0 when not yet known.
        self._need = 0
        self._header_expected = False
        # Where the frame before the position begins, if it was read on the fast path.
        self._last = -1
        self._failure: PeerError | None = None
        # Of the last frame that was not read on the fast path.
        self.frame_bytes = 0

    def expect_header(self) -> None:
        """The next eight bytes are a protocol header, not a frame."""
        self._header_expected = True

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer. Never fails; `next` gives the verdict."""
        if self._failure is not None:
            return
        rest = self._end - self._position
        if self._waiting or (rest and not 0 < self._need <= rest + len(data)):
            self._waiting += data
            return
        self._buffer = self._buffer[self._position :] + data if rest else bytes(data)
        self._position = 0
        self._end = len(self._buffer)
        self._need = 0

    def next(self) -> Frame | Header | None:
        """The next frame, or None when more bytes are needed."""
        buffer = self._buffer
        position = self._position
        if self._end - position < _HOT_BYTES or self._header_expected:
            return self._next()
        size, doff, kind, channel, start, list_bytes, count = _HOT_HEAD(
            buffer, position
        )
        end = position + size
        if doff != 2 or kind != 0 or size > self.max_frame_bytes or end > self._end:
            return self._next()
        fields = position + 14
        list_end = position + 13 + list_bytes
        if start & 0xFF == 0xD0 and size >= 20:
            list_bytes, count = _TWO_UINT32(buffer, position + 12)
            fields = position + 20
            list_end = position + 16 + list_bytes
            start ^= 0x10
        if list_end > end:
            return self._next()
        performative: Transfer | Disposition | Flow | None = None
        if start == _TRANSFER_LIST:
            performative = fast_transfer(buffer, fields, list_end, count)
        elif list_end != end:
            return self._next()
        elif start == _DISPOSITION_LIST:
            performative = fast_disposition(buffer, fields, list_end, count)
        elif start == _FLOW_LIST:
            performative = fast_flow(buffer, fields, list_end, count)
        if performative is None:
            return self._next()
        self._last = position
        self._position = end
        frame = _new(Frame)
        frame.kind = 0
        frame.channel = channel
        frame.performative = performative
        frame.payload = buffer[list_end:end]
        return frame

    def run_after(self, most: int, payload_bytes_max: int) -> list[bytes]:
        """The payloads of transfers that follow the last frame and are like it.

        The last frame was a transfer. Those after it differ only in their tags, their
        payloads and in the ids of deliveries, which count on.
        """
        first = self._last
        payloads: list[bytes] = []
        if first < 0:
            return payloads
        buffer, p = self._buffer, self._position
        size_bytes = 4 if buffer[first + 11] == 0xD0 else 1
        fields = 12 + 2 * size_bytes
        handle = buffer[first + fields]
        id_at = fields + (1 if handle == 0x43 else 2 if handle == 0x52 else 5)
        kind = buffer[first + 4 : first + 12]
        handle_from = 12 + size_bytes
        link = buffer[first + handle_from : first + id_at]
        try:
            delivery_id, list_end, tag_end = _parts(buffer, first, size_bytes, id_at)
            tail = buffer[tag_end:list_end]
            while delivery_id >= 0 and len(payloads) < most:
                delivery_id += 1
                found, list_end, tag_end = _parts(buffer, p, size_bytes, id_at)
                end = p + _UINT32(buffer, p)[0]
                if (
                    found != delivery_id
                    or buffer[p + 4 : p + 12] != kind
                    or buffer[p + handle_from : p + id_at] != link
                    or buffer[tag_end:list_end] != tail
                    or not list_end <= end <= self._end
                    or end - p > self.max_frame_bytes
                    or end - list_end > payload_bytes_max
                ):
                    break
                payloads.append(buffer[list_end:end])
                p = end
        except (IndexError, ValueError, struct.error):
            # The next frame is not there.
            pass
        self._position = p
        return payloads

    def join_after(self, disposition: Disposition, most: int) -> None:
        """Let a disposition, the last frame, have the ranges of those that follow it.

        They say the same of the deliveries right after its own. Clients that settle
        some messages at a time write many of them.
        """
        first = self._last
        if first < 0:
            return
        buffer, p = self._buffer, self._position
        kind = buffer[first + 4 : first + 12]
        for _ in range(most):
            if buffer[p + 4 : p + 12] != kind or self._end - p < _HOT_BYTES:
                return
            (size,) = _UINT32(buffer, p)
            list_end = p + 13 + buffer[p + 12]
            if kind[7] != 0xC0 or size != list_end - p or list_end > self._end:
                return
            other = fast_disposition(buffer, p + 14, list_end, buffer[p + 13])
            last = disposition.first if disposition.last is None else disposition.last
            if (
                other is None
                or other.first != last + 1
                or last < disposition.first
                or (other.last is not None and other.last < other.first)
                or other.role is not disposition.role
                or other.settled is not disposition.settled
                or other.state is not disposition.state
            ):
                return
            disposition.last = other.first if other.last is None else other.last
            self._position = p = list_end

    # -- everything else -----------------------------------------------------------

    def _next(self) -> Frame | Header | None:
        self._last = -1
        if self._failure is not None:
            raise type(self._failure)(self._failure.text)
        try:
            if self._header_expected:
                return self._take_header() if self._has(8) else None
            if self._has(8):
                return self._take_frame()
            if self._has(4):
                (size,) = _UINT32(self._buffer, self._position)
                self._check_size(size)
            return None
        except PeerError as failure:
            # A copy, because the one in flight holds on to every caller's frame.
            self._failure = type(failure)(failure.text)
            self._buffer = b""
            self._position = self._end = 0
            self._waiting = bytearray()
            raise

    def _has(self, count: int) -> bool:
        """Whether so many bytes are there; if they are, they are in the buffer."""
        available = self._end - self._position
        if available >= count:
            return True
        if available + len(self._waiting) < count:
            self._need = count
            return False
        self._buffer = self._buffer[self._position :] + self._waiting
        self._waiting = bytearray()
        self._position = 0
        self._end = len(self._buffer)
        self._need = 0
        return True

    def _take_header(self) -> Header:
        header = self._buffer[self._position : self._position + 8]
        if header[:4] != b"AMQP" or header[5:] != b"\x01\x00\x00":
            raise FrameError(_other_protocol(header))
        if header[4] not in _PROTOCOL_IDS:
            raise FrameError("The peer wants a protocol that is not known.")
        self._position += 8
        self._header_expected = False
        return Header(header[4])

    def _check_size(self, size: int) -> None:
        if size < 8:
            raise FrameError("A frame is shorter than its header.")
        if size > self.max_frame_bytes:
            raise FrameError("A frame is larger than allowed.")

    def _take_frame(self) -> Frame | None:
        size, doff, kind, channel = _HEAD(self._buffer, self._position)
        self._check_size(size)
        if doff < 2 or 4 * doff > size:
            raise FrameError("A frame header has a wrong length.")
        if kind > SASL_FRAME:
            raise FrameError("A frame has an unknown type.")
        if not self._has(size):
            return None
        self.frame_bytes = size
        start = self._position + 4 * doff
        end = self._position + size
        self._position = end
        if start == end:
            if kind == SASL_FRAME:
                raise FrameError("A SASL frame is empty.")
            return Frame(AMQP_FRAME, channel, None, b"")
        # The body apart from what follows, so that nothing read from it can depend on
        # how many frames have come.
        return _decode_body(kind, channel, self._buffer[start:end])


def _other_protocol(start: bytes) -> str:
    """What a peer says that does not begin with a header of AMQP, as far as known."""
    if start[1:2] == b"\x03" and start[0] in _TLS_RECORDS:
        return "The peer speaks TLS, not AMQP. TLS is for the ports of AMQPS and HTTPS."
    if start.startswith(_HTTP_STARTS):
        return (
            "The peer speaks HTTP, not AMQP. HTTP is for the ports of HTTP and HTTPS."
        )
    return "The peer does not speak AMQP 1.0."


def _decode_body(kind: int, channel: int, body: bytes) -> Frame:
    if kind == SASL_FRAME:
        sasl, end = decode_sasl(body)
        if end != len(body):
            raise FrameError("A SASL frame has a payload.")
        return Frame(kind, channel, sasl, b"")
    performative, end = decode_performative(body)
    payload = body[end:]
    if payload and type(performative) is not Transfer:
        raise FrameError("A performative other than transfer has a payload.")
    return Frame(kind, channel, performative, payload)


# -- encoding ------------------------------------------------------------------------


def encode_frame(
    channel: int, performative: Body | None, payload: bytes = b"", kind: int = 0
) -> bytes:
    """Encode one frame. The caller sees to the size that its peer allows."""
    body = b"" if performative is None else encode_composite(performative)
    size = 8 + len(body) + len(payload)
    try:
        head = _pack_head(size, 2, kind, channel)
    except struct.error:
        raise ValueError("a field of the frame header is out of range") from None
    return b"".join((head, body, payload))


_TRANSFER_START = struct.Struct(">IHHIBHIBIH").pack
_TRANSFER_BYTES: Final = 33
# The fields of a transfer behind the format, by settled + 2 * more.
_TRANSFER_ENDS = (
    b"\x42\x42\x40\x40\x42\x42\x42",
    b"\x41\x42\x40\x40\x42\x42\x42",
    b"\x42\x41\x40\x40\x42\x42\x42",
    b"\x41\x41\x40\x40\x42\x42\x42",
)


def encode_transfer(
    channel: int,
    handle: int,
    delivery_id: int,
    tag: bytes,
    payload: bytes,
    settled: bool,
    max_frame_bytes: int,
    message_format: int = 0,
) -> bytes:
    """Encode one delivery, as one frame or as several back to back.

    Every frame repeats the id, the tag and the format, as the SDKs do themselves.
    """
    tag_bytes = len(tag)
    if tag_bytes > DELIVERY_TAG_BYTES_MAX:
        raise ValueError("a delivery tag is too long")
    format_field = b"\x43" if message_format == 0 else _uint_field(message_format)
    fixed_bytes = _TRANSFER_BYTES + tag_bytes + len(format_field)
    room = max_frame_bytes - fixed_bytes
    parts: list[bytes] = []
    start = 0
    rest = len(payload)
    if room <= 0 < rest:
        raise ValueError("the frame size leaves no room for a payload")
    try:
        while True:
            more = rest > room
            taken = room if more else rest
            parts += (
                # Header; descriptor and list; handle; delivery id; start of the tag.
                _TRANSFER_START(
                    fixed_bytes + taken,
                    0x0200,
                    channel,
                    0x005314C0,
                    fixed_bytes - 13,
                    0x0B70,
                    handle,
                    0x70,
                    delivery_id,
                    0xA000 | tag_bytes,
                ),
                tag,
                format_field,
                _TRANSFER_ENDS[settled + 2 * more],
                payload[start : start + taken] if start or more else payload,
            )
            if not more:
                return b"".join(parts)
            start += taken
            rest -= taken
    except struct.error:
        raise ValueError("a field of the transfer is out of range") from None


# Tags of this size are encoded fast.
RUN_TAG_BYTES: Final = 16
_RUN_FRAME = struct.Struct(f">I16sIH{RUN_TAG_BYTES}s8s").pack


def encode_run(
    template: bytes, ids: Iterable[int], run: Iterable[tuple[bytes, bytes, bytes]]
) -> list[bytes]:
    """Encode deliveries of one link, each as one frame, in pieces to be joined.

    A delivery is a tag and a payload in two parts. All else is as in the template: a
    transfer (`encode_transfer`) with an empty payload and a tag of `RUN_TAG_BYTES`.
    """
    fixed_bytes = len(template)
    start, end = template[4:20], template[-8:]
    tag_field = 0xA000 | RUN_TAG_BYTES
    pieces: list[bytes] = []
    for delivery_id, (tag, front, back) in zip(ids, run, strict=True):
        size = fixed_bytes + len(front) + len(back)
        frame = _RUN_FRAME(size, start, delivery_id, tag_field, tag, end)
        pieces += (frame, front, back)
    return pieces


def _uint_field(value: int) -> bytes:
    out = bytearray()
    write_uint(out, value)
    return bytes(out)


_DISPOSITION_START = struct.Struct(">IHHIBHBIBI").pack
_STATES: dict[type, bytes] = {
    type(None): b"\x40",
    Accepted: encode_composite(Accepted()),
    Released: encode_composite(Released()),
}
# The fields of a disposition behind its range, by settled.
_DISPOSITION_ENDS: tuple[dict[type, bytes], dict[type, bytes]] = (
    {cls: b"\x42" + state + b"\x42" for cls, state in _STATES.items()},
    {cls: b"\x41" + state + b"\x42" for cls, state in _STATES.items()},
)


def encode_disposition(
    channel: int,
    role: bool,
    first: int,
    last: int | None,
    settled: bool,
    state: DeliveryState | None,
) -> bytes:
    """Encode the frame that settles a range of deliveries, or tells their state."""
    end = _DISPOSITION_ENDS[settled].get(type(state))
    if end is None or last is None:
        return encode_frame(channel, Disposition(role, first, last, settled, state))
    try:
        start = _DISPOSITION_START(
            25 + len(end),
            0x0200,
            channel,
            0x005315C0,
            12 + len(end),
            0x0641 if role else 0x0642,
            0x70,
            first,
            0x70,
            last,
        )
    except struct.error:
        raise ValueError("a field of the disposition is out of range") from None
    return start + end
