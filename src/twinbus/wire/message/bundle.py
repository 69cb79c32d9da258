"""Messages that came together and are alike, joined.

A turn that looks at thousands of messages one by one waits for memory: each is a dozen
objects, and all of them do not fit into the processor's cache. So alike messages are
joined where they are read, while they are in the cache, and only the joined bytes wait
for the turn.

Owns what makes messages alike, and the way back to single messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, final

from twinbus import limits
from twinbus.wire.message.sections import PING_CONTENT_TYPE, Incoming, parse

# What is the same in all messages of a bundle: all that stands before the bare message,
# and what the bare message says of its session.
_SHARED = attrgetter(
    "durable",
    "first_acquirer",
    "priority",
    "pairs_count",
    "delivery_count",
    "pairs",
    "delivery",
    "ttl_ms",
    "session_id",
    "partition_key",
    "scheduled_ms",
)
# Those that a bundle has none of.
_NONE = (None,) * 4
_message_id = attrgetter("message_id")
_content_type = attrgetter("content_type")


@final
class Bundle:
    """Messages with an id each, and without session, keys, schedule or time to live.

    `is_batch` says that they were sent as one; else each is a delivery of its own. It
    is never changed.
    """

    __slots__ = ("bares", "first", "is_batch", "largest_bytes", "sizes")

    def __init__(
        self, first: Incoming, sizes: list[int], bares: bytes, is_batch: bool
    ) -> None:
        # All have its head.
        self.first = first
        # The lengths of the bare messages, which follow each other in `bares`.
        self.sizes = sizes
        self.bares = bares
        self.is_batch = is_batch
        self.largest_bytes = max(sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def messages(self) -> list[Incoming]:
        """The messages, each on its own."""
        ends = accumulate(self.sizes, initial=0)
        return [self._message(self.bares[at:end]) for at, end in pairwise(ends)]

    def _message(self, bare: bytes) -> Incoming:
        message, first = parse(bare), self.first
        message.durable = first.durable
        message.first_acquirer = first.first_acquirer
        message.priority = first.priority
        message.pairs, message.pairs_count = first.pairs, first.pairs_count
        message.delivery = first.delivery
        message.delivery_count = first.delivery_count
        return message


def bundled(messages: Sequence[Incoming], is_batch: bool) -> Bundle | None:
    """Join messages; None if they are too few, too large or not alike."""
    if len(messages) < limits.PACK_MESSAGES_MIN:
        return None
    shared: set[Any] = set(map(_SHARED, messages))
    if len(shared) > 1 or shared.pop()[-4:] != _NONE:
        return None
    ids = list(map(_message_id, messages))
    if set(map(type, ids)) != {str} or max(map(len, ids)) > limits.MESSAGE_ID_CHARS_MAX:
        return None
    if PING_CONTENT_TYPE in map(_content_type, messages):
        return None
    bares = [message.bare for message in messages]
    sizes = list(map(len, bares))
    if max(sizes) > limits.PACKED_MESSAGE_BYTES_MAX:
        # No store would keep it with others. And what comes apart is read again, which
        # a message must not fail that was given an id at the limit of its properties.
        return None
    return Bundle(messages[0], sizes, b"".join(bares), is_batch)
