"""Scheduling through `$management`: messages for later, and taking them back.

Rule: all messages of a request or none. They are all read and checked before the first
is kept. Knows nothing about how a message gets on its way: that is the namespace's.
"""

from __future__ import annotations

from typing import Any

from twinbus import limits
from twinbus.core.names import SubQueue
from twinbus.errors import (
    ArgumentError,
    ArgumentOutOfRange,
    CallerError,
    MessageNotFound,
    PeerError,
)
from twinbus.server.amqp.management.call import Arguments, Call, ManagementReply, done
from twinbus.store.base import SEQUENCE_MAX, State
from twinbus.wire.message import sections
from twinbus.wire.message.names import SCHEDULED_ENQUEUE_TIME
from twinbus.wire.message.sections import Incoming
from twinbus.wire.types import ARRAY_LONG, Array


def schedule(call: Call) -> ManagementReply:
    """Keep messages until their time; one whose time is past goes out at once."""
    _check_target(call)
    messages = [read_message(item) for item in call.arguments.items("messages")]
    numbers = map(call.shown, call.namespace.send(call.entity, messages, call.turn))
    return done({"sequence-numbers": Array(ARRAY_LONG, numbers)})


def cancel(call: Call) -> ManagementReply:
    """Forget scheduled messages, all or none."""
    _check_target(call)
    sequences = call.arguments.sequences()
    # One by one: together they might be larger than what memory should hold.
    for sequence in sequences:
        if not _is_scheduled(call, sequence):
            raise MessageNotFound(
                "There is no scheduled message with the sequence number "
                f"{call.shown(sequence)}."
            )
    for sequence in sequences:
        call.namespace.cancel(call.entity, [sequence])
    return done()


def _check_target(call: Call) -> None:
    if call.entity.kind == "subscription" or call.path.sub_queue is not SubQueue.NONE:
        raise CallerError(
            f"'{call.path.text}' takes no messages. Send to a queue or a topic."
        )


def _is_scheduled(call: Call, sequence: int) -> bool:
    if not 0 < sequence <= SEQUENCE_MAX:
        return False
    found = call.namespace.store.find(call.entity.id, [sequence])
    return any(stored.state == State.SCHEDULED for stored in found)


def read_message(item: Any) -> Incoming:
    """A message that is to be scheduled; refuses what could not be kept."""
    entry = Arguments(item, "an element of 'messages'")
    # They repeat what the message says, so they are only looked at.
    for key in ("session-id", "partition-key", "via-partition-key"):
        entry.optional_text(key)
    try:
        message = sections.parse(entry.binary("message"))
        # Rules and dead-lettering read these later, when it is too late to refuse.
        sections.read_properties(message.bare)
        sections.read_application_properties(message.bare)
    except PeerError as error:
        raise ArgumentError(f"'message' cannot be read: {error.text}") from None
    if message.content_type == sections.PING_CONTENT_TYPE:
        raise ArgumentError("'message' is a ping, which cannot be scheduled.")
    if message.scheduled_ms is None:
        raise ArgumentError(
            f"'message' has no {SCHEDULED_ENQUEUE_TIME}. Set the time, or send it."
        )
    if message.scheduled_ms > limits.TIME_MS_MAX:
        raise ArgumentOutOfRange(f"{SCHEDULED_ENQUEUE_TIME} is after year 9999.")
    return message
