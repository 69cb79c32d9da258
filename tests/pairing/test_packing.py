"""Sizes, batches and ids on the way into a backlog queue."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pairing.messages import canonical, messages, section
from twinbus import limits
from twinbus.errors import MessageTooLarge, TwinbusError
from twinbus.pairing.errors import InvalidMessage, MessageTooLargeForBacklog
from twinbus.pairing.events import EventKind
from twinbus.pairing.rules import envelope, packing
from twinbus.wire.codec import encode
from twinbus.wire.message import sections

NOW_MS = 1_700_000_000_000
LIMIT = limits.MESSAGE_BYTES_MAX


def plain(size: int, message_id: str | None = "id") -> bytes:
    """A message of exactly this many bytes."""
    message = sections.encode_message(b"", {0: message_id} if message_id else None)
    body = size - len(message) - 3
    found = sections.encode_message(
        b"x" * body, {0: message_id} if message_id else None
    )
    assert len(found) == size
    return found


def batch_of(*inner: bytes) -> bytes:
    return b"".join(section(sections.DATA, each) for each in inner)


# -- sizes -------------------------------------------------------------------------


def escapes_bytes(original: bytes) -> int:
    """What names that collide with ours cost beyond the headroom."""
    own = sections.read_application_properties(sections.parse(original).bare)
    names = [name.lower() for name in own]
    count = sum(
        name in envelope.ALIASES or name.startswith(envelope.ESCAPE) for name in names
    )
    return count * (len(envelope.ESCAPE) + 3)


@settings(max_examples=75)
@given(messages(), st.sampled_from(["q", "x" * 260]))
def test_a_message_grows_by_the_headroom_at_most(original: bytes, path: str) -> None:
    grown = len(envelope.divert(original, path, NOW_MS)) - len(original)

    try:
        escapes = escapes_bytes(original)
    except TwinbusError:
        # A message that no broker takes has no limit.
        return
    assert grown <= packing.headroom_bytes(path) + escapes
    assert packing.headroom_bytes(path) <= packing.HEADROOM_BYTES_MAX


def test_a_message_that_fits_the_entity_but_not_the_backlog_is_refused() -> None:
    message = plain(LIMIT)

    with pytest.raises(MessageTooLargeForBacklog) as caught:
        packing.divert(message, "orders", NOW_MS, LIMIT)

    assert isinstance(caught.value, MessageTooLarge)
    assert caught.value.path == "orders"
    assert caught.value.limit_bytes == LIMIT
    assert caught.value.size_bytes == len(envelope.divert(message, "orders", NOW_MS))
    assert str(LIMIT) in str(caught.value)
    assert str(caught.value.size_bytes) in str(caught.value)


def test_a_message_that_leaves_the_headroom_always_fits() -> None:
    message = plain(LIMIT - packing.headroom_bytes("orders"))

    packed = packing.divert(message, "orders", NOW_MS, LIMIT)

    assert len(packed.payload) <= LIMIT
    assert packed.message_format == 0


def test_properties_that_grow_over_their_limit_are_refused() -> None:
    half = "x" * (limits.PROPERTIES_BYTES_MAX // 2 - 100)
    own = {"a": half, "b": half, "c": "y" * 100}
    message = section(sections.APPLICATION_PROPERTIES, own)
    sections.parse(message)

    with pytest.raises(MessageTooLargeForBacklog, match="properties"):
        packing.divert(message, "orders" * 10, NOW_MS, LIMIT)


def test_a_large_body_is_not_taken_for_large_properties() -> None:
    assert packing.divert(plain(100_000), "orders", NOW_MS, LIMIT).count == 1


# -- found while all is well -------------------------------------------------------


def test_what_could_not_fail_over_is_told_once_while_healthy() -> None:
    watch = packing.HeadroomWatch("orders")
    message = plain(LIMIT)
    assert len(message) > watch.threshold_bytes

    event = watch.check(message, False, NOW_MS)

    assert event is not None
    assert event.kind is EventKind.MESSAGE_TOO_LARGE
    assert event.path == "orders"
    assert isinstance(event.cause, MessageTooLargeForBacklog)
    assert len(message) <= watch.threshold_bytes
    watch.set_limit(1_000)
    assert len(message) <= watch.threshold_bytes


def test_what_fits_is_not_told() -> None:
    watch = packing.HeadroomWatch("orders")
    message = plain(LIMIT - 1_000)
    assert len(message) > watch.threshold_bytes

    assert watch.check(message, False, NOW_MS) is None


def test_small_messages_need_no_look() -> None:
    watch = packing.HeadroomWatch("orders")

    assert watch.threshold_bytes > 60_000
    watch.set_limit(1_000)
    assert watch.threshold_bytes < 1_000


def test_a_batch_is_looked_at_message_by_message() -> None:
    watch = packing.HeadroomWatch("orders", 10_000)
    fits, does_not = plain(9_000), plain(10_000)

    assert watch.check(batch_of(fits, fits), True, NOW_MS) is None
    assert watch.check(batch_of(fits, does_not), True, NOW_MS) is not None


# -- batches -----------------------------------------------------------------------


def test_a_batch_goes_whole_converted_message_by_message() -> None:
    originals = [plain(400, f"id-{n}") for n in range(10)]

    (packed,) = packing.divert_batch(batch_of(*originals), "orders", NOW_MS, LIMIT)

    assert packed.count == 10
    assert packed.message_format == sections.BATCH_FORMAT
    inner = sections.split_batch(packed.payload)
    assert [envelope.restore(each) for each in inner] == [
        ("orders", each) for each in originals
    ]


def test_a_batch_that_conversion_makes_too_large_is_split_never_refused() -> None:
    originals = [plain(300, f"id-{n}") for n in range(100)]
    payload = batch_of(*originals)

    packed = packing.divert_batch(payload, "orders", NOW_MS, len(payload))

    assert len(packed) == 2
    assert all(len(each.payload) <= len(payload) for each in packed)
    inner = [m for each in packed for m in sections.split_batch(each.payload)]
    assert [envelope.restore(each)[1] for each in inner] == originals


def test_a_message_that_is_left_alone_travels_without_a_batch() -> None:
    originals = [plain(4_000, "a"), plain(4_000, "b")]

    packed = packing.divert_batch(batch_of(*originals), "orders", NOW_MS, 5_000)

    assert [each.message_format for each in packed] == [0, 0]
    assert [envelope.restore(each.payload)[1] for each in packed] == originals


def test_a_batch_with_a_message_that_cannot_fail_over_is_refused_as_a_whole() -> None:
    payload = batch_of(plain(400), plain(5_000))

    with pytest.raises(MessageTooLargeForBacklog):
        packing.divert_batch(payload, "orders", NOW_MS, 5_000)


def test_a_batch_holds_no_more_messages_than_a_broker_takes() -> None:
    count = limits.BATCH_MESSAGES_MAX + 1

    packed = packing.pack([b"\x00\x53\x75\xa0\x00"] * count, LIMIT)

    assert [each.count for each in packed] == [limits.BATCH_MESSAGES_MAX, 1]


def test_a_batch_without_messages_needs_no_transfer() -> None:
    assert packing.divert_batch(b"", "orders", NOW_MS, LIMIT) == []


def test_bytes_that_are_no_batch_are_the_callers_fault() -> None:
    value = section(sections.VALUE, "x")

    with pytest.raises(InvalidMessage):
        packing.divert_batch(value, "orders", NOW_MS, LIMIT)
    with pytest.raises(InvalidMessage):
        packing.batch_with_message_ids(value, lambda: "new")


@settings(max_examples=25)
@given(st.lists(messages(), min_size=1, max_size=5))
def test_restore_of_divert_is_the_batch(originals: list[bytes]) -> None:
    limit = 10 * 1024 * 1024
    packed = packing.divert_batch(batch_of(*originals), "orders", NOW_MS, limit)

    found = [
        inner
        for each in packed
        for inner in (
            sections.split_batch(each.payload) if each.count > 1 else [each.payload]
        )
    ]
    assert [canonical(envelope.restore(each)[1]) for each in found] == [
        canonical(each) for each in originals
    ]


# -- ids and schedules -------------------------------------------------------------


def test_a_message_without_an_id_gets_one() -> None:
    message = plain(600, None)

    named = packing.with_message_id(message, lambda: "new")

    assert sections.parse(named).message_id == "new"
    assert named.endswith(message[-300:])


@pytest.mark.parametrize("own", ["id", "", 5, b"raw"])
def test_a_message_with_an_id_is_not_changed(own: object) -> None:
    message = section(sections.PROPERTIES, [own])

    assert packing.with_message_id(message, lambda: "new") is message


def test_every_message_of_a_batch_gets_an_id_and_the_envelope_is_kept() -> None:
    hints = section(sections.PROPERTIES, ["hint"])
    payload = hints + batch_of(plain(600, None), plain(600, "own"), plain(600, None))
    ids = iter(["first", "second"])

    named = packing.batch_with_message_ids(payload, lambda: next(ids))

    assert named.startswith(hints)
    inner = sections.split_batch(named)
    assert [sections.parse(each).message_id for each in inner] == [
        "first",
        "own",
        "second",
    ]


def test_bytes_that_are_no_message_get_no_id() -> None:
    with pytest.raises(InvalidMessage):
        packing.with_message_id(encode("text"), lambda: "new")


def test_a_message_can_be_scheduled_for_another_time() -> None:
    once = packing.with_scheduled_time(plain(600), NOW_MS)

    again = packing.with_scheduled_time(once, NOW_MS + 5)

    assert sections.parse(once).scheduled_ms == NOW_MS
    assert sections.parse(again).scheduled_ms == NOW_MS + 5
    assert sections.parse(again).bare == sections.parse(plain(600)).bare
    diverted = envelope.divert(again, "orders", NOW_MS)
    assert envelope.Backlogged(diverted).aliases().scheduled_ms == NOW_MS + 5


def test_bytes_that_are_no_message_are_not_scheduled() -> None:
    with pytest.raises(InvalidMessage):
        packing.with_scheduled_time(b"\x00", NOW_MS)
