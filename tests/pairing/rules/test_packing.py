"""Room for aliases, ids and scheduled times."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pairing.rules.messages import messages, section
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


def divert(message: bytes, path: str) -> bytes:
    """The message for a backlog queue, if one takes it."""
    diverted = envelope.divert(message, path, NOW_MS)
    packing.check_size(diverted, path, LIMIT)
    return diverted


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
        divert(message, "orders")

    assert isinstance(caught.value, MessageTooLarge)
    assert caught.value.path == "orders"
    assert caught.value.limit_bytes == LIMIT
    assert caught.value.size_bytes == len(envelope.divert(message, "orders", NOW_MS))
    assert str(LIMIT) in str(caught.value)
    assert str(caught.value.size_bytes) in str(caught.value)


def test_a_message_that_leaves_the_headroom_always_fits() -> None:
    message = plain(LIMIT - packing.headroom_bytes("orders"))

    assert len(divert(message, "orders")) <= LIMIT


def test_properties_that_grow_over_their_limit_are_refused() -> None:
    half = "x" * (limits.PROPERTIES_BYTES_MAX // 2 - 100)
    own = {"a": half, "b": half, "c": "y" * 100}
    message = section(sections.APPLICATION_PROPERTIES, own)
    sections.parse(message)

    with pytest.raises(MessageTooLargeForBacklog, match="properties"):
        divert(message, "orders" * 10)


def test_a_large_body_is_not_taken_for_large_properties() -> None:
    assert len(divert(plain(100_000), "orders")) > 100_000


# -- reported before an outage -------------------------------------------------------


def test_a_message_that_could_not_fail_over_is_reported_once() -> None:
    watch = packing.HeadroomWatch("orders")
    message = plain(LIMIT)
    assert len(message) > watch.threshold_bytes

    event = watch.check(message, NOW_MS)

    assert event is not None
    assert event.kind is EventKind.MESSAGE_TOO_LARGE
    assert event.path == "orders"
    assert isinstance(event.cause, MessageTooLargeForBacklog)
    assert len(message) <= watch.threshold_bytes
    watch.set_limit(1_000)
    assert len(message) <= watch.threshold_bytes


def test_a_message_that_fits_is_not_reported() -> None:
    watch = packing.HeadroomWatch("orders")
    message = plain(LIMIT - 1_000)
    assert len(message) > watch.threshold_bytes

    assert watch.check(message, NOW_MS) is None


def test_small_messages_are_below_the_threshold() -> None:
    watch = packing.HeadroomWatch("orders")

    assert watch.threshold_bytes > 60_000
    watch.set_limit(1_000)
    assert watch.threshold_bytes < 1_000


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
