"""One entity: when it becomes suspect, fails over and fails back."""

from __future__ import annotations

from itertools import product

import pytest

from tests.pairing.rules.one_entity import (
    COUNTED,
    INTERVAL,
    LOST,
    T0,
    Call,
    deciding,
    fail,
    failed_over,
    make,
    suspect,
    told,
    without_events,
)
from twinbus.pairing.events import EventKind
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.decisions import (
    CancelTimer,
    Divert,
    Resume,
    StartPing,
    StartTimer,
    StopPinging,
    Tell,
    Wake,
)
from twinbus.pairing.rules.policy import (
    TRANSITIONS,
    EntityState,
    Input,
)

# -- the timer ---------------------------------------------------------------------


def test_the_first_counted_failure_starts_the_timer() -> None:
    entity = make()

    decisions = fail(entity, T0)

    assert entity.state is EntityState.SUSPECT
    assert without_events(decisions) == [StartTimer("orders", 1, T0 + INTERVAL)]
    assert told(decisions) == [EventKind.SUSPECT]


@pytest.mark.parametrize("verdict", [Verdict.RAISE, Verdict.BUSY])
def test_errors_that_do_not_count_change_nothing(verdict: Verdict) -> None:
    entity = make()

    assert entity.failed(0, verdict, LOST, T0) == []
    assert entity.direct


def test_later_failures_do_not_restart_the_timer() -> None:
    entity = suspect(make())

    assert fail(entity, T0 + 30_000, entity.begin()) == []

    assert entity.timer_fired(1, T0 + INTERVAL)
    assert entity.state is EntityState.FAILED_OVER


def test_a_success_cancels_the_timer() -> None:
    entity = suspect(make())

    decisions = entity.accepted(0, T0 + 10)

    assert entity.state is EntityState.HEALTHY
    assert without_events(decisions) == [CancelTimer("orders", 1), Resume("orders")]
    assert told(decisions) == [EventKind.RECOVERED]


def test_a_cancelled_timer_that_fires_all_the_same_is_ignored() -> None:
    entity = suspect(make())
    entity.accepted(0, T0 + 10)

    assert entity.timer_fired(1, T0 + INTERVAL) == []

    fail(entity, T0 + 20)
    assert entity.timer_fired(1, T0 + INTERVAL) == []
    assert entity.state is EntityState.SUSPECT


def test_a_timer_that_fires_too_early_is_started_again() -> None:
    entity = suspect(make())

    decisions = entity.timer_fired(1, T0 + INTERVAL - 1)

    assert decisions == [StartTimer("orders", 1, T0 + INTERVAL)]
    assert entity.state is EntityState.SUSPECT


def test_the_timer_fires_with_no_success_since_it_started() -> None:
    entity = suspect(make())
    fail(entity, T0 + 1, entity.begin())

    decisions = entity.timer_fired(1, T0 + INTERVAL)

    assert entity.state is EntityState.FAILED_OVER
    assert told(decisions) == [EventKind.FAILED_OVER]
    assert Divert("orders") in decisions


def test_an_attempt_without_an_answer_is_no_silence() -> None:
    entity = suspect(make())
    entity.begin()

    entity.timer_fired(1, T0 + INTERVAL)

    assert entity.state is EntityState.FAILED_OVER


def test_with_interval_zero_the_first_counted_failure_fails_over() -> None:
    entity = make(interval_ms=0)

    decisions = fail(entity, T0)

    assert entity.state is EntityState.FAILED_OVER
    assert told(decisions) == [EventKind.FAILED_OVER]
    assert Divert("orders") in decisions


# -- silence -----------------------------------------------------------------------


def test_after_silence_a_ping_decides_before_the_switch() -> None:
    entity = suspect(make())

    decisions = entity.timer_fired(1, T0 + INTERVAL)

    assert entity.state is EntityState.DECIDING
    assert decisions == [StartPing("orders", 1, T0 + INTERVAL, 30_000)]


def test_one_blip_does_not_divert_traffic() -> None:
    entity = deciding()

    decisions = entity.ping_ended(1, None, None, T0 + INTERVAL + 5)

    assert entity.direct
    assert told(decisions) == [EventKind.PING_ACCEPTED, EventKind.RECOVERED]


