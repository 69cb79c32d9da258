"""The entities of a factory together, and what a dashboard shows of them."""

from __future__ import annotations

import json

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
    suspect,
)
from twinbus.pairing.rules.decisions import (
    CancelTimer,
)
from twinbus.pairing.rules.holding import HoldBudget
from twinbus.pairing.rules.policy import (
    EntityState,
    PairingPolicy,
    PolicySettings,
    entity_key,
)

# -- many entities -----------------------------------------------------------------


def test_failover_is_per_entity() -> None:
    policy = PairingPolicy(PolicySettings(failover_interval_ms=0))

    fail(policy.entity("orders"), T0)

    assert policy.entity("orders").state is EntityState.FAILED_OVER
    assert policy.entity("invoices").direct


@pytest.mark.parametrize(
    "spelling", ["Orders", "/orders/", "sb://h/orders", "amqps://h:5671/ORDERS"]
)
def test_paths_compare_case_insensitively(spelling: str) -> None:
    policy = PairingPolicy(PolicySettings())

    assert policy.entity(spelling) is policy.entity("orders")
    assert entity_key(spelling) == "orders"


def test_every_sender_of_a_factory_shares_the_machine() -> None:
    policy = PairingPolicy(PolicySettings(failover_interval_ms=0))
    first, second = policy.entity("orders"), policy.entity("orders")

    fail(first, T0)

    assert second.state is EntityState.FAILED_OVER


def test_closing_the_factory_ends_everything() -> None:
    policy = PairingPolicy(PolicySettings())
    fail(policy.entity("a"), T0)
    fail(policy.entity("b"), T0)

    assert policy.stop() == [CancelTimer("a", 1), CancelTimer("b", 1)]


# -- status ------------------------------------------------------------------------


def test_status_tells_the_whole_state() -> None:
    policy = PairingPolicy(PolicySettings())
    entity = suspect(policy.entity("orders"))
    entity.line.join(Call("call"), 100)

    status = policy.status()

    (shown,) = status.entities
    assert shown.path == "orders"
    assert shown.state == "suspect"
    assert not shown.deciding
    assert shown.since_ms == T0
    assert shown.timer_due_ms == T0 + INTERVAL
    assert shown.next_ping_ms is None
    assert shown.held == 1
    assert shown.counted_failures == 1
    assert shown.last_cause == "ConnectionResetError: lost"
    assert (status.held, status.held_bytes) == (1, 100)
    assert json.loads(json.dumps(status.as_dict()))["held"] == 1


def test_status_shows_deciding_as_suspect_and_when_the_next_ping_is() -> None:
    shown = deciding().status()

    assert shown.state == "suspect"
    assert shown.deciding
    assert shown.next_ping_ms == T0 + INTERVAL
    assert shown.timer_due_ms is None


def test_status_counts_failovers_pings_and_diverted_messages() -> None:
    entity = failed_over()
    entity.diverted(3)
    entity.ping_ended(1, COUNTED, LOST, T0 + 5)
    entity.ping_ended(2, None, None, T0 + 60_000)
    fail(entity, T0 + 70_000, entity.begin())

    shown = entity.status()

    assert (shown.failovers, shown.relapses, shown.pings) == (1, 1, 2)
    assert shown.diverted == 3
    assert shown.state == "failed over"


def test_a_budget_of_its_own_is_used() -> None:
    budget = HoldBudget(1, 1)

    assert PairingPolicy(PolicySettings(), budget).budget is budget
