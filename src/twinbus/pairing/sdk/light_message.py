"""A `ServiceBusMessage` that is cheap to make.

Owns `ServiceBusMessage`, a subclass of the official client's class with the same
arguments, attributes and errors. The official constructor makes four objects and takes
ten times as long as encoding the message. This one keeps its arguments, and calls the
official constructor when an attribute is first read or set. `messages.py` encodes a
message that was never looked at from its arguments.

Arguments that the official constructor refuses, or reads a clock for, go to it at once.
Knows nothing about bytes on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from azure.servicebus import ServiceBusMessage as OfficialMessage

from twinbus import limits

# Keywords whose text becomes a property as it is.
TEXT_KEYWORDS = frozenset(
    (
        "message_id",
        "to",
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "session_id",
        "reply_to_session_id",
    )
)
# Keywords that are kept as they are given.
_KEPT_KEYWORDS = frozenset(("body", "application_properties"))
# Keywords that say nothing if they are None.
_OTHER_KEYWORDS = frozenset(
    ("scheduled_enqueue_time_utc", "time_to_live", "partition_key")
)
# Of the texts that the official client limits, the shortest limit; longer ones go to
# its own constructor.
_TEXT_CHARS = limits.MESSAGE_ID_CHARS_MAX


def is_plain(given: Mapping[Any, Any]) -> bool:
    """Whether these arguments are a body, texts and application properties alone."""
    for key, value in given.items():
        if key in TEXT_KEYWORDS:
            if value is not None and (
                type(value) is not str or len(value) > _TEXT_CHARS
            ):
                return False
        elif key not in _KEPT_KEYWORDS and (
            value is not None or key not in _OTHER_KEYWORDS
        ):
            return False
    return type(given.get("body")) in (bytes, str)


class ServiceBusMessage(OfficialMessage):
    """The official client's message, made when it is needed."""

    if not TYPE_CHECKING:
        # Type checkers see the arguments of the official constructor.
        def __init__(self, body: Any, **fields: Any) -> None:
            fields["body"] = body
            if not is_plain(fields):
                super().__init__(**fields)
                return
            if type(body) is str:
                # Fails here for text that cannot be encoded, as the official one does.
                fields["body"] = body.encode()
            self._plain = fields

    def plain(self) -> dict[str, Any] | None:
        """The arguments, with an id; None once there is an official message."""
        fields: dict[str, Any] | None = self.__dict__.get("_plain")
        if fields is not None and not fields.get("message_id"):
            # As in the official client: the message keeps it.
            fields["message_id"] = str(uuid4())
        return fields

    def __getattr__(self, name: str) -> Any:
        """An attribute that is not there: the official constructor makes it."""
        fields = None if name.startswith("__") else self.plain()
        if fields is None:
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute '{name}'"
            )
        super().__init__(**fields)
        self.__dict__.pop("_plain", None)
        return getattr(self, name)