def test_a_ping_that_fails_after_silence_switches() -> None:
    entity = deciding()

    decisions = entity.ping_ended(1, COUNTED, LOST, T0 + INTERVAL + 5)

    assert entity.state is EntityState.FAILED_OVER
    assert told(decisions) == [EventKind.PING_FAILED, EventKind.FAILED_OVER]
    next_ms = T0 + 2 * INTERVAL
    assert StartPing("orders", 2, next_ms, 30_000) in decisions


@pytest.mark.parametrize("verdict", [Verdict.BUSY, Verdict.RAISE])
def test_a_service_that_answers_the_ping_is_not_diverted(verdict: Verdict) -> None:
    entity = deciding()

    entity.ping_ended(1, verdict, LOST, T0 + INTERVAL + 5)

    assert entity.state is EntityState.HEALTHY


def test_busy_answers_alone_never_fail_over() -> None:
    entity = suspect(make())
    for second in range(1, 50, 10):
        attempt = entity.begin()
        entity.failed(attempt, Verdict.BUSY, LOST, T0 + second * 1000)

    entity.timer_fired(1, T0 + INTERVAL)

    assert entity.state is EntityState.DECIDING


def test_failures_that_began_before_the_timer_are_silence() -> None:
    entity = make()
    attempts = [entity.begin() for _ in range(5)]
    for attempt in attempts:
        fail(entity, T0, attempt)

    entity.timer_fired(1, T0 + INTERVAL)

    assert entity.state is EntityState.DECIDING


def test_a_send_that_fails_while_the_ping_decides_switches() -> None:
    entity = deciding()
    attempt = entity.begin()

    decisions = fail(entity, T0 + INTERVAL + 3, attempt)

    assert entity.state is EntityState.FAILED_OVER
    # The ping that is under way is the first one of the failover.
    assert not any(isinstance(each, StartPing) for each in decisions)


def test_an_old_send_that_fails_while_the_ping_decides_is_no_news() -> None:
    entity = deciding()

    assert fail(entity, T0 + INTERVAL + 3) == []
    assert entity.state is EntityState.DECIDING


def test_a_cancelled_send_is_neither_success_nor_failure() -> None:
    entity = suspect(make())
    entity.forgotten(entity.begin())

    entity.timer_fired(1, T0 + INTERVAL)

    assert entity.state is EntityState.DECIDING


# -- failed over -------------------------------------------------------------------


def test_the_first_ping_is_at_once() -> None:
    entity = make(interval_ms=0)

    decisions = fail(entity, T0)

    assert StartPing("orders", 1, T0, 30_000) in decisions


def test_pings_go_from_start_to_start() -> None:
    entity = failed_over()

    decisions = entity.ping_ended(1, COUNTED, LOST, T0 + 29_000)

    assert without_events(decisions) == [
        StartPing("orders", 2, T0 + 60_000, 30_000),
    ]
    assert told(decisions) == [EventKind.PING_FAILED]


def test_a_late_report_of_a_ping_does_not_plan_one_in_the_past() -> None:
    entity = failed_over()

    decisions = entity.ping_ended(1, COUNTED, LOST, T0 + 90_000)

    assert StartPing("orders", 2, T0 + 90_000, 30_000) in decisions


def test_an_accepted_ping_fails_back() -> None:
    entity = failed_over()

    decisions = entity.ping_ended(1, None, None, T0 + 5)

    assert entity.state is EntityState.PROBATION
    assert not entity.diverts
    assert told(decisions) == [EventKind.PING_ACCEPTED, EventKind.FAILED_BACK]
    assert Resume("orders") in decisions


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_ping_that_is_not_accepted_does_not_fail_back(verdict: Verdict) -> None:
    entity = failed_over()

    entity.ping_ended(1, verdict, LOST, T0 + 5)

    assert entity.state is EntityState.FAILED_OVER


def test_a_late_primary_success_fails_back() -> None:
    entity = failed_over()

    decisions = entity.accepted(0, T0 + 5, late=True)

    assert entity.state is EntityState.PROBATION
    assert told(decisions) == [EventKind.FAILED_BACK]
    assert StopPinging("orders", 1) in decisions


