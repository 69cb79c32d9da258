"""Batches: filled by bytes, in order, readable by a server."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.site import message
from twinbus import limits
from twinbus.client.message import Message
from twinbus.errors import MessageTooLarge
from twinbus.wire.message.batch import LinkLimits, pack
from twinbus.wire.message.sections import BATCH_FORMAT, split_batch

ROOM = LinkLimits(4000, 4000)


@given(st.lists(st.integers(0, 3000), max_size=60))
def test_all_messages_come_out_in_their_order(sizes: list[int]) -> None:
    sent = [message(b"x" * size) for size in sizes]

    parcels = list(pack(sent, ROOM))

    found: list[bytes] = []
    for parcel in parcels:
        assert parcel.first == len(found)
        is_batch = parcel.form == BATCH_FORMAT
        inner = split_batch(parcel.payload) if is_batch else [parcel.payload]
        assert parcel.length == len(inner)
        assert len(parcel.payload) <= ROOM.batch_bytes_max
        found += inner
    assert found == sent


@given(st.lists(st.integers(0, 3000), min_size=2, max_size=60))
def test_neighbouring_batches_do_not_fit_into_one(sizes: list[int]) -> None:
    parcels = list(pack([message(b"x" * size) for size in sizes], ROOM))

    # What a section and an envelope add at most.
    slack = 64
    for one, other in itertools.pairwise(parcels):
        first = split_batch(other.payload)[0] if other.form else other.payload
        assert len(one.payload) + len(first) + slack > ROOM.batch_bytes_max


def test_a_message_alone_goes_as_it_is() -> None:
    sent = message(b"x" * 3000)

    (parcel,) = pack([sent], ROOM)

    assert (parcel.payload, parcel.form) == (sent, 0)


def test_a_message_may_be_larger_than_a_batch() -> None:
    sent = [message(b"x" * 3000), message(), message()]

    parcels = list(pack(sent, LinkLimits(4000, 1000)))

    assert [parcel.length for parcel in parcels] == [1, 2]


def test_one_message_that_is_too_large_refuses_all() -> None:
    with pytest.raises(MessageTooLarge, match="Message 1 has"):
        next(pack([message(), message(b"x" * 5000)], ROOM))


def test_a_batch_has_a_bounded_message_count() -> None:
    sent = [b"\x00\x53\x75\xa0\x00"] * (limits.BATCH_MESSAGES_MAX + 1)

    parcels = list(pack(sent, LinkLimits(1 << 20, 1 << 20)))

    assert [parcel.length for parcel in parcels] == [limits.BATCH_MESSAGES_MAX, 1]


def test_the_envelope_names_the_first_message_and_its_session() -> None:
    sent = [message(session_id="s"), message(session_id="s")]

    (parcel,) = pack(sent, ROOM)

    envelope = Message(parcel.payload)
    assert envelope.message_id == Message(sent[0]).message_id
    assert envelope.session_id == "s"
