"""The names that a service writes on messages, each in one place.

Owns the keys of Service Bus message annotations, the properties of dead-lettered
messages, and how a ping is marked. They are symbols, as on the wire; a symbol equals
the text with the same characters. Knows nothing about how they are encoded.
"""

from __future__ import annotations

from twinbus.wire.types import Symbol

SEQUENCE_NUMBER = Symbol("x-opt-sequence-number")
# The sequence number in the entity that the message was sent to first.
ENQUEUE_SEQUENCE_NUMBER = Symbol("x-opt-enqueue-sequence-number")
ENQUEUED_TIME = Symbol("x-opt-enqueued-time")
LOCKED_UNTIL = Symbol("x-opt-locked-until")
MESSAGE_STATE = Symbol("x-opt-message-state")
DEAD_LETTER_SOURCE = Symbol("x-opt-deadletter-source")
PARTITION_ID = Symbol("x-opt-partition-id")

# Only the broker writes these: it ignores what a sender put there.
BROKER_ANNOTATIONS = frozenset(
    (
        SEQUENCE_NUMBER,
        ENQUEUE_SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        MESSAGE_STATE,
        DEAD_LETTER_SOURCE,
        PARTITION_ID,
    )
)

# A delivery annotation; all others are message annotations.
LOCK_TOKEN = Symbol("x-opt-lock-token")

# Written by senders.
SCHEDULED_ENQUEUE_TIME = Symbol("x-opt-scheduled-enqueue-time")
PARTITION_KEY = Symbol("x-opt-partition-key")
VIA_PARTITION_KEY = Symbol("x-opt-via-partition-key")

# Values of `MESSAGE_STATE`.
STATES = {0: "active", 1: "deferred", 2: "scheduled"}

# Application properties of a dead-lettered message.
DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"

# The descriptor of a duration, whose value is in units of 100 ns.
TIMESPAN = Symbol("com.microsoft:timespan")

# A server that never stores pings offers this in `open`.
PING_CAPABILITY = Symbol("twinbus:ping")
PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
