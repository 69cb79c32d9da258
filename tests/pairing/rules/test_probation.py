"""One entity after it failed back: probation, relapses and refusals."""

from __future__ import annotations

import pytest

from tests.pairing.rules.one_entity import (
    COUNTED,
    LOST,
    T0,
    fail,
    failed_over,
    make,
    on_probation,
    suspect,
    told,
)
from twinbus import limits
from twinbus.errors import RemoteError
from twinbus.pairing.events import EventKind
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.decisions import Divert, Resume, StartPing
from twinbus.pairing.rules.holding import HoldBudget
from twinbus.pairing.rules.policy import EntityPolicy, EntityState, PolicySettings

GONE = RemoteError("amqp:not-found")
FIVE_MINUTES_MS = 300_000


def ping_of(decisions: list[object]) -> StartPing:
    (ping,) = (each for each in decisions if isinstance(each, StartPing))
    return ping


# -- probation ---------------------------------------------------------------------


def test_a_send_that_began_on_probation_ends_it_when_it_is_accepted() -> None:
    entity = on_probation()

    decisions = entity.accepted(entity.begin(), T0 + 5)

    assert entity.direct
    assert told(decisions) == [EventKind.RECOVERED]


def test_a_send_that_began_earlier_does_not_end_the_probation() -> None:
    entity = on_probation()

    assert entity.accepted(0, T0 + 5) == []
    assert fail(entity, T0 + 5) == []
    assert entity.state is EntityState.PROBATION


def test_a_counted_failure_on_probation_fails_over_at_once() -> None:
    entity = on_probation()

    decisions = fail(entity, T0 + 5, entity.begin())

    assert entity.state is EntityState.FAILED_OVER
    assert told(decisions) == [EventKind.RELAPSED]
    assert Divert("orders") in decisions


@pytest.mark.parametrize("verdict", [Verdict.BUSY, Verdict.RAISE])
def test_an_answer_that_does_not_count_changes_no_probation(verdict: Verdict) -> None:
    entity = on_probation(relapses=1)

    assert entity.failed(entity.begin(), verdict, LOST, T0 + 5) == []

    assert entity.state is EntityState.PROBATION
    assert not entity.diverts


def test_the_pause_before_the_ping_after_a_relapse_doubles() -> None:
    pauses = []
    for relapses in range(5):
        entity = on_probation(relapses)
        decisions = fail(entity, T0, entity.begin())
        pauses.append(ping_of([*decisions]).at_ms - T0)

    assert pauses == [60_000, 120_000, 240_000, FIVE_MINUTES_MS, FIVE_MINUTES_MS]


def test_a_ping_interval_above_the_longest_pause_is_the_pause() -> None:
    half_an_hour = limits.PING_INTERVAL_MS_MAX
    entity = make(interval_ms=0, ping_ms=half_an_hour)
    fail(entity, T0)
    entity.ping_ended(1, None, None, T0)

    decisions = fail(entity, T0, entity.begin())

    assert ping_of([*decisions]).at_ms == T0 + half_an_hour


def test_after_the_first_ping_the_interval_holds_again() -> None:
    entity = on_probation(relapses=2)
    fail(entity, T0, entity.begin())

    decisions = entity.ping_ended(4, COUNTED, LOST, T0 + 240_001)

    assert ping_of([*decisions]).at_ms == T0 + 240_000 + 60_000


def test_an_accepted_send_resets_the_pause() -> None:
    entity = on_probation(relapses=3)
    entity.accepted(entity.begin(), T0)
    fail(entity, T0)
    entity.ping_ended(5, None, None, T0)

    decisions = fail(entity, T0, entity.begin())

    assert ping_of([*decisions]).at_ms == T0 + 60_000


def test_the_first_probation_admits_every_send() -> None:
    entity = on_probation()
    entity.begin()

    assert not entity.diverts


def test_after_a_relapse_probation_admits_one_send_at_a_time() -> None:
    entity = on_probation(relapses=1)

    attempt = entity.begin()
    assert entity.diverts

    entity.forgotten(attempt)
    free: bool = not entity.diverts
    assert free


@pytest.mark.parametrize("relapses", [0, 1])
def test_a_late_acceptance_leads_at_most_to_probation(relapses: int) -> None:
    entity = on_probation(relapses)
    fail(entity, T0, entity.begin())

    assert entity.accepted(0, T0 + 5, late=True) == []
    assert entity.state is EntityState.FAILED_OVER


def test_a_late_acceptance_cancels_no_timer() -> None:
    entity = suspect(make())

    assert entity.accepted(0, T0 + 5, late=True) == []
    assert entity.state is EntityState.SUSPECT


def test_with_slow_send_a_late_acceptance_is_no_proof() -> None:
    settings = PolicySettings(0, 60_000, slow_send_ms=1_000)
    entity = EntityPolicy("orders", settings, HoldBudget())
    decisions = fail(entity, T0)

    assert ping_of([*decisions]).timeout_ms == 1_000
    assert entity.accepted(0, T0 + 5, late=True) == []


def test_mark_healthy_ends_a_probation() -> None:
    entity = on_probation(relapses=1)

    assert told(entity.mark_healthy(T0)) == [EventKind.RECOVERED]
    assert entity.direct


def test_status_says_probation_and_keeps_the_alert() -> None:
    shown = on_probation(relapses=2).status()

    assert shown.state == "probation"
    assert shown.is_failed_over
    assert (shown.failovers, shown.relapses) == (1, 2)


# -- refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "amqp:not-found",
        "com.microsoft:entity-disabled",
        "amqp:unauthorized-access",
    ],
)
def test_a_ping_that_is_answered_so_refuses_the_sends(condition: str) -> None:
    entity = failed_over()
    refusal = RemoteError(condition)

    decisions = entity.ping_ended(1, Verdict.RAISE, refusal, T0 + 5)

    assert entity.state is EntityState.REFUSED
    assert entity.refusal is refusal
    assert told(decisions) == [EventKind.REFUSED]
    assert Resume("orders") in decisions
    assert ping_of([*decisions]).at_ms == T0 + 60_000


def test_a_full_entity_is_no_refusal() -> None:
    entity = failed_over()

    full = RemoteError("amqp:resource-limit-exceeded")
    entity.ping_ended(1, Verdict.RAISE, full, T0 + 5)

    assert entity.state is EntityState.FAILED_OVER


def refused() -> EntityPolicy:
    entity = failed_over()
    entity.ping_ended(1, Verdict.RAISE, GONE, T0 + 5)
    return entity


def test_a_refused_entity_that_accepts_a_ping_is_on_probation() -> None:
    entity = refused()

    decisions = entity.ping_ended(2, None, None, T0 + 60_005)

    assert entity.state is EntityState.PROBATION
    assert told(decisions) == [EventKind.PING_ACCEPTED, EventKind.FAILED_BACK]


def test_a_refused_entity_whose_ping_fails_is_failed_over_again() -> None:
    entity = refused()

    decisions = entity.ping_ended(2, COUNTED, LOST, T0 + 60_005)

    assert entity.state is EntityState.FAILED_OVER
    assert told(decisions) == [EventKind.PING_FAILED, EventKind.FAILED_OVER]
