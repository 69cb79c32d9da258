"""Retries: transient errors, pauses and halving."""

from __future__ import annotations

import pytest

from twinbus import limits
from twinbus.errors import Disconnected, LockLost, OperationTimeout, RemoteError
from twinbus.pairing.rules.retry import (
    DESTINATION_BACKOFF,
    QUEUE_BACKOFF,
    RECEIVE_BACKOFF,
    SEND_BACKOFF,
    SPARK_BACKOFF,
    SYPHON_BACKOFF,
    Backoff,
    halves,
    is_ended_poll,
    is_of_one_message,
    is_transient,
)

BACKOFFS = [
    DESTINATION_BACKOFF,
    QUEUE_BACKOFF,
    RECEIVE_BACKOFF,
    SEND_BACKOFF,
    SPARK_BACKOFF,
    SYPHON_BACKOFF,
]


def remote(condition: str) -> RemoteError:
    return RemoteError(condition, "said so")


@pytest.mark.parametrize(
    "error",
    [
        Disconnected("gone"),
        OperationTimeout("late"),
        remote("amqp:internal-error"),
        remote("com.microsoft:server-busy"),
    ],
)
def test_lost_late_broken_and_busy_are_transient(error: Exception) -> None:
    assert is_transient(error)
    assert not is_of_one_message(error)


@pytest.mark.parametrize(
    "condition",
    [
        "amqp:not-found",
        "amqp:unauthorized-access",
        "amqp:resource-limit-exceeded",
        "com.microsoft:entity-disabled",
    ],
)
def test_errors_of_an_entity_are_not_transient(condition: str) -> None:
    assert not is_transient(remote(condition))
    assert not is_of_one_message(remote(condition))


@pytest.mark.parametrize(
    "condition",
    [LockLost.condition, "amqp:link:message-size-exceeded", "amqp:invalid-field"],
)
def test_refusals_of_a_batch_may_be_of_one_message(condition: str) -> None:
    assert is_of_one_message(remote(condition))
    assert not is_transient(remote(condition))


LINK_ENDED = (
    "The link 'G2:1:receiver' is force detached. Code: consumer(link45). Details: "
    "AmqpMessageConsumer.IdleTimerExpired: Idle timeout: 00:10:00. TrackingId:1"
)
CONNECTION_ENDED = (
    "The connection was inactive for more than the allowed 300000 milliseconds and is "
    "closed by container 'LinkTracker'. TrackingId:1"
)
UNLINKED = (
    "The connection was closed by container '7f_G2' because it did not have any active "
    "links in the past 300000 milliseconds. TrackingId:1"
)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("amqp:link:detach-forced", LINK_ENDED),
        ("amqp:connection:forced", CONNECTION_ENDED),
        ("amqp:connection:forced", UNLINKED),
    ],
)
def test_a_link_that_ends_as_idle_is_the_end_of_a_poll(
    condition: str, text: str
) -> None:
    error = RemoteError(condition, text)

    assert is_ended_poll(error, 600_000)
    assert not is_ended_poll(error, 59_999)


@pytest.mark.parametrize(
    "error",
    [
        RemoteError("amqp:link:detach-forced", "The queue 'idle' was deleted."),
        RemoteError("amqp:internal-error", LINK_ENDED),
        Disconnected("The server is silent for longer than agreed."),
        Disconnected(),
    ],
)
def test_any_other_end_of_a_link_is_a_failure(error: RemoteError) -> None:
    assert not is_ended_poll(error, 600_000)


def test_the_pause_doubles_up_to_the_longest() -> None:
    backoff = Backoff(250, 5_000)

    pauses_ms = [backoff.pause_ms(failures) for failures in range(-1, 8)]

    assert pauses_ms == [0, 0, 250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]
    assert backoff.pause_ms(10_000) == 5_000


def test_jitter_takes_away_up_to_a_half() -> None:
    backoff = Backoff(250, 5_000)

    assert backoff.pause_ms(1, jitter=0.5) == 188
    assert backoff.pause_ms(1, jitter=0.999) == 125


@pytest.mark.parametrize("backoff", BACKOFFS)
def test_a_busy_service_is_left_alone_for_ten_seconds(backoff: Backoff) -> None:
    assert backoff.pause_ms(1, jitter=0.9, busy=True) == 10_000
    assert backoff.pause_ms(20, busy=True) == limits.SERVER_BUSY_PAUSE_MS


@pytest.mark.parametrize("backoff", BACKOFFS)
def test_every_back_off_reaches_its_longest_pause(backoff: Backoff) -> None:
    assert backoff.pause_ms(1) == backoff.first_ms
    assert backoff.pause_ms(1_000) == backoff.longest_ms


@pytest.mark.parametrize("count", [2, 3, 1000, 1001])
def test_halves_are_the_whole_batch_in_order(count: int) -> None:
    first, second = halves(range(count))

    assert first + second == list(range(count))
    assert 0 <= len(second) - len(first) <= 1
