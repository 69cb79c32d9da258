"""Messages as HTTP has them: a body, `BrokerProperties`, and a header per property.

Owns the conversion from and to AMQP. A message that is sent is encoded as AMQP and
parsed by the same code as any other, so the same limits hold. A message that is
received is read from the bytes that an AMQP client would get.

Properties of any sender become headers of an answer. So only names that can be headers
and mean nothing to HTTP are shown, and values are JSON, which has no line ends; other
properties can be read over AMQP only.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any
from uuid import UUID

from twinbus import limits
from twinbus.errors import ArgumentError, InvalidField, PeerError
from twinbus.server.broker.lock_tokens import token_bytes, uuid_of
from twinbus.server.broker.rendering import render_stored
from twinbus.store.base import Lock, State, Stored
from twinbus.wire.codec import decode
from twinbus.wire.message import names, sections
from twinbus.wire.message.sections import Incoming
from twinbus.wire.message.writing import section
from twinbus.wire.types import Described, Symbol, Timestamp, UInt

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"

# Headers that mean something to HTTP or to this API, and so are no properties.
_NOT_PROPERTY = re.compile(
    r"""
    age|allow|alt-svc|authorization|brokerproperties|cache-control|clear-site-data
    |connection|cookie2?|date|dnt|etag|expect|expires|forwarded|from|host
    |http2-settings|keep-alive|last-modified|link|location|max-forwards|nel|origin
    |pragma|range|referer|refresh|report-to|retry-after|server|set-cookie2?|sourcemap
    |strict-transport-security|te|trailer|transfer-encoding|upgrade
    |upgrade-insecure-requests|user-agent|vary|via|warning|www-authenticate|x-sendfile
    |(accept|access-control-|content-|cross-origin-|if-|permissions-|proxy-|sec-
    |service-worker-|timing-|x-accel-|x-content-|x-forwarded-|x-frame-|x-ms-).*
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

# Positions in the list of properties, by what HTTP calls them.
_FIELDS = {
    "MessageId": sections.MESSAGE_ID,
    "To": sections.TO,
    "Label": sections.SUBJECT,
    "ReplyTo": sections.REPLY_TO,
    "CorrelationId": sections.CORRELATION_ID,
    "SessionId": sections.GROUP_ID,
    "ReplyToSessionId": sections.REPLY_TO_GROUP_ID,
}
# What of a message is read on its way out.
_READ = frozenset(
    {
        sections.HEADER,
        sections.MESSAGE_ANNOTATIONS,
        sections.PROPERTIES,
        sections.APPLICATION_PROPERTIES,
    }
)
_ANNOTATIONS = {
    "PartitionKey": names.PARTITION_KEY,
    "ViaPartitionKey": names.VIA_PARTITION_KEY,
    "DeadLetterSource": names.DEAD_LETTER_SOURCE,
}
_SPAN = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{1,2}):(\d{1,2})(\.\d{1,7})?")
# The header of a message has no room for more; the SDKs cut longer times as well.
_TTL_MS_MAX = 0xFFFFFFFF
# What the real service shows for "for ever": the longest span of .NET, in seconds.
_FOREVER_SECONDS = 922337203685.4775
_LONG_MAX = (1 << 63) - 1


# -- in ------------------------------------------------------------------------------


