"""A message in a backlog queue: what is moved out of the way, and brought back.

Owns the aliases. A backlog queue holds messages of many entities, so what would make
the broker treat them differently is moved into application properties:

    destination path          x-ms-path                      string, always
    session id                x-ms-sessionid                 string
    time to live              x-ms-timetolive                timespan: 100 ns ticks
    scheduled enqueue time    x-ms-scheduledenqueuetimeutc   timestamp
    when it was diverted      x-twinbus-diverted-at          timestamp, always
    partition key = session   x-twinbus-partition-key        true

The rule: `restore(divert(m))` is `m`. A property of the user's that has one of these
names already is carried under an escaped one; everything else is the bytes it was. The
types are those that the .NET library writes, so either side can drain the other's
backlog; reading is more liberal than writing.

Works on bytes. Knows nothing about queues, nor about when a message is diverted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from twinbus.core.durations import DURATION_MAX_MS, parse_duration
from twinbus.errors import CallerError, PeerError
from twinbus.pairing.errors import AliasInvalid, InvalidMessage
from twinbus.wire.codec import encode
from twinbus.wire.message import names
from twinbus.wire.message.parts import (
    KeyValue,
    Parts,
    key_value,
    name_of,
    read_value,
    split,
)
from twinbus.wire.message.sections import CONTENT_TYPE, GROUP_ID
from twinbus.wire.types import Described, Symbol, Timestamp, UInt

PATH = "x-ms-path"
SESSION_ID = "x-ms-sessionid"
TIME_TO_LIVE = "x-ms-timetolive"
SCHEDULED = "x-ms-scheduledenqueuetimeutc"
DIVERTED_AT = "x-twinbus-diverted-at"
PARTITION_KEY = "x-twinbus-partition-key"
ALIASES = frozenset(
    (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED, DIVERTED_AT, PARTITION_KEY)
)
# Before the name of a user's property that is one of the above, or has this already.
ESCAPE = "x-twinbus-user-"

TICKS_PER_MS = 10_000
# The field in the header is no larger. Clients that want more put this there and the
# truth into creation and expiry time.
HEADER_TTL_MS_MAX = 0xFFFFFFFF
# .NET's word for "no time": the first moment of year 1.
_NO_TIME_MS = -62_135_596_800_000

_DEAD_LETTER_PROPERTIES = frozenset(
    (
        names.DEAD_LETTER_REASON.lower(),
        names.DEAD_LETTER_DESCRIPTION.lower(),
    )
)

# Positions in the header and in the properties.
_HEADER_TTL = 2
_HEADER_FIELDS_OF_SENDER = 4
_EXPIRY = 8
_CREATION = 9

REASON_NO_PATH = "PathMissing"
REASON_ALIAS = "AliasInvalid"


# -- into the backlog --------------------------------------------------------------


def divert(payload: bytes, path: str, now_ms: int) -> bytes:
    """The message as a backlog queue takes it. The original is not changed.

    O(properties); the body is copied, never read. Raises `InvalidMessage` for bytes
    that are no message.
    """
    try:
        parts = split(payload)
        pairs = [key_value(PATH, path)]
        _move_session(parts, pairs)
        _move_time_to_live(parts, pairs)
        _move_schedule(parts, pairs)
    except PeerError as error:
        raise InvalidMessage(error.text) from error
    pairs.append(key_value(DIVERTED_AT, Timestamp(now_ms)))
    parts.application = [_escaped(pair) for pair in parts.application] + pairs
    return parts.join()


def _move_session(parts: Parts, pairs: list[KeyValue]) -> None:
    encoded = parts.property_bytes(GROUP_ID)
    if encoded is None:
        return
    session_id = read_value(encoded)
    if not _is_string(session_id):
        # No broker takes such a session id, so it is left for one to say so.
        return
    parts.set_property(GROUP_ID, None)
    pairs.append(KeyValue(name_of(SESSION_ID), encoded))
    for pair in parts.annotations:
        if pair.name.key != names.PARTITION_KEY:
            continue
        partition_key = pair.value()
        if _is_string(partition_key) and partition_key == session_id:
            parts.annotations.remove(pair)
            pairs.append(key_value(PARTITION_KEY, True))
            return


def _move_time_to_live(parts: Parts, pairs: list[KeyValue]) -> None:
    ttl_ms = parts.header_field(_HEADER_TTL)
    if type(ttl_ms) is not UInt:
        return
    ticks = _true_ttl_ms(parts, ttl_ms) * TICKS_PER_MS
    parts.set_header(_HEADER_TTL, None)
    pairs.append(key_value(TIME_TO_LIVE, Described(names.TIMESPAN, ticks)))


def _true_ttl_ms(parts: Parts, ttl_ms: int) -> int:
    """The time to live, also if the header's field was too small for it."""
    created = parts.property_bytes(_CREATION)
    expires = parts.property_bytes(_EXPIRY)
    if ttl_ms < HEADER_TTL_MS_MAX or created is None or expires is None:
        return int(ttl_ms)
    lifetime_ms = _as_time_ms(expires) - _as_time_ms(created)
    # The longest of all means "for ever" in .NET, and this is not that.
    return min(max(lifetime_ms, int(ttl_ms)), DURATION_MAX_MS - 1)


