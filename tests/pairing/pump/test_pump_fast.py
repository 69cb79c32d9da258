"""The fast path restores a message as the general path does, or returns None."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.pairing.rules import messages
from tests.pairing.rules.messages import section
from twinbus.client.message import Message
from twinbus.errors import TwinbusError
from twinbus.pairing.rules import envelope
from twinbus.pairing.rules.envelope_fast import fast_restore
from twinbus.pairing.rules.ping import ping_message
from twinbus.pairing.rules.syphon_rules import (
    DeadLetter,
    Drop,
    Outcome,
    SendToPrimary,
    decide,
    remaining_ttl_ms,
)
from twinbus.wire.message import sections
from twinbus.wire.message.fast_delivery import read_stamp
from twinbus.wire.message.rendering import BrokerFields, render
from twinbus.wire.types import Symbol, Timestamp

T0 = 1_700_000_000_000
TOKEN = bytes(range(16))


def delivered(payload: bytes, deliveries: int = 0) -> bytes:
    """A message as our server delivers it with a lock."""
    incoming = sections.parse(payload)
    out = BrokerFields(7, T0 + 1, deliveries)
    out.token = TOKEN
    out.locked_until_ms = T0 + 60_000
    return render(out, incoming.head(), incoming.bare)


def slow(payload: bytes, now_ms: int, ttl_rule: str) -> Outcome:
    """The decision of the general path."""
    message = envelope.Backlogged(payload)
    if message.is_ping:
        return Drop()
    aliases = message.aliases()
    ttl_ms = remaining_ttl_ms(aliases, message.enqueued_ms, now_ms, ttl_rule)
    if ttl_ms is not None and ttl_ms <= 0:
        return DeadLetter("TTLExpiredException", "")
    return SendToPrimary(aliases.path, message.restored(aliases, ttl_ms))


def usual(
    properties: dict[str, Any] | None = None, body: bytes = b"body", **fields: Any
) -> bytes:
    """A message as applications send it."""
    known = {0: "id", 10: fields.get("session_id"), 6: fields.get("content_type")}
    out = sections.encode_message(body, known, fields.get("ttl_ms"))
    if properties is not None:
        at = out.index(b"\x00\x53\x75")
        named = section(sections.APPLICATION_PROPERTIES, properties)
        out = out[:at] + named + out[at:]
    return out


USUAL = [
    usual(),
    usual(body=b"x" * 1024),
    usual(ttl_ms=3_600_000),
    usual(session_id="session"),
    usual(session_id="s" * 120, ttl_ms=86_400_000, body=b"x" * 300),
    usual({"a": 1, "b": "text", "c": True, "d": 1.5, "e": None}),
    usual({"a": "x"}, session_id="s", ttl_ms=1_000_000),
    usual(content_type="application/json"),
    usual(ttl_ms=0xFFFFFFFF),
]
UNUSUAL = [
    usual({"x-ms-path": "mine"}),
    usual({"X-MS-Path": "mine"}),
    usual({"x-twinbus-user-a": "mine"}),
    usual({"a": "x" * 300}),
    usual(session_id="s" * 120, content_type="c" * 120),
    usual(ttl_ms=1),
    ping_message("s", "id"),
    section(
        sections.MESSAGE_ANNOTATIONS,
        {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(T0 + 5)},
    )
    + usual(),
    section(sections.MESSAGE_ANNOTATIONS, {Symbol("x-opt-partition-key"): "s"})
    + usual(session_id="s"),
    usual() + section(sections.FOOTER, {Symbol("a"): 1}),
    usual() + section(sections.DATA, b"more"),
]


@pytest.mark.parametrize("payload", USUAL)
def test_usual_messages_take_the_fast_path(payload: bytes) -> None:
    found = delivered(envelope.divert(payload, "Orders", T0))

    for rule in ("remaining", "restart"):
        expected = slow(found, T0 + 100, rule)
        assert isinstance(expected, SendToPrimary)
        fast = fast_restore(found, T0 + 100, rule == "restart")
        assert fast == (expected.path, expected.payload)


@pytest.mark.parametrize("payload", UNUSUAL)
def test_unusual_messages_take_the_general_path(payload: bytes) -> None:
    found = delivered(envelope.divert(payload, "Orders", T0))

    assert fast_restore(found, T0 + 100, False) is None
    assert type(decide(found, T0 + 100)) is type(slow(found, T0 + 100, "remaining"))


def test_expired_messages_take_the_general_path() -> None:
    found = delivered(envelope.divert(usual(ttl_ms=60_000), "orders", T0))

    assert fast_restore(found, T0 + 60_000, False) is None
    assert fast_restore(found, T0 + 60_000, True) is not None
    assert isinstance(decide(found, T0 + 60_000), DeadLetter)


def test_equal_properties_leave_each_message_its_own_times() -> None:
    """What is remembered of properties must not hold what differs between messages."""
    found = [
        delivered(
            envelope.divert(usual(ttl_ms=3_600_000, body=body), "orders", time_ms)
        )
        for body, time_ms in ((b"first", T0), (b"second", T0 + 30))
    ]

    for each in found:
        expected = slow(each, T0 + 100, "remaining")
        assert isinstance(expected, SendToPrimary)
        fast = fast_restore(each, T0 + 100, False)
        assert fast == (expected.path, expected.payload)


def test_an_id_that_does_not_fill_its_list_takes_the_general_path() -> None:
    found = delivered(envelope.divert(usual(), "orders", T0))
    at = found.index(b"\x00\x53\x73\xc0")
    # The list says that the id is one byte shorter than it is.
    damaged = found[: at + 7] + bytes((found[at + 7] - 1,)) + found[at + 8 :]

    assert fast_restore(found, T0, False) is not None
    assert fast_restore(damaged, T0, False) is None


@given(messages.messages(), st.sampled_from(["remaining", "restart"]))
@example(usual({"a": 1}, session_id="s"), "remaining")
def test_both_paths_agree_on_any_message(payload: bytes, rule: str) -> None:
    try:
        found = delivered(envelope.divert(payload, "orders", T0))
    except TwinbusError:
        # No server takes it.
        return
    fast = fast_restore(found, T0 + 100, rule == "restart")
    if fast is not None:
        expected = slow(found, T0 + 100, rule)
        assert isinstance(expected, SendToPrimary)
        assert fast == (expected.path, expected.payload)


@given(st.sampled_from(USUAL + UNUSUAL), st.data())
def test_damaged_bytes_raise_nothing(payload: bytes, data: Any) -> None:
    found = bytearray(delivered(envelope.divert(payload, "orders", T0)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(found) - 1))
        found[at] = data.draw(st.integers(0, 255))
    changed = bytes(found[: data.draw(st.integers(0, len(found)))])

    read_stamp(changed)
    fast_restore(changed, T0, False)
    decide(changed, T0)


@pytest.mark.parametrize("deliveries", [0, 3, 255, 256, 70_000])
@pytest.mark.parametrize("payload", USUAL + UNUSUAL[:5])
def test_a_stamp_is_what_the_broker_wrote(payload: bytes, deliveries: int) -> None:
    found = delivered(payload, deliveries)
    message = Message(found)

    stamp = read_stamp(found)

    assert stamp is not None
    assert stamp.sequence == message.sequence_number == 7
    assert stamp.enqueued_ms == message.enqueued_ms == T0 + 1
    assert stamp.locked_until_ms == message.locked_until_ms == T0 + 60_000
    assert stamp.deliveries == message.delivery_count == deliveries


def test_annotations_of_another_broker_give_no_stamp() -> None:
    annotations = {
        Symbol("x-opt-enqueued-time"): Timestamp(T0),
        Symbol("x-opt-sequence-number"): 7,
        Symbol("x-opt-locked-until"): Timestamp(T0),
    }
    found = section(sections.MESSAGE_ANNOTATIONS, annotations)

    assert read_stamp(found + section(sections.DATA, b"body")) is None
    assert read_stamp(b"") is None