def read_single(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Incoming:
    """The message of a request; the names of headers are as the client wrote them."""
    broker: dict[str, Any] = {}
    content_type: str | None = None
    properties: dict[str, Any] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("ascii"), _text(raw_value)
        lowered = name.lower()
        if lowered == "brokerproperties":
            broker = _mapping(_json(value, "BrokerProperties"), "BrokerProperties")
        elif lowered == "content-type":
            content_type = value
        elif _is_property(name):
            if name in properties:
                raise ArgumentError(f"The header '{name}' is there twice.")
            properties[name] = _property(value)
    return _message(broker, properties, body, content_type)


def read_batch(body: bytes) -> list[Incoming]:
    """The messages of a batch: a JSON array."""
    listed = _json(_text(body), "the body")
    if not isinstance(listed, list) or not listed:
        raise ArgumentError("A batch is a JSON array with at least one message.")
    if len(listed) > limits.BATCH_MESSAGES_MAX:
        raise ArgumentError(
            f"A batch has at most {limits.BATCH_MESSAGES_MAX} messages."
        )
    return [_batched(item, index) for index, item in enumerate(listed)]


def _batched(item: object, index: int) -> Incoming:
    fields = _mapping(item, f"Message {index} of the batch")
    text = fields.get("Body")
    if not isinstance(text, str):
        raise ArgumentError(f"The 'Body' of message {index} must be a string.")
    broker = _mapping(fields.get("BrokerProperties", {}), "BrokerProperties")
    given = _mapping(fields.get("UserProperties", {}), "UserProperties")
    properties = {name: _value(name, value) for name, value in given.items()}
    content_type = _word(broker, "ContentType")
    return _message(broker, properties, _encoded(text), content_type)


def _message(
    broker: Mapping[str, Any],
    properties: dict[str, Any],
    body: bytes,
    content_type: str | None,
) -> Incoming:
    fields: list[Any] = [None] * 13
    for name, position in _FIELDS.items():
        fields[position] = _word(broker, name)
    if content_type is not None:
        fields[sections.CONTENT_TYPE] = Symbol(content_type)
    parts: list[tuple[int, Any]] = []
    ttl_ms = _ttl_ms(broker)
    parts.append((sections.HEADER, [True, None, ttl_ms and UInt(ttl_ms)]))
    annotations = _annotations(broker)
    if annotations:
        parts.append((sections.MESSAGE_ANNOTATIONS, annotations))
    while fields and fields[-1] is None:
        fields.pop()
    if fields:
        parts.append((sections.PROPERTIES, fields))
    if properties:
        parts.append((sections.APPLICATION_PROPERTIES, properties))
    parts.append((sections.DATA, body))
    try:
        written = [section(code, value) for code, value in parts]
        return sections.parse(b"".join(written))
    except (PeerError, UnicodeEncodeError) as error:
        raise InvalidField(f"The message cannot be written: {error}.") from None


def _annotations(broker: Mapping[str, Any]) -> dict[Symbol, Any]:
    found: dict[Symbol, Any] = {}
    for name in ("PartitionKey", "ViaPartitionKey"):
        value = _word(broker, name)
        if value is not None:
            found[_ANNOTATIONS[name]] = value
    scheduled = _word(broker, "ScheduledEnqueueTimeUtc")
    if scheduled:
        found[names.SCHEDULED_ENQUEUE_TIME] = Timestamp(_moment_ms(scheduled))
    return found


def _ttl_ms(broker: Mapping[str, Any]) -> int | None:
    span = _word(broker, "TimeToLiveTimeSpan")
    seconds = _word(broker, "TimeToLive")
    if span is not None:
        found = _SPAN.fullmatch(span)
        if found is None:
            raise ArgumentError("TimeToLiveTimeSpan is a span like 0.00:00:40.")
        days, hours, minutes, whole, fraction = found.groups("0")
        total = float(whole) + float(fraction)
        total += 60 * (int(minutes) + 60 * (int(hours) + 24 * int(days)))
    elif seconds is not None:
        try:
            total = float(seconds)
        except ValueError:
            total = math.nan
    else:
        return None
    if not 0 < total < math.inf:
        raise ArgumentError("TimeToLive is a number of seconds above 0.")
    if total >= _FOREVER_SECONDS:
        return None
    return max(1, min(int(total * 1000), _TTL_MS_MAX))


def _moment_ms(text: str) -> int:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        try:
            found = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            raise ArgumentError(
                "ScheduledEnqueueTimeUtc is a time like Sun, 06 Nov 1994 08:49:37 GMT."
            ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)


def _is_property(name: str) -> bool:
    return _NOT_PROPERTY.fullmatch(name) is None


def _property(text: str) -> Any:
    """The value of a header: a JSON string, number or boolean; else plain text."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        if len(text) >= 2 and text[0] == text[-1] == '"':
            # A client that escapes quotes and nothing else.
            return text[1:-1].replace('\\"', '"')
        return text
    if isinstance(value, bool | str | float):
        return value
    if isinstance(value, int) and -_LONG_MAX - 1 <= value <= _LONG_MAX:
        return value
    return text


def _value(name: str, value: object) -> Any:
    """A property of a batch."""
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int) and -_LONG_MAX - 1 <= value <= _LONG_MAX:
        return value
    raise ArgumentError(
        f"The property '{name}' must be a string, a number, a boolean or null."
    )


def _word(broker: Mapping[str, Any], name: str) -> str | None:
    """A broker property as text; some clients write all values as strings."""
    value = broker.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ArgumentError(f"The broker property '{name}' has a value that is not text.")


def _mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ArgumentError(f"{what} must be a JSON object.")
    return value


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ArgumentError(f"The JSON of {what} cannot be read.") from None


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ArgumentError("The 'Body' of a message is no valid text.") from None


# -- out -----------------------------------------------------------------------------


class Shown:
    """A message on its way out."""

    def __init__(
        self, stored: Stored, lock: Lock | None, until_ms: int, number_base: int = 0
    ) -> None:
        token = token_bytes(*lock) if lock else None
        locked_until_ms = until_ms if lock else None
        message = render_stored(stored, token, locked_until_ms, number_base)
        self._parts: dict[int, Any] = {}
        self._bodies: list[Any] = []
        for code, _begin, start, end in sections.find_sections(message):
            if sections.DATA <= code <= sections.VALUE:
                self._bodies.append(_body(message, start, end))
            elif code in _READ:
                # A section that cannot be decoded is left out. The rest is shown, since
                # the message may be deleted already.
                with suppress(PeerError):
                    value, _ = decode(message, start, budget=limits.SECTION_NODES_MAX)
                    self._parts[code] = value
        self._stored = stored
        self._number = number_base | stored.sequence
        self._lock = lock
        self._until_ms = until_ms

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Everything but the body, ready to be sent."""
        found = [("BrokerProperties", _dump(self._broker()))]
        content_type = self._field(sections.CONTENT_TYPE)
        if content_type is not None and _is_clean(str(content_type)):
            found.append(("Content-Type", str(content_type)))
        given = self._parts.get(sections.APPLICATION_PROPERTIES, {})
        for name, value in given.items():
            shown = _shown(value)
            fits = _NAME.fullmatch(name) and _is_property(name)
            if fits and shown is not None:
                found.append((name, shown))
        return found

    @property
    def body(self) -> bytes:
        """The bytes of a data body; another one as text, or as JSON."""
        if all(isinstance(part, bytes) for part in self._bodies):
            return b"".join(self._bodies)
        if len(self._bodies) == 1:
            value = self._bodies[0]
            if value is None:
                return b""
            if isinstance(value, str):
                return value.encode()
            return _dump(plain(value)).encode()
        return _dump(plain(self._bodies)).encode()

    def _field(self, position: int) -> Any:
        fields = self._parts.get(sections.PROPERTIES, [])
        return fields[position] if position < len(fields) else None

    def _broker(self) -> dict[str, Any]:
        stored = self._stored
        annotations = self._parts.get(sections.MESSAGE_ANNOTATIONS, {})
        found: dict[str, Any] = {
            # HTTP counts this delivery, as .NET does; AMQP counts those before it.
            "DeliveryCount": stored.deliveries + 1,
            "EnqueuedSequenceNumber": stored.origin or 0,
            "EnqueuedTimeUtc": _date(stored.enqueued_ms),
            "SequenceNumber": self._number,
            "State": State(stored.state).name.capitalize(),
            "TimeToLive": self._ttl_seconds(),
        }
        for name, position in _FIELDS.items():
            found[name] = _identifier(self._field(position))
        for name, key in _ANNOTATIONS.items():
            found[name] = _identifier(annotations.get(key))
        if isinstance(annotations.get(names.SCHEDULED_ENQUEUE_TIME), int):
            found["ScheduledEnqueueTimeUtc"] = _date(
                annotations[names.SCHEDULED_ENQUEUE_TIME]
            )
        if self._lock is not None:
            found["LockToken"] = str(uuid_of(self._lock))
            found["LockedUntilUtc"] = _date(self._until_ms)
        return {name: value for name, value in found.items() if value is not None}

    def _ttl_seconds(self) -> float:
        header = self._parts[sections.HEADER]
        ttl_ms: int | None = header[2] if len(header) > 2 else None
        if ttl_ms is None:
            return _FOREVER_SECONDS
        return ttl_ms // 1000 if ttl_ms % 1000 == 0 else ttl_ms / 1000


def _body(message: bytes, start: int, end: int) -> Any:
    """A section of the body; its bytes as they are if it cannot be decoded."""
    try:
        return decode(message, start, budget=limits.SECTION_NODES_MAX)[0]
    except PeerError:
        return message[start:end]


def locked_until(until_ms: int) -> str:
    """The broker properties of a renewed lock."""
    return _dump({"LockedUntilUtc": _date(until_ms)})


def _date(milliseconds: int) -> str | None:
    """A time as HTTP writes it; None where it has no such form."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return format_datetime(moment, usegmt=True)


def _identifier(value: Any) -> Any:
    """An id: text and numbers as they are, the other types of AMQP as text."""
    if value is None or (isinstance(value, str) and not isinstance(value, Symbol)):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def _shown(value: Any) -> str | None:
    """The value of a header; None if it has none."""
    found = plain(value)
    if found is None or isinstance(found, list | dict):
        return None
    return _dump(found)


def plain(value: Any) -> Any:
    """A value of AMQP as JSON has it."""
    if isinstance(value, Timestamp):
        return _date(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Described):
        return plain(value.value)
    return str(value)


def _dump(value: Any) -> str:
    """JSON in one line of ASCII, in the order of the alphabet."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _is_clean(text: str) -> bool:
    return text.isascii() and text.isprintable()


__all__ = [
    "BATCH_TYPE",
    "Shown",
    "locked_until",
    "plain",
    "read_batch",
    "read_single",
]
