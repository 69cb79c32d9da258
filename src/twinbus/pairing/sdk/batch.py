"""A batch: messages that are encoded when they are added, and sent in one transfer.

Owns the public surface of the official client's `ServiceBusMessageBatch`. What it says
about its size is what `wire/message/batch.py` will send: one message goes as it is,
several go in an envelope. The rule: a batch that was filled here needs one transfer.
"""

from __future__ import annotations

import sys
from typing import Any

from azure.servicebus.exceptions import MessageSizeExceededError

from twinbus import limits
from twinbus.pairing.sdk.messages import payload_of
from twinbus.wire.message.batch import LinkLimits, pack

# Bytes of a data section beyond its message, if that has less than 256 and if not.
_SECTION_BYTES_SHORT = 5
_SECTION_BYTES = 8
_SHORT_BYTES = 256


class MessageBatch:
    """Messages to be sent together; made by a sender's `create_message_batch`."""

    def __init__(self, max_size_in_bytes: int, with_ids: bool = True) -> None:
        # The encoded messages, in the order of sending.
        self.payloads: list[bytes] = []
        # Whether every message gets an id that has none.
        self.with_ids = with_ids
        self._max_size_in_bytes = max_size_in_bytes
        self._size_in_bytes = 0

    def __repr__(self) -> str:
        return (
            f"MessageBatch(max_size_in_bytes={self._max_size_in_bytes}, "
            f"message_count={len(self.payloads)})"
        )

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def max_size_in_bytes(self) -> int:
        """How many bytes the batch may have."""
        return self._max_size_in_bytes

    @property
    def size_in_bytes(self) -> int:
        """How many bytes the batch has, as it will be sent."""
        return self._size_in_bytes

    def add_message(self, message: Any) -> None:
        """Add a message, a dict that describes one, or an annotated message.

        `MessageSizeExceededError` if there is no room for it; the batch stays as it is.
        """
        payload = payload_of(message, self.with_ids)
        if len(self.payloads) >= limits.BATCH_MESSAGES_MAX:
            raise MessageSizeExceededError(
                message="The batch has the most messages that one may have, "
                f"{limits.BATCH_MESSAGES_MAX}. Send it, and start another."
            )
        size = self._size_with(payload)
        if size > self._max_size_in_bytes:
            raise MessageSizeExceededError(message=self._no_room(payload, size))
        self.payloads.append(payload)
        self._size_in_bytes = size

    def _size_with(self, payload: bytes) -> int:
        if not self.payloads:
            return len(payload)
        if len(self.payloads) > 1:
            return self._size_in_bytes + _section_bytes(payload)
        return _pair_bytes(self.payloads[0]) + _section_bytes(payload)

    def _no_room(self, payload: bytes, size: int) -> str:
        if not self.payloads:
            return (
                f"The message has {len(payload)} bytes, and the batch takes at most "
                f"{self._max_size_in_bytes}. Make the message smaller."
            )
        return (
            f"The batch would have {size} bytes, and it takes at most "
            f"{self._max_size_in_bytes}. Send it, and start another."
        )


def _section_bytes(payload: bytes) -> int:
    size = len(payload)
    return size + (_SECTION_BYTES_SHORT if size < _SHORT_BYTES else _SECTION_BYTES)


def _pair_bytes(first: bytes) -> int:
    """Bytes of a batch that starts with this message, before its second one."""
    (parcel,) = pack((first, b""), LinkLimits(sys.maxsize, sys.maxsize))
    return len(parcel.payload) - _SECTION_BYTES_SHORT
