"""What a message needs before it is sent: room for aliases, an id, a scheduled time.

Owns how much a message grows by its aliases. A message that fits its entity but no
backlog queue is reported while the entity is healthy, once for each path, so that
operators learn of it before an outage. `envelope.py` says what an alias is;
`wire/message/batch.py` puts messages into transfers.
"""

from __future__ import annotations

from collections.abc import Callable

from twinbus import limits
from twinbus.errors import PeerError
from twinbus.pairing.errors import InvalidMessage, MessageTooLargeForBacklog
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.rules import envelope
from twinbus.wire.codec import encode
from twinbus.wire.message.names import SCHEDULED_ENQUEUE_TIME, TIMESPAN
from twinbus.wire.message.parts import key_value, split
from twinbus.wire.message.sections import (
    APPLICATION_PROPERTIES,
    MESSAGE_ID,
    PROPERTIES,
    find_sections,
)
from twinbus.wire.message.writing import SECTION_BYTES_MAX
from twinbus.wire.types import Described, Timestamp

# -- sizes -------------------------------------------------------------------------


def headroom_bytes(path: str) -> int:
    """How many bytes a message for `path` may grow when it is diverted.

    Properties of the user's whose names collide with ours grow by some more.
    """
    session_key = len(encode(envelope.SESSION_ID))
    partition_key = len(encode(envelope.PARTITION_KEY))
    ttl = Described(TIMESPAN, 2**62)
    return (
        # A section that was not there; a null where the session id was; a boolean.
        SECTION_BYTES_MAX
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
    """Finds messages that could not fail over, before an outage. One for each path.

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

    def check(self, payload: bytes, now_ms: int) -> PairingEvent | None:
        """Report, once, that a message could not fail over."""
        try:
            diverted = envelope.divert(payload, self._path, now_ms)
            check_size(diverted, self._path, self._limit_bytes)
        except MessageTooLargeForBacklog as error:
            self.threshold_bytes = float("inf")
            kind = EventKind.MESSAGE_TOO_LARGE
            return PairingEvent(kind, self._path, now_ms, error)
        return None


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


def with_scheduled_time(payload: bytes, time_ms: int) -> bytes:
    """The message with a scheduled enqueue time instead of any that it had."""
    try:
        parts = split(payload)
    except PeerError as error:
        raise InvalidMessage(error.text) from error
    parts.annotations = [
        pair for pair in parts.annotations if pair.name.key != SCHEDULED_ENQUEUE_TIME
    ]
    parts.annotations.append(key_value(SCHEDULED_ENQUEUE_TIME, Timestamp(time_ms)))
    return parts.join()
