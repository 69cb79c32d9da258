"""What a message may say, and what an entity takes.

Owns the checks that need no more than an entity and messages, and change nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from twinbus import limits
from twinbus.errors import (
    CallerError,
    EntityDisabled,
    InvalidField,
    MessageTooLarge,
    QuotaExceeded,
)
from twinbus.server.broker.directory.entity import Entity
from twinbus.wire.message.sections import Incoming


def check_open(entity: Entity) -> None:
    """Refuse to send to an entity that is disabled for that."""
    status = entity.description.status
    if not status.can_send:
        raise EntityDisabled(
            f"'{entity.name}' is disabled for sending ({status.value})."
        )


def check_each(entity: Entity, messages: Iterable[Incoming]) -> int:
    """Refuse messages that the entity does not take; returns their bytes."""
    size_bytes = 0
    bytes_max = entity.message_bytes_max
    with_session = entity.requires_session
    for message in messages:
        message_bytes = len(message.bare)
        size_bytes += message_bytes
        if message_bytes > bytes_max:
            raise too_large(entity, message_bytes)
        message_id = message.message_id
        if (
            type(message_id) is not str
            or len(message_id) > limits.MESSAGE_ID_CHARS_MAX
            or message.session_id is not None
            or message.partition_key is not None
            or message.scheduled_ms is not None
        ):
            _check_fields(message)
        if with_session and message.session_id is None:
            raise CallerError(
                f"'{entity.name}' requires sessions: set a session id on the message."
            )
    return size_bytes


def too_large(entity: Entity, message_bytes: int) -> MessageTooLarge:
    """The error for a message of so many bytes."""
    return MessageTooLarge(
        f"The message has {message_bytes} bytes; '{entity.name}' takes at most "
        f"{entity.message_bytes_max}."
    )


def quota_exceeded(entity: Entity) -> QuotaExceeded:
    """The error for what does not fit into an entity."""
    return QuotaExceeded(
        f"'{entity.name}' has reached its maximum size of "
        f"{entity.size_bytes_max >> 20} MB. Receive messages, or raise "
        "max_size_in_megabytes."
    )


def _check_fields(message: Incoming) -> None:
    """Refuse ids that are too long, and keys that contradict each other."""
    message_id = message.message_id
    if isinstance(message_id, str | bytes):
        if len(message_id) > limits.MESSAGE_ID_CHARS_MAX:
            raise InvalidField(
                f"A message id has at most {limits.MESSAGE_ID_CHARS_MAX} characters."
            )
    elif message_id is not None and not isinstance(message_id, int | uuid.UUID):
        raise InvalidField("A message id is text, a number, a uuid or bytes.")
    session_id = message.session_id
    if session_id is not None and len(session_id) > limits.SESSION_ID_CHARS_MAX:
        raise InvalidField(
            f"A session id has at most {limits.SESSION_ID_CHARS_MAX} characters."
        )
    if (message.scheduled_ms or 0) > limits.TIME_MS_MAX:
        raise InvalidField("The scheduled enqueue time is after the year 9999.")
    key = message.partition_key
    if key is None:
        return
    if len(key) > limits.PARTITION_KEY_CHARS_MAX:
        raise InvalidField(
            f"A partition key has at most {limits.PARTITION_KEY_CHARS_MAX} characters."
        )
    if session_id and key != session_id:
        raise CallerError("The partition key must equal the session id.")
