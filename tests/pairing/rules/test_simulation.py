"""Many seeds of random outages: nothing is lost, and nothing healthy is diverted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.pairing.rules.simulation import Simulation
from tests.pairing.world import BacklogQueue
from twinbus.pairing.events import EventKind
from twinbus.pairing.rules import policy, send_call
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.decisions import Decision
from twinbus.pairing.rules.policy import (
    EntityPolicy,
    EntityState,
    Input,
    Move,
    PolicyAction,
)
from twinbus.pairing.rules.send_call import Done, NextStep, SendCall
from twinbus.pairing.rules.syphon_rules import DestinationStates


def run_seeds(first: int, count: int) -> Counter[str]:
    """Run these seeds; a failure names the one to run alone."""
    figures: Counter[str] = Counter()
    for seed in range(first, first + count):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        figures += simulation.figures
    return figures


def assert_all_was_seen(figures: Counter[str]) -> None:
    """A simulation in which nothing happens proves nothing."""
    expected = {
        *("done", "raised", "cancelled", "failed over", "diverted", "moved", "parked"),
        *("duplicates", "pings", "syphon deaths", "relapsed", "refused", "recovered"),
        "to outbox",
    }
    assert set(figures) >= expected, figures


def test_a_thousand_seeds_lose_nothing() -> None:
    assert_all_was_seen(run_seeds(0, 1_000))


@pytest.mark.campaign
def test_twenty_thousand_seeds_lose_nothing() -> None:
    figures = run_seeds(0, 20_000)

    print(dict(figures))
    assert_all_was_seen(figures)


# -- the simulation convicts broken rules ------------------------------------------


Moves = dict[tuple[EntityState, Input], Move]


def impatient(moves: Moves) -> None:
    """Fails over at the first failure, whatever the interval."""
    over = Move(
        EntityState.FAILED_OVER,
        (PolicyAction.PING_NOW, PolicyAction.DIVERT),
        (EventKind.SUSPECT, EventKind.FAILED_OVER),
    )
    moves[EntityState.HEALTHY, Input.FAILED] = over


def forgetful(moves: Moves) -> None:
    """Takes no notice of a success while the timer runs."""
    del moves[EntityState.SUSPECT, Input.ACCEPTED]


def deaf(moves: Moves) -> None:
    """Takes no notice of an accepted ping."""
    stay = Move(EntityState.FAILED_OVER, (PolicyAction.PING_NEXT,))
    moves[EntityState.FAILED_OVER, Input.PING_ACCEPTED] = stay


def trusting(moves: Moves) -> None:
    """Takes an accepted ping for proof that sends are accepted."""
    for state in (EntityState.FAILED_OVER, EntityState.REFUSED):
        for happened in (Input.ACCEPTED, Input.ACCEPTED_LATE, Input.PING_ACCEPTED):
            actions = (PolicyAction.STOP_PINGING, PolicyAction.RESUME)
            events = (EventKind.FAILED_BACK,)
            moves[state, happened] = Move(EntityState.HEALTHY, actions, events)


def hasty(moves: Moves) -> None:
    """Pings at once after a relapse."""
    moves[EntityState.PROBATION, Input.FAILED] = Move(
        EntityState.FAILED_OVER,
        (PolicyAction.PING_NOW, PolicyAction.DIVERT),
        (EventKind.RELAPSED,),
    )


def hoarding(moves: Moves) -> None:
    """Goes on to divert what the primary refuses."""
    moves[EntityState.FAILED_OVER, Input.PING_REFUSED] = Move(
        EntityState.FAILED_OVER, (PolicyAction.PING_NEXT,), (EventKind.REFUSED,)
    )


@pytest.mark.parametrize(
    ("mutate", "crime"),
    [
        (trusting, "no send was accepted since"),
        (hasty, "before the pause after a relapse"),
        (hoarding, "diverted what the primary refuses"),
        (impatient, "too early"),
        (forgetful, "there was a success"),
        (deaf, "did not fail back"),
    ],
)
def test_the_simulation_detects_a_broken_table(
    mutate: Callable[[Moves], None], crime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = dict(policy.TRANSITIONS)
    mutate(moves)
    monkeypatch.setattr(policy, "TRANSITIONS", moves)

    with pytest.raises(AssertionError, match=crime):
        run_seeds(0, 1_000)


def always(*_: object) -> bool:
    return True


def counts_everything(error: BaseException, classifier: object = None) -> Verdict:
    del error, classifier
    return Verdict.COUNTED


def keeps_its_place(self: SendCall) -> list[Decision]:
    del self
    return []


def believes_late_answers(
    self: EntityPolicy, attempt: int, now_ms: int, *, late: bool = False
) -> list[Decision]:
    del late
    since = self._end(attempt)
    if self.state is EntityState.PROBATION and not since:
        return []
    return self._apply(Input.ACCEPTED, now_ms, None)


def keeps_no_reserve(self: SendCall, now_ms: int) -> int:
    return self._until(now_ms + self._rules.attempt_ms)


def never(*_: object) -> bool:
    return False


def takes_a_failure_for_success(self: SendCall, *_: object) -> NextStep:
    self._diverting = False
    return NextStep(Done())


@pytest.mark.parametrize(
    ("owner", "name", "broken", "crime"),
    [
        (EntityPolicy, "diverts", property(never), "two sends are on trial"),
        (EntityPolicy, "accepted", believes_late_answers, "before the pause"),
        (EntityPolicy, "slow_send_ms", 0, "a slow send is not counted"),
        (SendCall, "_attempt_end", keeps_no_reserve, "and there was a place for it"),
        (SendCall, "_was_cut_short", never, "nothing was wrong"),
        (SendCall, "_has_outbox", property(never), "there was a place for it"),
        (SendCall, "outbox_failed", takes_a_failure_for_success, "is lost"),
        (DestinationStates, "may_send", always, "out of order"),
        (send_call, "verdict_of", counts_everything, "nothing was wrong"),
        (SendCall, "_leave", keeps_its_place, "not come to an end"),
    ],
)
def test_the_simulation_detects_a_broken_rule(
    owner: object,
    name: str,
    broken: object,
    crime: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, broken)

    with pytest.raises(AssertionError, match=crime):
        run_seeds(0, 1_000)


def test_the_simulation_detects_a_message_never_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BacklogQueue, "store", lambda *_: None)

    with pytest.raises(AssertionError, match="is lost"):
        run_seeds(0, 1_000)
