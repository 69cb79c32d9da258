"""A diverted message comes back as it was, whatever it is."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.pairing.rules.messages import canonical, messages, section
from twinbus.errors import CallerError, TwinbusError
from twinbus.pairing.errors import AliasInvalid, InvalidMessage
from twinbus.pairing.rules import envelope
from twinbus.wire.codec import decode, encode
from twinbus.wire.message import parts, sections
from twinbus.wire.message.rendering import BrokerFields, render
from twinbus.wire.types import (
    Described,
    Float32,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)

NOW_MS = 1_700_000_000_000
BODY = section(sections.DATA, b"body")


def message(
    ttl_ms: int | None = None,
    session_id: str | None = None,
    annotations: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
) -> bytes:
    """A message with what matters here."""
    out = section(sections.HEADER, [True, UByte(4), ttl_ms and UInt(ttl_ms)])
    if annotations:
        named = {Symbol(key): value for key, value in annotations.items()}
        out += section(sections.MESSAGE_ANNOTATIONS, named)
    out += section(sections.PROPERTIES, ["id", *[None] * 9, session_id])
    if own:
        out += section(sections.APPLICATION_PROPERTIES, own)
    return out + BODY


def own_properties(payload: bytes) -> dict[str, Any]:
    for code, _begin, start, _end in sections.find_sections(payload):
        if code == sections.APPLICATION_PROPERTIES:
            found: dict[str, Any] = decode(payload, start)[0]
            return found
    return {}


def backlog_message(**aliases: Any) -> bytes:
    """A message as some other library may have diverted it."""
    names = {
        "path": envelope.PATH,
        "session": envelope.SESSION_ID,
        "ttl": envelope.TIME_TO_LIVE,
        "scheduled": envelope.SCHEDULED,
        "diverted": envelope.DIVERTED_AT,
    }
    own = {names[key]: value for key, value in ({"path": "q"} | aliases).items()}
    return section(sections.APPLICATION_PROPERTIES, own) + BODY


def aliases_of(payload: bytes) -> envelope.Aliases:
    return envelope.Backlogged(payload).aliases()


# -- the way there -----------------------------------------------------------------


def test_the_path_and_the_time_are_always_written() -> None:
    diverted = envelope.divert(BODY, "orders", NOW_MS)

    own = own_properties(diverted)
    assert own == {"x-ms-path": "orders", "x-twinbus-diverted-at": Timestamp(NOW_MS)}
    assert type(own["x-ms-path"]) is str
    assert type(own["x-twinbus-diverted-at"]) is Timestamp


def test_the_session_id_is_moved_to_its_alias_and_unset() -> None:
    diverted = envelope.divert(message(session_id="s"), "orders", NOW_MS)

    assert own_properties(diverted)["x-ms-sessionid"] == "s"
    assert sections.parse(diverted).session_id is None


def test_a_partition_key_equal_to_the_session_id_is_unset_with_it() -> None:
    original = message(session_id="s", annotations={"x-opt-partition-key": "s"})

    diverted = envelope.divert(original, "orders", NOW_MS)

    assert sections.parse(diverted).partition_key is None
    assert canonical(envelope.restore(diverted)[1]) == canonical(original)


@pytest.mark.parametrize("key", ["other", Symbol("s")])
def test_any_other_partition_key_travels_unchanged(key: str) -> None:
    original = message(session_id="s", annotations={"x-opt-partition-key": key})

    diverted = envelope.divert(original, "orders", NOW_MS)

    assert sections.parse(diverted).partition_key == key
    assert envelope.PARTITION_KEY not in own_properties(diverted)


def test_the_time_to_live_is_a_timespan_of_ticks_and_unset() -> None:
    diverted = envelope.divert(message(ttl_ms=60_000), "orders", NOW_MS)

    alias = own_properties(diverted)["x-ms-timetolive"]
    assert alias == Described(Symbol("com.microsoft:timespan"), 600_000_000)
    assert type(alias.descriptor) is Symbol
    assert type(alias.value) is int
    assert sections.parse(diverted).ttl_ms is None


def test_a_time_to_live_that_the_header_is_too_small_for_is_kept() -> None:
    year_ms = 365 * 86_400_000
    times = [Timestamp(NOW_MS + year_ms), Timestamp(NOW_MS)]
    original = section(sections.HEADER, [True, None, UInt(0xFFFFFFFF)])
    original += section(sections.PROPERTIES, ["id", *[None] * 7, *times]) + BODY

    diverted = envelope.divert(original, "orders", NOW_MS)

    assert aliases_of(diverted).ttl_ms == year_ms
    assert canonical(envelope.restore(diverted)[1]) == canonical(original)


def test_the_longest_time_to_live_of_ours_is_not_for_ever() -> None:
    times = [Timestamp(2**62), Timestamp(0)]
    original = section(sections.HEADER, [True, None, UInt(0xFFFFFFFF)])
    original += section(sections.PROPERTIES, ["id", *[None] * 7, *times]) + BODY

    diverted = envelope.divert(original, "orders", NOW_MS)

    assert canonical(envelope.restore(diverted)[1]) == canonical(original)


def test_times_of_a_wrong_type_do_not_make_a_time_to_live() -> None:
    original = section(sections.HEADER, [True, None, UInt(0xFFFFFFFF)])
    original += section(sections.PROPERTIES, ["id", *[None] * 7, "late", "early"])

    diverted = envelope.divert(original + BODY, "orders", NOW_MS)

    assert aliases_of(diverted).ttl_ms == 0xFFFFFFFF


def test_the_scheduled_time_is_a_timestamp_and_unset() -> None:
    times = {"x-opt-scheduled-enqueue-time": Timestamp(NOW_MS + 5)}

    diverted = envelope.divert(message(annotations=times), "orders", NOW_MS)

    alias = own_properties(diverted)["x-ms-scheduledenqueuetimeutc"]
    assert type(alias) is Timestamp
    assert alias == NOW_MS + 5
    assert sections.parse(diverted).scheduled_ms is None


def test_what_is_not_set_has_no_alias() -> None:
    diverted = envelope.divert(message(), "orders", NOW_MS)

    assert set(own_properties(diverted)) == {"x-ms-path", "x-twinbus-diverted-at"}


def test_a_session_id_of_a_wrong_type_is_left_for_the_broker_to_refuse() -> None:
    original = section(sections.PROPERTIES, [*[None] * 10, 5]) + BODY

    diverted = envelope.divert(original, "orders", NOW_MS)

    assert envelope.SESSION_ID not in own_properties(diverted)


def test_user_properties_with_our_names_are_escaped_and_come_back() -> None:
    own = {
        "x-ms-path": "mine",
        "X-MS-SessionId": 5,
        "x-twinbus-user-x-ms-path": "mine too",
        "plain": True,
    }
    original = message(session_id="s", own=own)

    diverted = envelope.divert(original, "orders", NOW_MS)

    found = own_properties(diverted)
    assert found["x-ms-path"] == "orders"
    assert found["x-twinbus-user-x-ms-path"] == "mine"
    assert found["x-twinbus-user-X-MS-SessionId"] == 5
    assert own_properties(envelope.restore(diverted)[1]) == own


def test_a_name_that_is_a_symbol_stays_one() -> None:
    own = {Symbol("x-ms-path"): 1, ULong(7): 2}
    original = section(sections.APPLICATION_PROPERTIES, own) + BODY

    restored = envelope.restore(envelope.divert(original, "orders", NOW_MS))[1]

    assert canonical(restored) == canonical(original)


def test_body_sections_travel_byte_for_byte() -> None:
    wide = b"\x00\x53\x75\xb0\x00\x00\x00\x01a" + b"\x00\x53\x75\xa0\x01b"

    diverted = envelope.divert(message()[: -len(BODY)] + wide, "orders", NOW_MS)

    assert diverted.endswith(wide)
    assert envelope.restore(diverted)[1].endswith(wide)


@pytest.mark.parametrize("field", [[1], {"a": 1}, "text", 1.5])
def test_a_header_of_strange_fields_travels_unchanged(field: Any) -> None:
    original = section(sections.HEADER, [field, field, field]) + BODY

    restored = envelope.restore(envelope.divert(original, "orders", NOW_MS))[1]

    assert canonical(restored) == canonical(original)


def test_a_boolean_in_a_header_does_not_become_the_number_that_it_equals() -> None:
    for durable in (True, UByte(1), False, UByte(0)):
        original = section(sections.HEADER, [durable, None, UInt(1)]) + BODY

        restored = envelope.restore(envelope.divert(original, "q", NOW_MS))[1]

        assert canonical(restored) == canonical(original)


def test_the_callers_message_is_not_changed() -> None:
    original = message(ttl_ms=5, session_id="s")
    copy = bytes(bytearray(original))

    envelope.divert(original, "orders", NOW_MS)

    assert original == copy


@pytest.mark.parametrize(
    "bad",
    [
        b"\x00",
        b"\x00\x53\x73\xc0\x02\x05\x40",
        b"\x00\x53\x73\xc0\x00",
        b"\x00\x53\x73\xc0\x02\x01\xa1",
        b"\x00\x53\x73\xd0\x00\x00\x00\x00",
        b"\x00\x53\x74\xc1\x02\x01\x40",
        b"\x00\x53\x74\xc1\x03\x02\xa1\x09",
        b"\x00\x53\x70\xc0\x02\x01\xff",
    ],
)
def test_bytes_that_are_no_message_are_the_callers_fault(bad: bytes) -> None:
    with pytest.raises(InvalidMessage):
        envelope.divert(bad, "orders", NOW_MS)
    with pytest.raises(AliasInvalid):
        envelope.Backlogged(bad)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_our_errors(data: bytes) -> None:
    with suppress(CallerError):
        envelope.restore(envelope.divert(data, "q", NOW_MS))
    with suppress(CallerError):
        envelope.restore(data)


# -- there and back ----------------------------------------------------------------


@settings(max_examples=150)
@given(messages(), st.sampled_from(["orders", "a/b", "x" * 260]))
def test_restore_of_divert_is_the_message(original: bytes, path: str) -> None:
    found, restored = envelope.restore(envelope.divert(original, path, NOW_MS))

    assert found == path
    assert canonical(restored) == canonical(original)


@pytest.mark.campaign
@settings(max_examples=20_000, derandomize=False)
@given(messages())
def test_restore_of_divert_is_the_message_however_long_one_looks(
    original: bytes,
) -> None:
    restored = envelope.restore(envelope.divert(original, "orders", NOW_MS))[1]

    assert canonical(restored) == canonical(original)


@settings(max_examples=75)
@given(messages(), st.integers(0, 300))
def test_a_backlogs_broker_in_between_changes_nothing(
    original: bytes, deliveries: int
) -> None:
    diverted = envelope.divert(original, "orders", NOW_MS)
    try:
        incoming = sections.parse(diverted)
    except TwinbusError:
        # The broker refuses it, so it is in no backlog.
        assume(False)
    outgoing = BrokerFields(7, NOW_MS + 20, deliveries)
    outgoing.token = b"t" * 16
    outgoing.locked_until_ms = NOW_MS + 60_000
    outgoing.state = 0
    outgoing.source = "elsewhere"
    received = render(outgoing, incoming.head(), incoming.bare)

    backlogged = envelope.Backlogged(received)
    path, restored = envelope.restore(received)

    assert path == "orders"
    assert backlogged.enqueued_ms == NOW_MS + 20
    assert canonical(restored, True) == canonical(original, True)


@settings(max_examples=40)
@given(messages())
def test_diverting_twice_nests(original: bytes) -> None:
    once = envelope.divert(original, "first", NOW_MS)

    path, again = envelope.restore(envelope.divert(once, "second", NOW_MS))

    assert path == "second"
    assert canonical(again) == canonical(once)


# -- liberal reading ---------------------------------------------------------------


@pytest.mark.parametrize(
    "ttl",
    [
        Described(Symbol("com.microsoft:timespan"), 600_000_000),
        600_000_000,
        Int(600_000_000),
        UInt(600_000_000),
        ULong(600_000_000),
        "PT1M",
        Symbol("PT60S"),
    ],
)
def test_a_time_to_live_is_read_from_other_libraries_types(ttl: Any) -> None:
    assert aliases_of(backlog_message(ttl=ttl)).ttl_ms == 60_000


def test_the_longest_time_span_is_for_ever() -> None:
    longest = Described(Symbol("com.microsoft:timespan"), 2**63 - 1)

    assert aliases_of(backlog_message(ttl=longest)).ttl_ms is None


@pytest.mark.parametrize(
    "scheduled",
    [
        Timestamp(NOW_MS),
        datetime.fromtimestamp(NOW_MS / 1000, UTC).isoformat(),
        "2023-11-14T22:13:20.0000000Z",
        "2023-11-14T22:13:20",
        "2023-11-15T00:13:20+02:00",
    ],
)
def test_a_time_is_read_from_other_libraries_types(scheduled: Any) -> None:
    assert aliases_of(backlog_message(scheduled=scheduled)).scheduled_ms == NOW_MS


def test_the_first_moment_of_year_one_is_no_time() -> None:
    payload = backlog_message(scheduled=Timestamp(-62_135_596_800_000))

    assert aliases_of(payload).scheduled_ms is None


def test_an_alias_that_is_null_is_not_set() -> None:
    aliases = aliases_of(backlog_message(session=None, ttl=None, scheduled=None))

    assert aliases == envelope.Aliases("q")


@pytest.mark.parametrize("path", [None, ""])
def test_a_message_without_a_path_cannot_be_restored(path: str | None) -> None:
    with pytest.raises(AliasInvalid) as caught:
        aliases_of(backlog_message(path=path))

    assert caught.value.reason == "PathMissing"
    with pytest.raises(AliasInvalid):
        aliases_of(BODY)


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": 5},
        {"session": 5},
        {"session": b"s"},
        {"ttl": True},
        {"ttl": 1.5},
        {"ttl": Float32(1)},
        {"ttl": Timestamp(5)},
        {"ttl": "soon"},
        {"ttl": [1]},
        {"ttl": Described(Symbol("com.microsoft:timespan"), "PT1M")},
        {"ttl": Described(Symbol("com.microsoft:uri"), 5)},
        {"scheduled": 5},
        {"scheduled": "tomorrow"},
        {"diverted": "x"},
    ],
)
def test_an_alias_of_a_wrong_type_cannot_be_restored(wrong: dict[str, Any]) -> None:
    with pytest.raises(AliasInvalid) as caught:
        aliases_of(backlog_message(**wrong))

    assert caught.value.reason == "AliasInvalid"


def test_an_alias_that_cannot_be_decoded_cannot_be_restored() -> None:
    broken = encode(envelope.PATH) + b"\xa1\x01\xff"
    size = bytes((len(broken) + 1, 2))

    with pytest.raises(AliasInvalid):
        aliases_of(b"\x00\x53\x74\xc1" + size + broken)


@pytest.mark.parametrize("ttl_ms", [-1, 2**40])
def test_a_time_to_live_is_cut_to_what_the_header_holds(ttl_ms: int) -> None:
    backlogged = envelope.Backlogged(backlog_message())

    restored = backlogged.restored(backlogged.aliases(), ttl_ms)

    assert sections.parse(restored).ttl_ms == (0 if ttl_ms < 0 else 0xFFFFFFFF)


def test_a_symbol_as_session_id_becomes_the_string_it_should_be() -> None:
    restored = envelope.restore(backlog_message(session=Symbol("s")))[1]

    assert sections.parse(restored).session_id == "s"


# -- what else is known about a message --------------------------------------------


def test_an_enqueued_time_that_is_none_is_not_known() -> None:
    strange = {Symbol("other"): 1, Symbol("x-opt-enqueued-time"): "noon"}
    payload = section(sections.MESSAGE_ANNOTATIONS, strange) + backlog_message()

    assert envelope.Backlogged(payload).enqueued_ms is None
    assert envelope.Backlogged(backlog_message()).enqueued_ms is None


def test_a_replayed_message_is_as_it_was_before_it_was_dead_lettered() -> None:
    diverted = envelope.divert(message(ttl_ms=5, own={"a": 1}), "orders", NOW_MS)
    incoming = sections.parse(diverted)
    bare = parts.with_application_properties(
        incoming.bare, {"DeadLetterReason": "r", "DeadLetterErrorDescription": "d"}
    )
    outgoing = BrokerFields(7, NOW_MS, 3)
    outgoing.token = b"t" * 16

    replayed = envelope.for_replay(render(outgoing, incoming.head(), bare))

    assert canonical(replayed) == canonical(diverted)
    assert envelope.for_replay(BODY) == BODY
