"""A message as it came: its bytes, and what the server wrote on them.

The bytes stay as they are; header, annotations and properties are decoded when they are
asked for, the body never. Settling is the receiver's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from twinbus import limits
from twinbus.wire.codec import decode
from twinbus.wire.message import names, sections

if TYPE_CHECKING:
    from twinbus.client.receiving import ReceiveLink

_MESSAGE_FIELDS = 13


class Message:
    """A received or peeked message."""

    __slots__ = (
        "_lock",
        "_locked_until_ms",
        "_parts",
        "delivery_id",
        "link",
        "payload",
    )

    def __init__(self, payload: bytes, lock: UUID | bytes | None = None) -> None:
        # All sections, encoded, as they came.
        self.payload = payload
        # The lock token, or the delivery tag that it is made of when it is asked for:
        # most messages are settled without it.
        self._lock = lock
        # How to settle it on the link that brought it.
        self.link: ReceiveLink | None = None
        self.delivery_id = -1
        self._parts: dict[int, Any] | None = None
        self._locked_until_ms: int | None = None

    def _part(self, code: int) -> Any:
        """A decoded section; never one of the body."""
        if self._parts is None:
            self._parts = {}
            for found, _begin, start, _end in sections.find_sections(self.payload):
                if found < sections.DATA:
                    budget = limits.SECTION_NODES_MAX
                    value, _ = decode(self.payload, start, budget=budget)
                    self._parts[found] = value
        return self._parts.get(code)

    @property
    def lock_token(self) -> UUID | None:
        """What `$management` knows the lock by; None without a lock."""
        lock = self._lock
        if isinstance(lock, bytes):
            lock = self._lock = UUID(bytes_le=lock)
        return lock

    @property
    def bare(self) -> bytes:
        """What the sender wrote: properties, application properties, body, footer."""
        return b"".join(
            self.payload[begin:end]
            for code, begin, _start, end in sections.find_sections(self.payload)
            if code >= sections.PROPERTIES
        )

    @property
    def annotations(self) -> dict[Any, Any]:
        """Message annotations, by symbol."""
        found: dict[Any, Any] = self._part(sections.MESSAGE_ANNOTATIONS) or {}
        return found

    @property
    def properties(self) -> list[Any]:
        """The thirteen fields of the properties, None where there is none."""
        fields = list(self._part(sections.PROPERTIES) or [])
        return fields + [None] * (_MESSAGE_FIELDS - len(fields))

    @property
    def application_properties(self) -> dict[str, Any]:
        """Properties of the application."""
        found: dict[str, Any] = self._part(sections.APPLICATION_PROPERTIES) or {}
        return found

    @property
    def header(self) -> list[Any]:
        """Durable, priority, time to live, first acquirer, delivery count."""
        fields = list(self._part(sections.HEADER) or [])
        return fields + [None] * (5 - len(fields))

    @property
    def message_id(self) -> Any:
        """The sender's id."""
        return self.properties[sections.MESSAGE_ID]

    @property
    def session_id(self) -> str | None:
        """The session that it belongs to."""
        found: str | None = self.properties[sections.GROUP_ID]
        return found

    @property
    def delivery_count(self) -> int:
        """How often it was delivered before."""
        return int(self.header[4] or 0)

    @property
    def sequence_number(self) -> int:
        """Its number in the entity; 0 if the server gave none."""
        return int(self.annotations.get(names.SEQUENCE_NUMBER) or 0)

    @property
    def state(self) -> str:
        """Active, deferred or scheduled; the server says so when it is peeked."""
        number = self.annotations.get(names.MESSAGE_STATE) or 0
        return names.STATES.get(number, "active")

    @property
    def enqueued_ms(self) -> int | None:
        """When the entity took it, in milliseconds since the epoch."""
        return self._time(names.ENQUEUED_TIME)

    @property
    def locked_until_ms(self) -> int | None:
        """When its lock ends, as last heard of."""
        return self._locked_until_ms or self._time(names.LOCKED_UNTIL)

    @locked_until_ms.setter
    def locked_until_ms(self, until_ms: int) -> None:
        self._locked_until_ms = until_ms

    def _time(self, key: str) -> int | None:
        value = self.annotations.get(key)
        return int(value) if isinstance(value, int) else None
