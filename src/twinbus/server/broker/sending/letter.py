"""A message on its way between containers, and what filters see of it.

A letter is made from a message that came in, or from one that the store kept and that
goes on (scheduled, forwarded, dead-lettered). It holds bytes and the few values that
routing needs; nothing is decoded before a rule asks for it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import timedelta
from typing import Any

from twinbus import limits
from twinbus.core.filter_values import MISSING, fold
from twinbus.core.filters import Changes
from twinbus.errors import PeerError, TwinbusError
from twinbus.store.base import Stored
from twinbus.store.records import Record
from twinbus.wire.message import parts, sections
from twinbus.wire.message.names import TIMESPAN
from twinbus.wire.message.sections import Incoming
from twinbus.wire.message.times import EPOCH, to_wire
from twinbus.wire.types import Described, Timestamp

log = logging.getLogger("twinbus.routing")

_FIELDS = {
    "MessageId": sections.MESSAGE_ID,
    "To": sections.TO,
    "Label": sections.SUBJECT,
    "ReplyTo": sections.REPLY_TO,
    "CorrelationId": sections.CORRELATION_ID,
    "ContentType": sections.CONTENT_TYPE,
    "SessionId": sections.GROUP_ID,
    "ReplyToSessionId": sections.REPLY_TO_GROUP_ID,
}


def _from_wire(value: object) -> object:
    """A property as filters compare it."""
    try:
        if isinstance(value, Timestamp):
            return EPOCH + timedelta(milliseconds=int(value))
        if isinstance(value, Described) and value.descriptor == TIMESPAN:
            ticks = value.value
            if type(ticks) is not int:
                return None
            # Towards zero, so that what is read can also be written, and negated.
            microseconds = abs(ticks) // 10
            return timedelta(microseconds=microseconds if ticks > 0 else -microseconds)
    except OverflowError:
        # A time that no calendar has is unknown.
        return None
    return value


class Letter:
    """One message on its way; `bare` may be replaced, the rest says how it travels."""

    __slots__ = (
        "bare",
        "deliveries",
        "head",
        "message_id",
        "origin",
        "scheduled_ms",
        "session_id",
        "source",
        "ttl_ms",
    )

    def __init__(self, head: bytes, bare: bytes) -> None:
        self.head = head
        self.bare = bare
        self.message_id: Any = None
        self.session_id: str | None = None
        self.ttl_ms: int | None = None
        self.scheduled_ms: int | None = None
        self.origin: int | None = None
        self.source: str | None = None
        self.deliveries = 0

    @classmethod
    def incoming(cls, message: Incoming) -> Letter:
        """A message that a client sent."""
        letter = cls(message.head(), message.bare)
        letter.message_id = message.message_id
        letter.session_id = message.session_id
        letter.ttl_ms = message.ttl_ms
        letter.scheduled_ms = message.scheduled_ms
        return letter

    @classmethod
    def stored(cls, stored: Stored, wall_ms: int) -> Letter:
        """A kept message that goes on to another container."""
        letter = cls(stored.head, stored.bare)
        letter.session_id = stored.session
        # What rules have added may be more than is read: it travels all the same.
        with suppress(PeerError):
            fields = sections.read_properties(stored.bare)
            letter.message_id = fields[sections.MESSAGE_ID]
            letter.session_id = fields[sections.GROUP_ID]
        letter.origin = stored.origin
        letter.source = stored.source
        if stored.expires_ms is not None:
            letter.ttl_ms = max(stored.expires_ms - wall_ms, 0)
        return letter

    def copy(self) -> Letter:
        """Another letter with the same content."""
        twin = Letter(self.head, self.bare)
        twin.message_id = self.message_id
        twin.session_id = self.session_id
        twin.ttl_ms = self.ttl_ms
        twin.scheduled_ms = self.scheduled_ms
        twin.origin = self.origin
        twin.source = self.source
        twin.deliveries = self.deliveries
        return twin

    def changed(self, changes: Changes) -> Letter:
        """A copy with what a rule's action changes."""
        twin = self.copy()
        fields = {
            _FIELDS[name]: value
            for name, value in changes.system.items()
            if name in _FIELDS
        }
        if fields:
            twin.bare = parts.with_properties(twin.bare, fields)
        if sections.GROUP_ID in fields:
            session_id = fields[sections.GROUP_ID]
            twin.session_id = None if session_id is None else str(session_id)
        ttl = changes.system.get("TimeToLive")
        if isinstance(ttl, timedelta):
            twin.ttl_ms = max(int(ttl.total_seconds() * 1000), 0)
        if changes.properties or changes.removed:
            old = sections.read_application_properties(twin.bare)
            new = {k: to_wire(v) for k, v in changes.merged(old).items()}
            gone = frozenset(name for name in old if name not in new)
            twin.bare = parts.with_application_properties(twin.bare, new, gone)
        return twin

    def record(self, session: str | None, expires_ms: int | None) -> Record:
        """What the store keeps of it."""
        return Record(
            self.head,
            self.bare,
            session,
            expires_ms,
            self.scheduled_ms,
            self.origin,
            self.source,
            self.deliveries,
        )


class LetterView:
    """A letter as filters see it (`core.filter_values.MessageView`)."""

    __slots__ = ("_bare", "_fields", "_letter", "_properties", "_sequence", "_wall_ms")

    def __init__(self, letter: Letter, sequence: int, wall_ms: int) -> None:
        self._letter = letter
        self._bare = letter.bare
        self._sequence = sequence
        self._wall_ms = wall_ms
        self._fields: list[Any] | None = None
        self._properties: dict[str, Any] | None = None

    def system(self, name: str) -> object:
        """A system property; None if it is not set."""
        if name in _FIELDS:
            if self._fields is None:
                self._fields = sections.read_properties(self._bare)
            return self._fields[_FIELDS[name]]
        if name in ("SequenceNumber", "EnqueuedSequenceNumber"):
            return self._sequence
        if name == "EnqueuedTimeUtc":
            return EPOCH + timedelta(milliseconds=self._wall_ms)
        if name == "TimeToLive" and self._letter.ttl_ms is not None:
            return timedelta(milliseconds=self._letter.ttl_ms)
        if name == "Size":
            return len(self._bare)
        if name == "DeliveryCount":
            return 0
        return None

    def property(self, name: str) -> object:
        """A user property by its folded name."""
        if self._properties is None:
            read = sections.read_application_properties(self._bare)
            self._properties = {fold(str(k)): _from_wire(v) for k, v in read.items()}
        return self._properties.get(name, MISSING)


# -- what a dead letter says ----------------------------------------------------------


def error_text(error: Exception) -> str:
    """An error as the description of a dead-lettered message."""
    if isinstance(error, TwinbusError):
        return error.text
    text = f"{type(error).__name__}: {error}"
    return text[: limits.DEAD_LETTER_DESCRIPTION_CHARS_MAX]


def with_marks(bare: bytes, marks: dict[str, Any]) -> bytes:
    """The bare message with marks, or as it was if marks cannot be added.

    This must not fail: no client waits for an answer that could carry the error.
    """
    try:
        return parts.with_application_properties(bare, marks)
    except PeerError:
        return bare
    except Exception:
        log.exception("a message could not be marked")
        return bare
