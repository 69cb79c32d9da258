"""One entity in each of its states, for tests of the state machine."""

from __future__ import annotations

from twinbus.pairing.events import EventKind
from twinbus.pairing.rules.classification import Verdict
from twinbus.pairing.rules.decisions import Decision, Tell
from twinbus.pairing.rules.holding import HoldBudget
from twinbus.pairing.rules.policy import EntityPolicy, EntityState, PolicySettings

T0 = 1_700_000_000_000
INTERVAL = 60_000
LOST = ConnectionResetError("lost")
COUNTED = Verdict.COUNTED


class Call(str):
    """A call in a line, known by its name; waking it does nothing."""

    __slots__ = ()

    def wake(self) -> None:
        pass


def make(interval_ms: int = INTERVAL, ping_ms: int = 60_000) -> EntityPolicy:
    settings = PolicySettings(interval_ms, ping_ms)
    return EntityPolicy("orders", settings, HoldBudget())


def told(decisions: list[Decision]) -> list[EventKind]:
    return [each.event.kind for each in decisions if isinstance(each, Tell)]


def without_events(decisions: list[Decision]) -> list[Decision]:
    return [each for each in decisions if not isinstance(each, Tell)]


def fail(entity: EntityPolicy, now_ms: int, attempt: int = 0) -> list[Decision]:
    return entity.failed(attempt, COUNTED, LOST, now_ms)


def suspect(entity: EntityPolicy) -> EntityPolicy:
    fail(entity, T0)
    assert entity.state is EntityState.SUSPECT
    return entity


def failed_over() -> EntityPolicy:
    """Failed over at T0, with the first ping planned."""
    entity = make(interval_ms=0)
    fail(entity, T0)
    assert entity.state is EntityState.FAILED_OVER
    return entity


def on_probation(relapses: int = 0) -> EntityPolicy:
    """Failed back at T0, after so many relapses."""
    entity = failed_over()
    ping_id = 1
    for _ in range(relapses):
        entity.ping_ended(ping_id, None, None, T0)
        fail(entity, T0, entity.begin())
        ping_id += 1
    entity.ping_ended(ping_id, None, None, T0)
    assert entity.state is EntityState.PROBATION
    return entity


def deciding() -> EntityPolicy:
    """The timer fired after silence."""
    entity = suspect(make())
    entity.timer_fired(1, T0 + INTERVAL)
    assert entity.state is EntityState.DECIDING
    return entity
