"""Messages on their way into a backlog queue: sizes, batches and ids.

Owns how large a message becomes by its aliases, and how batches are converted: message
by message, split where they no longer fit, never refused for that. A message that fits
its entity but no backlog queue is found while all is well, once for each path, so that
somebody learns of it before the outage. What an alias is, is `envelope.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from twinbus import limits
from twinbus.errors import PeerError
from twinbus.pairing.errors import InvalidMessage, MessageTooLargeForBacklog
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules import envelope
from twinbus.pairing.rules.envelope import SCHEDULED_ANNOTATION
from twinbus.wire.codec import encode
from twinbus.wire.encoder import write_binary
from twinbus.wire.message.parts import make_pair, split
from twinbus.wire.message.sections import (
    APPLICATION_PROPERTIES,
    BATCH_FORMAT,
    DATA,
    MESSAGE_ID,
    PROPERTIES,
    find_sections,
    split_batch,
)
from twinbus.wire.types import Described, Symbol, Timestamp

_DATA_SECTION = bytes((0x00, 0x53, DATA))
# Bytes of a data section beyond its content, at most.
_DATA_BYTES = len(_DATA_SECTION) + 5


# -- sizes -------------------------------------------------------------------------


def headroom_bytes(path: str) -> int:
    """How many bytes a message for `path` may grow when it is diverted.

    Properties of the user's whose names collide with ours grow by some more.
    """
    session_key = len(encode(envelope.SESSION_ID))
    partition_key = len(encode(envelope.PARTITION_KEY))
    ttl = Described(envelope.TIMESPAN, 2**62)
    return (
        # A section that was not there; a null where the session id was; a boolean.
        (3 + 9)
        + (session_key + 1)
        + (partition_key + 1)
        + len(encode(envelope.PATH) + encode(path))
        + len(encode(envelope.TIME_TO_LIVE) + encode(ttl))
        # The alias of the scheduled time is as long as the annotation that goes.
        + len(encode(envelope.DIVERTED_AT) + encode(Timestamp(0)))
    )


# The same for the longest path that there is.
HEADROOM_BYTES_MAX = headroom_bytes("x" * limits.ENTITY_PATH_CHARS_MAX)


def check_size(diverted: bytes, path: str, limit_bytes: int) -> None:
    """Refuse a diverted message that no backlog queue takes, naming both sizes."""
    size = len(diverted)
    if size > limit_bytes:
        raise MessageTooLargeForBacklog(path, size, limit_bytes, "A message")
    if size <= limits.PROPERTIES_BYTES_MAX:
        return
    properties = sum(
        end - begin
        for code, begin, _start, end in find_sections(diverted)
        if code in (PROPERTIES, APPLICATION_PROPERTIES)
    )
    if properties > limits.PROPERTIES_BYTES_MAX:
        raise MessageTooLargeForBacklog(
            path, properties, limits.PROPERTIES_BYTES_MAX, "The properties of a message"
        )


class HeadroomWatch:
    """Finds, while all is well, what could not fail over. One for each path.

    Compare a payload's size with `threshold_bytes` and call `check` only above it.
    """

    __slots__ = ("_limit_bytes", "_path", "threshold_bytes")

    def __init__(self, path: str, limit_bytes: int = limits.MESSAGE_BYTES_MAX) -> None:
        self._path = path
        self.threshold_bytes: float = 0
        self._limit_bytes = limit_bytes
        self.set_limit(limit_bytes)

    def set_limit(self, limit_bytes: int) -> None:
        """The secondary has said how large a message it takes."""
        self._limit_bytes = limit_bytes
        smallest = min(limit_bytes, limits.PROPERTIES_BYTES_MAX)
        if self.threshold_bytes != float("inf"):
            self.threshold_bytes = smallest - headroom_bytes(self._path)

    def check(self, payload: bytes, batch: bool, now_ms: int) -> PairingEvent | None:
        """Tell, once, that a message could not fail over."""
        try:
            for message in split_batch(payload) if batch else (payload,):
                diverted = envelope.divert(message, self._path, now_ms)
                check_size(diverted, self._path, self._limit_bytes)
        except MessageTooLargeForBacklog as error:
            self.threshold_bytes = float("inf")
            kind = EventKind.MESSAGE_TOO_LARGE
            return PairingEvent(kind, self._path, now_ms, error)
        return None


# -- transfers ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packed:
    """One transfer: a message, or several in a batch."""

    payload: bytes
    count: int

    @property
    def message_format(self) -> int:
        return BATCH_FORMAT if self.count > 1 else 0


def divert(payload: bytes, path: str, now_ms: int, limit_bytes: int) -> Packed:
    """One message, converted; `MessageTooLargeForBacklog` if it does not fit."""
    diverted = envelope.divert(payload, path, now_ms)
    check_size(diverted, path, limit_bytes)
    return Packed(diverted, 1)


def divert_batch(
    payload: bytes, path: str, now_ms: int, limit_bytes: int
) -> list[Packed]:
    """A batch, converted message by message, in as few transfers as it takes.

    Nothing is left half done: if one message cannot be converted, none is.
    """
    try:
        messages = split_batch(payload)
    except PeerError as error:
        raise InvalidMessage(error.text) from error
    diverted = [envelope.divert(message, path, now_ms) for message in messages]
    for message in diverted:
        check_size(message, path, limit_bytes)
    return pack(diverted, limit_bytes)


def pack(messages: Iterable[bytes], limit_bytes: int) -> list[Packed]:
    """Put messages into transfers, in order. Each fits alone; that is the caller's."""
    packed: list[Packed] = []
    group: list[bytes] = []
    size = 0
    for message in messages:
        more = len(message) + _DATA_BYTES
        if group and (
            size + more > limit_bytes or len(group) == limits.BATCH_MESSAGES_MAX
        ):
            packed.append(_pack_group(group))
            group, size = [], 0
        group.append(message)
        size += more
    if group:
        packed.append(_pack_group(group))
    return packed


