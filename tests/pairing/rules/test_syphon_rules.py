"""The syphon: what comes home, when, in which order, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pairing.rules.messages import canonical, section
from twinbus import limits
from twinbus.errors import BusyError, RemoteError
from twinbus.pairing.events import EventKind
from twinbus.pairing.rules import envelope
from twinbus.pairing.rules.decisions import Tell
from twinbus.pairing.rules.ping import ping_message
from twinbus.pairing.rules.syphon_rules import (
    DeadLetter,
    DestinationStates,
    Drop,
    Held,
    Rest,
    SendToPrimary,
    after_failure,
    decide,
    sort_chunk,
)
from twinbus.wire.message import sections
from twinbus.wire.types import Symbol, Timestamp

T0 = 1_700_000_000_000
MINUTE = 60_000
LOST = ConnectionResetError("lost")


def message(
    ttl_ms: int | None = None,
    session_id: str | None = None,
    scheduled_ms: int | None = None,
) -> bytes:
    out = sections.encode_message(b"body", {0: "id", 10: session_id}, ttl_ms)
    if scheduled_ms is None:
        return out
    key = Symbol("x-opt-scheduled-enqueue-time")
    time = {key: Timestamp(scheduled_ms)}
    return section(sections.MESSAGE_ANNOTATIONS, time) + out


def diverted(payload: bytes, path: str = "orders") -> bytes:
    return envelope.divert(payload, path, T0)


def restored(payload: bytes, now_ms: int, ttl: str = "remaining") -> bytes:
    outcome = decide(payload, now_ms, ttl)
    assert isinstance(outcome, SendToPrimary), outcome
    return outcome.payload


def ttl_of(payload: bytes) -> int | None:
    return sections.parse(payload).ttl_ms


def foreign(aliases: dict[str, Any], enqueued_ms: int | None = None) -> bytes:
    """A message as another library diverted it: without our time."""
    out = section(sections.APPLICATION_PROPERTIES, aliases)
    if enqueued_ms is not None:
        times = {Symbol("x-opt-enqueued-time"): Timestamp(enqueued_ms)}
        out = section(sections.MESSAGE_ANNOTATIONS, times) + out
    return out + section(sections.DATA, b"body")


# -- one message -------------------------------------------------------------------


def test_a_message_is_restored_and_sent_to_its_path() -> None:
    original = message(session_id="s")

    outcome = decide(diverted(original, "Orders"), T0 + 5)

    assert isinstance(outcome, SendToPrimary)
    assert outcome.path == "Orders"
    assert outcome.key == "orders"
    assert canonical(outcome.payload) == canonical(original)


def test_a_ping_found_in_a_backlog_is_dropped() -> None:
    assert decide(ping_message("s", "id"), T0) == Drop()
    assert decide(diverted(ping_message("s", "id")), T0) == Drop()


def test_a_message_without_a_path_is_dead_lettered() -> None:
    outcome = decide(message(), T0)

    assert outcome == DeadLetter("PathMissing", "The message has no x-ms-path.")


def test_an_alias_of_a_wrong_type_is_dead_lettered() -> None:
    outcome = decide(foreign({"x-ms-path": "q", "x-ms-timetolive": "soon"}), T0)

    assert isinstance(outcome, DeadLetter)
    assert outcome.reason == "AliasInvalid"
    assert "x-ms-timetolive" in outcome.description


def test_bytes_that_are_no_message_are_dead_lettered() -> None:
    assert isinstance(decide(b"\x00", T0), DeadLetter)


# -- time to live ------------------------------------------------------------------


def test_the_time_spent_in_the_backlog_counts() -> None:
    payload = diverted(message(ttl_ms=MINUTE))

    assert ttl_of(restored(payload, T0 + 20_000)) == 40_000


def test_without_our_time_the_backlogs_enqueued_time_counts() -> None:
    payload = foreign({"x-ms-path": "q", "x-ms-timetolive": "PT1M"}, T0 + 10_000)

    assert ttl_of(restored(payload, T0 + 20_000)) == 50_000


def test_without_any_time_the_time_to_live_starts_now() -> None:
    payload = foreign({"x-ms-path": "q", "x-ms-timetolive": "PT1M"})

    assert ttl_of(restored(payload, T0 + 20_000)) == MINUTE


def test_a_message_whose_time_is_gone_is_dead_lettered() -> None:
    payload = diverted(message(ttl_ms=MINUTE))

    assert isinstance(decide(payload, T0 + MINUTE - 1), SendToPrimary)
    outcome = decide(payload, T0 + MINUTE)
    assert isinstance(outcome, DeadLetter)
    assert outcome.reason == "TTLExpiredException"


def test_restart_gives_the_whole_time_to_live_again() -> None:
    payload = diverted(message(ttl_ms=MINUTE))

    assert ttl_of(restored(payload, T0 + 10 * MINUTE, "restart")) == MINUTE


def test_a_message_without_a_time_to_live_stays_without() -> None:
    assert ttl_of(restored(diverted(message()), T0 + 10**12)) is None


def test_a_clock_that_is_behind_does_not_make_a_message_live_longer() -> None:
    payload = diverted(message(ttl_ms=MINUTE))

    assert ttl_of(restored(payload, T0 - MINUTE)) == MINUTE


# -- schedules ---------------------------------------------------------------------


def test_a_scheduled_time_is_restored() -> None:
    original = message(scheduled_ms=T0 + MINUTE)

    assert canonical(restored(diverted(original), T0 + 5)) == canonical(original)


def test_a_scheduled_time_in_the_past_is_delivered_now() -> None:
    # The primary's broker delivers what is scheduled for the past at once.
    outcome = decide(diverted(message(scheduled_ms=T0 + 5)), T0 + MINUTE)

    assert isinstance(outcome, SendToPrimary)
    assert sections.parse(outcome.payload).scheduled_ms == T0 + 5


def test_the_time_to_live_of_a_scheduled_message_starts_at_its_scheduled_time() -> None:
    payload = diverted(message(ttl_ms=MINUTE, scheduled_ms=T0 + 10 * MINUTE))

    assert ttl_of(restored(payload, T0 + 5 * MINUTE)) == MINUTE
    assert ttl_of(restored(payload, T0 + 10 * MINUTE + 20_000)) == 40_000
    assert isinstance(decide(payload, T0 + 11 * MINUTE), DeadLetter)


def test_a_schedule_before_the_diversion_does_not_age_a_message() -> None:
    payload = diverted(message(ttl_ms=MINUTE, scheduled_ms=T0 - 10 * MINUTE))

    assert ttl_of(restored(payload, T0 + 20_000)) == 40_000


# -- what a destination says -------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "rest"),
    [
        (LOST, Rest.AWAY),
        (TimeoutError(), Rest.AWAY),
        (RemoteError("amqp:internal-error"), Rest.AWAY),
        (RemoteError("com.example:novelty"), Rest.AWAY),
        (BusyError(), Rest.BUSY),
        (RemoteError("amqp:resource-limit-exceeded"), Rest.FULL),
        (RemoteError("amqp:unauthorized-access"), Rest.NO_ACCESS),
    ],
)
def test_a_destination_that_is_away_throttled_or_full_backs_off(
    error: BaseException, rest: Rest
) -> None:
    assert after_failure("orders", error) is rest


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("amqp:not-found", "DestinationNotFound"),
        ("com.microsoft:entity-disabled", "DestinationDisabled"),
        ("amqp:link:message-size-exceeded", "MessageTooLarge"),
        ("amqp:not-allowed", "MessageRefused"),
        ("com.microsoft:argument-error", "MessageRefused"),
    ],
)
def test_a_destination_that_never_takes_the_message_dead_letters_it(
    condition: str, reason: str
) -> None:
    outcome = after_failure("orders", RemoteError(condition, "because " * 1_000))

    assert isinstance(outcome, DeadLetter)
    assert outcome.reason == reason
    assert "'orders'" in outcome.description
    assert len(outcome.description) <= 1024


# -- destinations that rest --------------------------------------------------------


def held(sequence: int, now_ms: int = T0) -> Held:
    return Held(sequence, now_ms + MINUTE)


def rested(rest: Rest = Rest.AWAY, *sequences: int) -> DestinationStates:
    """Destination `a` rests since T0, with these messages parked."""
    states = DestinationStates("contoso/x-servicebus-transfer/0")
    numbers = sequences or (1,)
    states.failed("A", rest, [held(number) for number in numbers], LOST, T0)
    return states


def test_only_the_destination_that_failed_backs_off() -> None:
    states = rested()

    assert not states.may_send("a", held(2), T0 + 1)
    assert states.may_send("b", held(3), T0 + 1)


def test_backing_off_is_told_with_queue_and_cause() -> None:
    states = DestinationStates("contoso/x-servicebus-transfer/0")

    (tell,) = states.failed("A", Rest.FULL, [held(1)], LOST, T0)

    assert isinstance(tell, Tell)
    assert tell.event.kind is EventKind.SYPHON_BACKS_OFF
    assert tell.event.path == "A"
    assert tell.event.cause is LOST
    assert tell.event.details == {
        "queue": "contoso/x-servicebus-transfer/0",
        "because": "full",
    }
    assert states.failed("A", Rest.FULL, [held(1)], LOST, T0 + MINUTE) == []
    assert states.resting() == {"a": Rest.FULL}


def test_a_destination_resumes_only_after_the_locks_have_ended() -> None:
    states = rested(Rest.AWAY, 1, 2)

    # The pause is over, but 1 and 2 are still locked: 3 would overtake them.
    assert not states.may_send("a", held(3, T0 + 30_000), T0 + 30_000)
    # 1 has come back by itself and goes first.
    assert states.may_send("a", held(1, T0 + MINUTE), T0 + MINUTE)
    assert states.may_send("a", held(2, T0 + MINUTE), T0 + MINUTE)


def test_a_message_behind_one_that_is_away_waits_for_it() -> None:
    states = rested(Rest.AWAY, 1, 2)

    assert states.may_send("a", held(1, T0 + MINUTE), T0 + MINUTE)
    assert not states.may_send("a", held(3, T0 + MINUTE), T0 + MINUTE)


def test_a_message_that_never_comes_back_is_not_waited_for_for_ever() -> None:
    states = rested(Rest.AWAY, 1)
    later_ms = T0 + MINUTE + limits.LOCK_MARGIN_MS

    assert not states.may_send("a", held(2, later_ms - 1), later_ms - 1)
    later_ms += MINUTE + limits.LOCK_MARGIN_MS
    assert states.may_send("a", held(3, later_ms), later_ms)


def test_a_message_that_comes_back_too_soon_is_parked_again() -> None:
    states = rested(Rest.BUSY, 1)

    assert not states.may_send("a", held(1, T0 + 9_999), T0 + 9_999)
    assert states.parked == 1
    # The end of its first lock is no longer its end.
    assert not states.may_send("a", held(2, T0 + 62_000), T0 + 62_000)


@pytest.mark.parametrize(
    ("rest", "pause_ms"), [(Rest.BUSY, 10_000), (Rest.FULL, 5_000)]
)
def test_a_busy_destination_rests_for_ten_seconds(rest: Rest, pause_ms: int) -> None:
    states = DestinationStates("queue")
    states.failed("a", rest, [], LOST, T0)

    assert not states.may_send("a", held(1), T0 + pause_ms - 1)
    states = DestinationStates("queue")
    states.failed("a", rest, [], LOST, T0)
    assert states.may_send("a", held(1), T0 + pause_ms)


def test_the_pause_doubles_up_to_a_minute_and_starts_anew_after_a_success() -> None:
    states = DestinationStates("queue")
    pauses = []
    for _ in range(6):
        states.failed("a", Rest.AWAY, [], LOST, T0)
        pauses.append(states._by_key["a"].until_ms - T0)
    assert pauses == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]

    states.accepted("a")
    states.failed("a", Rest.AWAY, [], LOST, T0)

    assert states._by_key["a"].until_ms == T0 + 5_000


def test_a_destination_that_took_everything_is_forgotten() -> None:
    states = rested(Rest.AWAY, 1)
    later_ms = T0 + MINUTE
    assert states.may_send("a", held(1, later_ms), later_ms)

    states.accepted("a")
    states.accepted("never heard of")

    assert states.resting() == {}
    assert states.parked == 0


def test_a_destination_with_messages_away_is_remembered() -> None:
    states = rested(Rest.AWAY, 1, 2)
    later_ms = T0 + MINUTE
    states.may_send("a", held(1, later_ms), later_ms)

    states.accepted("a")

    assert states.resting() == {}
    assert not states.may_send("a", held(3, later_ms), later_ms)


def test_with_too_many_parked_nothing_more_is_received_for_a_while() -> None:
    states = rested(Rest.AWAY, *range(limits.PARKED_MESSAGES_MAX - 1))
    states.failed("b", Rest.AWAY, [], LOST, T0)
    assert states.pause_until_ms() is None

    states.may_send("a", held(9_999), T0 + 1)

    assert states.pause_until_ms() == T0 + MINUTE


# -- a chunk -----------------------------------------------------------------------


def test_the_neighbours_of_a_bad_message_go_on() -> None:
    good = diverted(message())
    chunk = [
        (held(1), good),
        (held(2), message()),
        (held(3), good),
        (held(4), ping_message("s", "id")),
        (held(5), diverted(message(), "a")),
        (held(6), good),
    ]

    result = sort_chunk(rested(), chunk, T0 + 5)

    numbers = [entry.sequence for entry, _ in result.to_send["orders"]]
    assert numbers == [1, 3, 6]
    assert [entry.sequence for entry, _ in result.dead] == [2]
    assert [entry.sequence for entry in result.dropped] == [4]
    assert [entry.sequence for entry in result.parked] == [5]


def test_a_chunk_knows_how_to_count_the_time_to_live() -> None:
    chunk = [(held(1), diverted(message(ttl_ms=5)))]

    assert sort_chunk(DestinationStates("q"), chunk, T0 + 10).dead
    assert sort_chunk(DestinationStates("q"), chunk, T0 + 10, "restart").to_send