def _as_time_ms(encoded: bytes) -> int:
    value = read_value(encoded)
    return int(value) if type(value) is Timestamp else 0


def _move_schedule(parts: Parts, pairs: list[KeyValue]) -> None:
    for pair in parts.annotations:
        if (
            pair.name.key == names.SCHEDULED_ENQUEUE_TIME
            and type(pair.value()) is Timestamp
        ):
            parts.annotations.remove(pair)
            pairs.append(KeyValue(name_of(SCHEDULED), pair.value_bytes))
            return


def _escaped(pair: KeyValue) -> KeyValue:
    key, lower = pair.name.key, pair.name.lower
    if lower is None or (lower not in ALIASES and not lower.startswith(ESCAPE)):
        return pair
    return KeyValue(name_of(type(key)(ESCAPE + key)), pair.value_bytes)


def _is_string(value: Any) -> bool:
    return type(value) is str


# -- out of the backlog ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aliases:
    """What a message of a backlog queue says about itself."""

    path: str
    session_id: str | None = None
    # None: for ever.
    ttl_ms: int | None = None
    scheduled_ms: int | None = None
    # None if it is missing; then the broker's enqueued time is used.
    diverted_at_ms: int | None = None
    has_partition_key: bool = False


class Backlogged:
    """A message that was received from a backlog queue."""

    __slots__ = ("_parts",)

    def __init__(self, payload: bytes) -> None:
        try:
            self._parts = split(payload)
        except PeerError as error:
            raise AliasInvalid(REASON_ALIAS, error.text) from error

    @property
    def is_ping(self) -> bool:
        """Whether this only asked for a sign of life."""
        encoded = self._parts.property_bytes(CONTENT_TYPE)
        return encoded is not None and _decoded(encoded) == names.PING_CONTENT_TYPE

    @property
    def enqueued_ms(self) -> int | None:
        """When the backlog's broker took it, if the broker says so."""
        for pair in self._parts.annotations:
            if pair.name.key == names.ENQUEUED_TIME:
                value = _decoded(pair.value_bytes)
                return int(value) if type(value) is Timestamp else None
        return None

    def aliases(self) -> Aliases:
        """Read the aliases; `AliasInvalid` if one is missing or of a wrong type."""
        found: dict[str, Any] = {}
        for pair in self._parts.application:
            lower = pair.name.lower
            if lower in ALIASES:
                found[lower] = _decoded(pair.value_bytes)
        path = found.get(PATH)
        if path is None or path == "":
            raise AliasInvalid(REASON_NO_PATH, f"The message has no {PATH}.")
        return Aliases(
            path=_text(PATH, path),
            session_id=_optional(found, SESSION_ID, _text),
            ttl_ms=_optional(found, TIME_TO_LIVE, _ttl_ms),
            scheduled_ms=_optional(found, SCHEDULED, _time_ms),
            diverted_at_ms=_optional(found, DIVERTED_AT, _time_ms),
            has_partition_key=bool(found.get(PARTITION_KEY)),
        )

    def restored(self, aliases: Aliases, ttl_ms: int | None) -> bytes:
        """The message for its destination, with this time to live.

        Header fields and annotations of the backlog's broker are left out: the
        primary's broker writes its own. Call it once: it changes the parts.
        """
        parts = self._parts
        parts.delivery = b""
        if parts.header is not None:
            parts.header = _of_sender(parts.header)
        if ttl_ms is not None:
            ttl = UInt(min(max(ttl_ms, 0), HEADER_TTL_MS_MAX))
            parts.set_header(_HEADER_TTL, ttl)
        parts.annotations = [
            pair
            for pair in parts.annotations
            if pair.name.lower not in names.BROKER_ANNOTATIONS
        ]
        if aliases.session_id is not None:
            parts.set_property(GROUP_ID, encode(aliases.session_id))
            if aliases.has_partition_key:
                parts.annotations.append(
                    key_value(names.PARTITION_KEY, aliases.session_id)
                )
        if aliases.scheduled_ms is not None:
            time = Timestamp(aliases.scheduled_ms)
            parts.annotations.append(key_value(names.SCHEDULED_ENQUEUE_TIME, time))
        parts.application = [
            _unescaped(pair)
            for pair in parts.application
            if pair.name.lower not in ALIASES
        ]
        return parts.join()