def _pack_group(group: Sequence[bytes]) -> Packed:
    if len(group) == 1:
        return Packed(group[0], 1)
    out = bytearray()
    for message in group:
        out += _DATA_SECTION
        write_binary(out, message)
    return Packed(bytes(out), len(group))


# -- ids and schedules -------------------------------------------------------------


def with_message_id(payload: bytes, new_id: Callable[[], str]) -> bytes:
    """The message with an id, so that two copies of it can be known as one."""
    try:
        parts = split(payload)
    except PeerError as error:
        raise InvalidMessage(error.text) from error
    if parts.property_bytes(MESSAGE_ID) is not None:
        return payload
    parts.set_property(MESSAGE_ID, encode(new_id()))
    return parts.join()


def batch_with_message_ids(payload: bytes, new_id: Callable[[], str]) -> bytes:
    """The batch with an id on every message; the rest of the envelope is kept."""
    out = bytearray()
    try:
        messages = iter(split_batch(payload))
        sections = find_sections(payload)
    except PeerError as error:
        raise InvalidMessage(error.text) from error
    for code, begin, _start, end in sections:
        if code == DATA:
            out += _DATA_SECTION
            write_binary(out, with_message_id(next(messages), new_id))
        else:
            out += payload[begin:end]
    return bytes(out)


def with_scheduled_time(payload: bytes, time_ms: int) -> bytes:
    """The message with a scheduled enqueue time instead of any that it had."""
    try:
        parts = split(payload)
    except PeerError as error:
        raise InvalidMessage(error.text) from error
    parts.annotations = [
        pair for pair in parts.annotations if pair.name.key != SCHEDULED_ANNOTATION
    ]
    key = Symbol(SCHEDULED_ANNOTATION)
    parts.annotations.append(make_pair(key, Timestamp(time_ms)))
    return parts.join()
