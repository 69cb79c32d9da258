"""One direction of a connection through the faulty proxy: where it stops, and why.

Owns the faults as values and the search for the place in the stream at which one
strikes: after so many bytes, after a frame of some kind, or inside it. Reads frame
headers and no more, so a broken stream passes like a sound one; in what is not AMQP in
clear text, such as TLS, only bytes can be counted. Has no socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Towards = Literal["server", "client", "both"]
Then = Literal["silence", "hold", "reset", "close"]

# By the second byte of the descriptor; what else comes is called by its number.
_NAMES = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
    0x40: "sasl mechanisms",
    0x41: "sasl init",
    0x42: "sasl challenge",
    0x43: "sasl response",
    0x44: "sasl outcome",
}
_HEADERS = {0: "amqp header", 2: "tls header", 3: "sasl header"}
HEARTBEAT = "heartbeat"
FRAME_NAMES = frozenset({*_NAMES.values(), *_HEADERS.values(), HEARTBEAT})
# A frame header with its shortest offset, and a descriptor.
_KNOWN_BYTES = 11


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a connection, in which direction and when.

    `silence` swallows all that follows and keeps the connection. `hold` keeps it back
    until the proxy is healed, as a network that is cut off does. `reset` and `close`
    end the connection, with RST or with FIN.
    """

    then: Then = "silence"
    # Bytes on their way to that side; "both" means whichever comes first.
    towards: Towards = "both"
    # So many bytes still pass.
    after_bytes: int = 0
    # The last one of so many frames of that name still passes ...
    after_frame: str = ""
    count: int = 1
    # ... or its first half.
    inside: bool = False
    # How many connections it strikes; None: all, the existing ones too.
    connections: int | None = None

    def __post_init__(self) -> None:
        if self.then not in ("silence", "hold", "reset", "close"):
            raise ValueError(f"then={self.then!r}: silence, hold, reset or close.")
        if self.towards not in ("server", "client", "both"):
            raise ValueError(f"towards={self.towards!r}: server, client or both.")
        if self.after_frame and self.after_frame not in FRAME_NAMES:
            names = ", ".join(sorted(FRAME_NAMES))
            raise ValueError(f"after_frame={self.after_frame!r} must be one of {names}")
        if self.after_frame and self.after_bytes:
            raise ValueError("Give after_frame or after_bytes, not both.")
        if self.count < 1 or self.after_bytes < 0:
            raise ValueError("count starts at 1, after_bytes at 0.")

    def concerns(self, side: str) -> bool:
        """Whether bytes on their way to that side are struck."""
        return self.towards in (side, "both")


class Marks:
    """Finds the frames of a stream."""

    def __init__(self) -> None:
        self.offset = 0
        self._head = b""
        # Where the next frame starts, or None where that is unknown.
        self._start: int | None = 0

    def feed(self, data: bytes) -> Iterator[tuple[str, int, int]]:
        """Name, start and end of each frame, once enough of it is there to know."""
        position, end = self.offset, self.offset + len(data)
        self.offset = end
        while self._start is not None and self._start + len(self._head) < end:
            seen = self._start + len(self._head)
            rest = data[max(seen - position, 0) :][: _KNOWN_BYTES - len(self._head)]
            self._head += rest
            found = self._read()
            if found is None:
                return
            name, size = found
            yield name, self._start, self._start + size
            self._start += size
            self._head = b""

    def _read(self) -> tuple[str, int] | None:
        """The frame that the head begins, as soon as it says so."""
        head = self._head
        if len(head) < 8:
            if not b"AMQP".startswith(head[:4]) and head[:1] != b"\0":
                # No header, and no valid frame.
                self._start = None
            return None
        if head[:4] == b"AMQP":
            return _HEADERS.get(head[4], f"header {head[4]}"), 8
        size = int.from_bytes(head[:4], "big")
        if size < 8:
            self._start = None
            return None
        if size == 8:
            return HEARTBEAT, size
        if len(head) < min(_KNOWN_BYTES, size):
            return None
        code = head[10] if size >= _KNOWN_BYTES else 0
        return _NAMES.get(code, f"frame {code}"), size


class Direction:
    """One direction of one connection."""

    def __init__(self, side: str) -> None:
        # Whom the bytes are for.
        self.side = side
        self.fault: Fault | None = None
        self._marks = Marks()
        self._left = 0
        self._stop_at: int | None = None

    def arm(self, fault: Fault | None) -> None:
        """From here on, this is what happens; None: nothing."""
        self.fault = fault if fault and fault.concerns(self.side) else None
        self._stop_at = None
        if self.fault is not None:
            self._left = self.fault.count
            if not self.fault.after_frame:
                self._stop_at = self._marks.offset + self.fault.after_bytes

    def pass_on(self, data: bytes) -> tuple[int, bool]:
        """How many of these bytes still pass, and whether the fault strikes."""
        offset = self._marks.offset
        for name, start, end in self._marks.feed(data):
            fault = self.fault
            if fault and self._stop_at is None and name == fault.after_frame:
                self._left -= 1
                if not self._left:
                    half = start + max(_KNOWN_BYTES, (end - start) // 2)
                    self._stop_at = min(half, end - 1) if fault.inside else end
        if self._stop_at is None or self._stop_at > offset + len(data):
            return len(data), False
        if self._stop_at == offset + len(data) and self._is_counting:
            # It strikes at the next byte, so that a whole frame passes as it came.
            return len(data), False
        return max(self._stop_at - offset, 0), True

    @property
    def _is_counting(self) -> bool:
        """Whether what follows is merely kept away: nothing to do before it comes."""
        return self.fault is not None and self.fault.then in ("silence", "hold")