def _of_sender(header: tuple[Any, ...]) -> tuple[Any, ...]:
    """The fields of a header that its sender has set; the last one is often null."""
    fields = header[:_HEADER_FIELDS_OF_SENDER]
    return fields[:-1] if fields[_HEADER_FIELDS_OF_SENDER - 1 :] == (None,) else fields


def restore(payload: bytes) -> tuple[str, bytes]:
    """Destination and original of a message, its time to live in full."""
    message = Backlogged(payload)
    aliases = message.aliases()
    return aliases.path, message.restored(aliases, aliases.ttl_ms)


def for_replay(payload: bytes) -> bytes:
    """A dead-lettered message of a backlog queue as it was before."""
    parts = Backlogged(payload)._parts
    parts.delivery = b""
    if parts.header is not None:
        parts.header = _of_sender(parts.header)
    parts.annotations = [
        pair
        for pair in parts.annotations
        if pair.name.lower not in names.BROKER_ANNOTATIONS
    ]
    parts.application = [
        pair
        for pair in parts.application
        if pair.name.lower not in _DEAD_LETTER_PROPERTIES
    ]
    return parts.join()


def _unescaped(pair: KeyValue) -> KeyValue:
    key, lower = pair.name.key, pair.name.lower
    if lower is None or not lower.startswith(ESCAPE):
        return pair
    return KeyValue(name_of(type(key)(key[len(ESCAPE) :])), pair.value_bytes)


# -- liberal reading ---------------------------------------------------------------


def _decoded(encoded: bytes) -> Any:
    try:
        return read_value(encoded)
    except PeerError as error:
        raise AliasInvalid(REASON_ALIAS, error.text) from error


def _optional(found: dict[str, Any], name: str, read: Any) -> Any:
    value = found.get(name)
    return None if value is None else read(name, value)


def _wrong(name: str, value: Any) -> AliasInvalid:
    return AliasInvalid(
        REASON_ALIAS,
        f"{name} has a value of type {type(value).__name__} that cannot be used.",
    )


def _text(name: str, value: Any) -> str:
    if type(value) in (str, Symbol):
        return str(value)
    raise _wrong(name, value)


def _ttl_ms(name: str, value: Any) -> int | None:
    """A timespan, a whole number of ticks of any width, or an ISO 8601 duration."""
    if isinstance(value, Described) and value.descriptor == names.TIMESPAN:
        value = value.value
        if not _is_whole(value):
            raise _wrong(name, value)
    if _is_whole(value):
        ttl_ms = int(value) // TICKS_PER_MS
    elif type(value) in (str, Symbol):
        try:
            ttl_ms = parse_duration(value)
        except CallerError as error:
            raise AliasInvalid(REASON_ALIAS, f"{name}: {error.text}") from error
    else:
        raise _wrong(name, value)
    # .NET's longest time span says "for ever".
    return None if ttl_ms >= DURATION_MAX_MS else ttl_ms


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool | Timestamp)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _time_ms(name: str, value: Any) -> int | None:
    """A timestamp, or an ISO 8601 time, which is UTC unless it says otherwise."""
    if type(value) is Timestamp:
        return None if value == _NO_TIME_MS else int(value)
    if type(value) not in (str, Symbol):
        raise _wrong(name, value)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise AliasInvalid(
            REASON_ALIAS, f"{name}: '{value[:64]}' is not a time."
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)