def test_mark_healthy_fails_back() -> None:
    entity = failed_over()

    decisions = entity.mark_healthy(T0 + 5)

    assert entity.direct
    assert told(decisions) == [EventKind.FAILED_BACK]
    assert StopPinging("orders", 1) in decisions


def test_mark_healthy_ends_a_suspicion_and_a_decision() -> None:
    for entity in (suspect(make()), deciding()):
        assert told(entity.mark_healthy(T0 + 5)) == [EventKind.RECOVERED]
        assert entity.direct


def test_mark_healthy_on_a_healthy_entity_does_nothing() -> None:
    assert make().mark_healthy(T0) == []


def test_failures_of_a_failed_over_entity_change_nothing() -> None:
    entity = failed_over()

    assert fail(entity, T0 + 5) == []


def test_a_ping_of_an_earlier_failover_is_ignored() -> None:
    entity = failed_over()
    entity.mark_healthy(T0 + 1)

    assert entity.ping_ended(1, COUNTED, LOST, T0 + 2) == []

    fail(entity, T0 + 3)
    assert entity.ping_ended(1, None, None, T0 + 4) == []
    assert entity.state is EntityState.FAILED_OVER


def test_between_pings_there_is_nothing_to_stop() -> None:
    entity = deciding()

    decisions = entity.ping_ended(1, None, None, T0 + INTERVAL + 5)

    assert not any(isinstance(each, StopPinging) for each in decisions)


# -- who is told -------------------------------------------------------------------


def test_the_head_of_the_line_is_woken_on_failover_and_on_recovery() -> None:
    for end in ("failover", "recovery"):
        entity = suspect(make())
        entity.line.join(Call("first"), 1)
        entity.line.join(Call("second"), 1)
        if end == "failover":
            entity.begin()
            decisions = entity.timer_fired(1, T0 + INTERVAL)
        else:
            decisions = entity.accepted(0, T0 + 1)

        assert [each for each in decisions if isinstance(each, Wake)] == [
            Wake(Call("first"))
        ]


def test_sends_are_not_direct_while_others_wait() -> None:
    entity = make()
    place = entity.line.join(Call("call"), 1)

    assert not entity.direct

    entity.line.leave(place)
    assert entity.direct


def test_every_event_says_path_time_and_cause() -> None:
    (event,) = (each.event for each in fail(make(), T0) if isinstance(each, Tell))

    assert event.path == "orders"
    assert event.at_ms == T0
    assert event.cause is LOST


def test_closing_ends_timers_and_pings() -> None:
    assert suspect(make()).stop() == [CancelTimer("orders", 1)]
    entity = failed_over()
    assert entity.stop() == [StopPinging("orders", 1)]
    assert entity.ping_ended(1, None, None, T0 + 1) == []
    assert make().stop() == []


# -- the table ---------------------------------------------------------------------


def test_inputs_outside_the_table_change_nothing() -> None:
    for state, happened in product(EntityState, Input):
        if (state, happened) in TRANSITIONS:
            continue
        entity = make()
        entity.state = state

        assert entity._apply(happened, T0, None) == []
        assert entity.state is state


@pytest.mark.parametrize("over", [EntityState.FAILED_OVER, EntityState.REFUSED])
def test_only_acceptance_and_mark_healthy_end_a_failover(over: EntityState) -> None:
    ways = {
        happened: move.to
        for (state, happened), move in TRANSITIONS.items()
        if state is over
        and move.to not in (EntityState.FAILED_OVER, EntityState.REFUSED)
    }

    assert ways == {
        Input.ACCEPTED: EntityState.PROBATION,
        Input.ACCEPTED_LATE: EntityState.PROBATION,
        Input.PING_ACCEPTED: EntityState.PROBATION,
        Input.MARKED_HEALTHY: EntityState.HEALTHY,
    }


def test_every_state_can_be_reached_and_left() -> None:
    reached = {move.to for move in TRANSITIONS.values()}
    left = {state for (state, _), move in TRANSITIONS.items() if move.to is not state}

    assert reached == set(EntityState) == left
