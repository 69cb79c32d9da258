"""How a message looks in a history.

Owns what is written down about a message that a receiver or the final look has seen.
Both write the same, so the checker can compare them with what the sender wrote.
"""

from __future__ import annotations

import hashlib
from typing import Any

from twinbus.client.message import Message
from twinbus.wire.codec import decode
from twinbus.wire.message import sections
from twinbus.wire.message.names import SCHEDULED_ENQUEUE_TIME


def digest_of(body: bytes) -> str:
    """A fingerprint of the contents."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def body_of(message: Message) -> bytes:
    """The contents of a message that has one section of them."""
    for code, _begin, start, _end in sections.find_sections(message.payload):
        if code == sections.DATA:
            return bytes(decode(message.payload, start)[0])
    return b""


def content_type_of(message: Message) -> str:
    """What kind of contents it says to have; a ping says that it is one."""
    return str(message.properties[sections.CONTENT_TYPE] or "")


def seen(message: Message) -> dict[str, Any]:
    """What there is to know about a message, as an event has it."""
    due = message.annotations.get(SCHEDULED_ENQUEUE_TIME)
    return {
        "key": str(message.message_id or ""),
        "session": message.session_id or "",
        "sequence": message.sequence_number,
        "digest": digest_of(body_of(message)),
        "content_type": content_type_of(message),
        "enqueued_at": message.enqueued_ms or 0,
        "ttl_ms": int(message.header[2] or 0),
        "not_before": int(due) if isinstance(due, int) else 0,
    }


def token_of(message: Message) -> str:
    """Names one delivery; the deliveries of one session share their lock."""
    return f"{message.lock_token}/{message.delivery_count}"


def delivered(message: Message, session_until_ms: int | None) -> dict[str, Any]:
    """The same for a delivery, with its lock; that of its session where it has one."""
    return {
        **seen(message),
        "token": token_of(message),
        "lock_until": session_until_ms or message.locked_until_ms or 0,
        # On the wire the first delivery is number 0.
        "delivery_count": message.delivery_count + 1,
    }
