"""What a sender takes, as encoded messages.

Owns which arguments `send_messages` accepts: a message, an iterable of them, a batch of
ours, or a batch that the official client made. Everything is converted before anything
is sent, so that a message that cannot be sent is the caller's mistake and never counts
as a failure of an entity. How one message is encoded is `messages.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any
from uuid import uuid4

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from twinbus.pairing.rules.packing import with_message_id
from twinbus.pairing.sdk.batch import MessageBatch
from twinbus.pairing.sdk.messages import payload_of

# Filters of warnings belong to the process; at least we do not disturb ourselves.
_warnings = Lock()


def payloads_of(messages: Any, with_id: bool) -> list[bytes] | bytes:
    """Encode what `send_messages` was given: bytes for one message, a list for more.

    `with_id` puts a new id on every message that has none. The caller's objects stay as
    they are.
    """
    if isinstance(messages, (ServiceBusMessage, dict)):
        return payload_of(messages, with_id)
    if isinstance(messages, MessageBatch):
        return _with_ids(messages.payloads, with_id and not messages.with_ids)
    if isinstance(messages, ServiceBusMessageBatch):
        return _with_ids(_payloads_of_foreign(messages), with_id)
    if isinstance(messages, Iterable) and not isinstance(messages, Mapping):
        return [payload_of(message, with_id) for message in messages]
    return payload_of(messages, with_id)


def _with_ids(payloads: list[bytes], with_id: bool) -> list[bytes]:
    if not with_id:
        return list(payloads)
    return [with_message_id(payload, _new_id) for payload in payloads]


def _new_id() -> str:
    return uuid4().hex


def _payloads_of_foreign(batch: ServiceBusMessageBatch) -> list[bytes]:
    """The messages of a batch that the official client made, as it encoded them.

    Its deprecated `message` is the only public way to them. It remembers what it once
    gave out, even if messages are added later, so that is cleared before and after.
    """
    with _warnings, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        batch.message = None
        sections = batch.message.get_data()
        payloads = [bytes(section) for section in sections or ()]
        batch.message = None
    if len(payloads) != len(batch):
        raise ValueError(
            f"Of {len(batch)} messages in the batch, {len(payloads)} can be read. Make "
            "the batch with this sender's create_message_batch()."
        )
    return payloads


__all__ = ["payload_of", "payloads_of"]
