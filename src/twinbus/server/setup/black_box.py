"""What is left of a server that failed: heartbeat, metrics and log, in a mapped file.

Owns the layout. The supervisor makes the file, which is memory without a name, and the
server writes into it; so it survives the server, and writing never waits for a disk.
Rule: the writer may be killed at any instruction, and what is read is whole all the
same. Text is written to free room first, and then one number makes it valid.

    header      beats, which half holds the vitals, where the ring begins and ends
    vitals      two halves: the length, then JSON; the half that is not valid is written
    ring        records: the length, then JSON; old ones are overwritten

Knows nothing about what is logged or measured.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import struct
import traceback
from datetime import UTC, datetime

from twinbus import limits

_LENGTH = struct.Struct("=I")
# The numbers of the header.
_BEATS, _HALF, _TAIL, _HEAD = range(4)
_HALVES_AT = 64
_HALF_SIZE = _LENGTH.size + limits.VITALS_BYTES_MAX
_RING_AT = _HALVES_AT + 2 * _HALF_SIZE
_FILE_SIZE = _RING_AT + limits.LOG_RING_BYTES


def make_file() -> int:
    """A new file for a `BlackBox`; the descriptor belongs to the caller."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("twinbus")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _FILE_SIZE)
    return descriptor


class BlackBox:
    """A mapped file that one process writes and another one reads."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, _FILE_SIZE)
        # Each is written by one instruction, so there is never a part of one.
        self._numbers = memoryview(self._map)[:_HALVES_AT].cast("Q")

    def close(self) -> None:
        self._numbers.release()
        self._map.close()

    # -- heartbeat -----------------------------------------------------------------

    def beat(self) -> None:
        """The event loop moves."""
        self._numbers[_BEATS] += 1

    @property
    def beats(self) -> int:
        """How often it has shown that."""
        return self._numbers[_BEATS]

    # -- vitals --------------------------------------------------------------------

    def put_vitals(self, text: bytes) -> None:
        """Replace the last metrics; those that have no room are left out."""
        if len(text) > limits.VITALS_BYTES_MAX:
            return
        half = 1 - self._numbers[_HALF]
        start = _HALVES_AT + half * _HALF_SIZE
        self._map[start : start + _LENGTH.size] = _LENGTH.pack(len(text))
        start += _LENGTH.size
        self._map[start : start + len(text)] = text
        self._numbers[_HALF] = half

    def vitals(self) -> bytes:
        """The last metrics; empty if there were none."""
        start = _HALVES_AT + self._numbers[_HALF] * _HALF_SIZE
        (length,) = _LENGTH.unpack_from(self._map, start)
        start += _LENGTH.size
        return self._map[start : start + min(length, limits.VITALS_BYTES_MAX)]

    # -- log -----------------------------------------------------------------------

    def add_record(self, text: bytes) -> None:
        """Keep a record, in place of the oldest ones if there is no room."""
        text = text[: limits.LOG_RECORD_BYTES_MAX]
        record = _LENGTH.pack(len(text)) + text
        tail, head = self._numbers[_TAIL], self._numbers[_HEAD]
        while head + len(record) - tail > limits.LOG_RING_BYTES:
            tail += _LENGTH.size + self._length_at(tail)
        self._numbers[_TAIL] = tail
        start = head % limits.LOG_RING_BYTES
        first = record[: limits.LOG_RING_BYTES - start]
        self._map[_RING_AT + start : _RING_AT + start + len(first)] = first
        rest = record[len(first) :]
        self._map[_RING_AT : _RING_AT + len(rest)] = rest
        self._numbers[_HEAD] = head + len(record)

    def records(self) -> list[bytes]:
        """The last records, oldest first."""
        tail, head = self._numbers[_TAIL], self._numbers[_HEAD]
        found = []
        while tail < head:
            length = self._length_at(tail)
            if length > limits.LOG_RECORD_BYTES_MAX:
                # It was overwritten just now: a stalled server may still log.
                break
            found.append(self._ring(tail + _LENGTH.size, length))
            tail += _LENGTH.size + length
        return found[-limits.LOG_RING_RECORDS_MAX :]

    def _length_at(self, offset: int) -> int:
        (length,) = _LENGTH.unpack(self._ring(offset, _LENGTH.size))
        return int(length)

    def _ring(self, offset: int, length: int) -> bytes:
        start = offset % limits.LOG_RING_BYTES
        end = min(start + length, limits.LOG_RING_BYTES)
        first = self._map[_RING_AT + start : _RING_AT + end]
        return first + self._map[_RING_AT : _RING_AT + length - len(first)]


class BlackBoxHandler(logging.Handler):
    """Keeps what is logged, without texts of exceptions: they may quote a message."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__()
        self._box = box

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        event = {
            "time": time_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            event["exception"] = _exception_text(record.exc_info[1])
        self._box.add_record(json.dumps(event).encode())


def _exception_text(error: BaseException) -> str:
    """Where it was raised and what kind it is."""
    places = traceback.extract_tb(error.__traceback__)
    lines = [f"{each.filename}:{each.lineno} in {each.name}" for each in places]
    return " | ".join([*lines, type(error).__name__])


def time_text(seconds: float) -> str:
    """A moment as ISO 8601."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


__all__ = ["BlackBox", "BlackBoxHandler", "make_file", "time_text"]
