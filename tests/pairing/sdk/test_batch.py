"""A batch knows its size: the size of the one transfer that it becomes."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError
from hypothesis import given
from hypothesis import strategies as st

from twinbus import limits
from twinbus.pairing.sdk.batch import MessageBatch
from twinbus.pairing.sdk.conversion import payload_of
from twinbus.wire.message import sections
from twinbus.wire.message.batch import LinkLimits, pack

MESSAGE_BYTES_MAX = 1024 * 1024

_SIZES = st.integers(0, 300) | st.integers(150, 260) | st.integers(0, 70_000)
_MESSAGES = st.builds(
    ServiceBusMessage,
    _SIZES.map(bytes),
    session_id=st.none() | st.text(max_size=20),
    message_id=st.none() | st.text(max_size=100),
)


def filled(batch: Any, messages: list[ServiceBusMessage]) -> None:
    for message in messages:
        batch.add_message(message)


@given(st.lists(_MESSAGES, max_size=8))
def test_its_size_is_that_of_its_only_transfer(
    messages: list[ServiceBusMessage],
) -> None:
    batch = MessageBatch(MESSAGE_BYTES_MAX)

    filled(batch, messages)

    assert len(batch) == len(messages)
    parcels = list(
        pack(batch.payloads, LinkLimits(MESSAGE_BYTES_MAX, batch.size_in_bytes))
    )
    assert sum(len(parcel.payload) for parcel in parcels) == batch.size_in_bytes
    assert len(parcels) == bool(messages)


@given(st.lists(_MESSAGES, min_size=1, max_size=8))
def test_the_last_byte_counts(messages: list[ServiceBusMessage]) -> None:
    whole = MessageBatch(MESSAGE_BYTES_MAX)
    filled(whole, messages)
    exact, small = (MessageBatch(whole.size_in_bytes - less) for less in (0, 1))

    filled(exact, messages)
    filled(small, messages[:-1])
    size = small.size_in_bytes
    with pytest.raises(MessageSizeExceededError):
        small.add_message(messages[-1])

    assert exact.payloads == whole.payloads
    assert exact.size_in_bytes == exact.max_size_in_bytes
    assert (small.payloads, small.size_in_bytes) == (whole.payloads[:-1], size)


def test_it_takes_what_the_official_one_takes() -> None:
    taken: list[Any] = [
        ServiceBusMessage("a"),
        AmqpAnnotatedMessage(data_body="b"),
        {"body": "c"},
    ]
    ours, theirs = MessageBatch(1000), ServiceBusMessageBatch(1000)

    for batch in (ours, theirs):
        filled(batch, taken)

    assert len(ours) == len(theirs) == 3
    assert ours.max_size_in_bytes == theirs.max_size_in_bytes == 1000
    assert repr(ours) == "MessageBatch(max_size_in_bytes=1000, message_count=3)"
    with pytest.raises(TypeError, match="Only AmqpAnnotatedMessage"):
        ours.add_message("text")
    assert len(ours) == 3


def test_messages_get_ids_if_that_is_wanted() -> None:
    message = AmqpAnnotatedMessage(data_body="a")
    with_ids, without = MessageBatch(1000), MessageBatch(1000, with_ids=False)
    filled(with_ids, [message])  # type: ignore[list-item]
    filled(without, [message])  # type: ignore[list-item]

    assert sections.read_properties(with_ids.payloads[0])[0] is not None
    assert sections.read_properties(without.payloads[0])[0] is None


def test_a_message_that_never_fits_is_named_with_its_size() -> None:
    message = ServiceBusMessage("x" * 2000)
    size = len(payload_of(message, True))

    with pytest.raises(MessageSizeExceededError, match=f"The message has {size} bytes"):
        MessageBatch(1000).add_message(message)


def test_it_has_no_more_messages_than_a_transfer_may_have() -> None:
    batch = MessageBatch(MESSAGE_BYTES_MAX)
    message = ServiceBusMessage("")
    filled(batch, [message] * limits.BATCH_MESSAGES_MAX)

    with pytest.raises(MessageSizeExceededError, match="the most messages"):
        batch.add_message(message)
    assert len(list(pack(batch.payloads, LinkLimits(1 << 20, 1 << 20)))) == 1
