"""What can be done with a locked message, in both languages of the server.

On the link that brought a message a settlement is a delivery state; through
`$management`, when that link is gone, it is a map.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twinbus.wire.message import names
from twinbus.wire.performatives import ACCEPTED, Error, Modified, Rejected
from twinbus.wire.types import Symbol

_DEAD_LETTER = "com.microsoft:dead-letter"


@dataclass(frozen=True, slots=True)
class Settlement:
    """One decision. `status` is the word that `$management` has for it."""

    status: str
    # Application properties to set on the message.
    properties: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    description: str | None = None

    def state(self) -> Any:
        """The decision as a delivery state."""
        if self.status == "completed":
            return ACCEPTED
        if self.status == "suspended":
            return Rejected(self._dead_letter())
        # The words of the Python SDK; what defers is the second.
        deferred = self.status == "defered"
        return Modified(True, deferred, dict(self.properties) or None)

    def _dead_letter(self) -> Error:
        info: dict[Any, Any] = dict(self.properties)
        info[Symbol(names.DEAD_LETTER_REASON)] = self.reason
        info[Symbol(names.DEAD_LETTER_DESCRIPTION)] = self.description
        return Error(_DEAD_LETTER, self.description, info)

    def request(self) -> dict[str, Any]:
        """The decision as part of a management request."""
        body: dict[str, Any] = {"disposition-status": self.status}
        if self.properties:
            body["properties-to-modify"] = dict(self.properties)
        if self.status == "suspended":
            body["deadletter-reason"] = self.reason
            body["deadletter-description"] = self.description
        return body


COMPLETE = Settlement("completed")


def abandon(properties: dict[str, Any] | None = None) -> Settlement:
    """Give it back, counted."""
    return Settlement("abandoned", properties or {})


def defer(properties: dict[str, Any] | None = None) -> Settlement:
    """Put it aside; only its number brings it back."""
    return Settlement("defered", properties or {})


def dead_letter(
    reason: str | None, description: str | None, properties: dict[str, Any] | None
) -> Settlement:
    """Move it to the dead-letter queue."""
    return Settlement("suspended", properties or {}, reason, description)
