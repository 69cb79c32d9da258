"""A plan is worked out from the wishes and the seed, and from nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from twinbus import limits
from twinbus.drill.plan import (
    ENTITIES,
    FAULTS,
    SESSION_QUEUE,
    TOPIC,
    WITNESS_QUEUE,
    Plan,
    Wishes,
    make_plan,
    primary_entities,
    rules,
    secondary_entities,
)
from twinbus.errors import ConfigError
from twinbus.server.setup.config import parse_config
from twinbus.testing.namespace import config_text

SEEDS = range(40)


def everything(plan: Plan) -> list[object]:
    return [each for sender in range(plan.senders) for each in plan.shipments(sender)]


def test_the_same_seed_plans_the_same_drill() -> None:
    wishes = Wishes(seed=7)

    first, second = make_plan(wishes), make_plan(wishes)

    assert first == second
    assert everything(first) == everything(second)


def test_another_seed_plans_another_drill() -> None:
    first, second = make_plan(Wishes(seed=7)), make_plan(Wishes(seed=8))

    assert first.fault_at_ms != second.fault_at_ms
    assert everything(first) != everything(second)


def test_both_ways_to_cut_come_up() -> None:
    found = {make_plan(Wishes(fault="cut", seed=seed)).cut for seed in SEEDS}

    assert found == {"refuse", "silence"}


def test_random_chooses_every_fault_and_naming_it_plans_the_same_drill() -> None:
    plans = [make_plan(Wishes(fault="random", seed=seed)) for seed in range(100)]

    assert {plan.fault for plan in plans} == set(FAULTS)
    for plan in plans:
        assert make_plan(Wishes(fault=plan.fault, seed=plan.seed)) == plan


@pytest.mark.parametrize("seconds", [15.0, 30.0, 45.0, 120.0, 600.0])
def test_a_sick_primary_is_pinged_again_while_there_is_traffic(seconds: float) -> None:
    for seed in SEEDS:
        plan = make_plan(Wishes(fault="sick", seed=seed, seconds=seconds))
        # Pings come 1, 2, 4 and so on seconds after one another; all in the fault
        # end in a relapse.
        ping_ms, pause_ms = limits.DRILL_FAILOVER_SECONDS * 1000, 1000.0
        while ping_ms <= plan.outage_ms:
            ping_ms, pause_ms = ping_ms + pause_ms, 2 * pause_ms
        assert plan.fault_at_ms + ping_ms + 1500 <= plan.traffic_ms


def test_seconds_set_the_time_at_the_usual_rate() -> None:
    plan = make_plan(Wishes(seconds=20))

    assert plan.traffic_ms == 20_000
    assert plan.messages == 20 * limits.DRILL_RATE


@pytest.mark.parametrize("messages", [200, 5000, 9000, 100_000])
def test_messages_set_the_number_at_a_rate_that_fits(messages: int) -> None:
    plan = make_plan(Wishes(messages=messages))

    assert len(everything(plan)) == plan.messages == messages
    assert plan.traffic_ms >= limits.DRILL_SECONDS_MIN * 1000
    assert plan.rate <= limits.DRILL_RATE_MAX + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_outage_is_long_enough_and_leaves_time_to_come_back(seed: int) -> None:
    for seconds in (limits.DRILL_SECONDS_MIN, 30.0, 120.0):
        plan = make_plan(Wishes(seed=seed, seconds=seconds))
        back_at_ms = plan.fault_at_ms + plan.outage_ms

        assert plan.fault_at_ms >= 2000
        assert plan.outage_ms >= (limits.DRILL_FAILOVER_SECONDS + 3) * 1000
        assert plan.traffic_ms - back_at_ms >= 4000


@pytest.mark.parametrize("senders", [1, 3, 8])
def test_each_sender_meets_the_outage_with_each_entity(senders: int) -> None:
    wishes = Wishes(
        messages=limits.DRILL_MESSAGES_PER_SENDER_MIN * senders, senders=senders
    )
    for seed in SEEDS:
        plan = make_plan(replace(wishes, seed=seed))
        end_ms = plan.fault_at_ms + plan.outage_ms - 3000
        for sender in range(senders):
            met = Counter(
                each.path
                for each in plan.shipments(sender)
                if plan.fault_at_ms < each.at_ms < end_ms
            )
            assert met.keys() == set(ENTITIES), f"seed {seed}"


def test_messages_leave_in_the_order_of_their_time_and_have_their_own_ids() -> None:
    plan = make_plan(Wishes(seed=3))
    keys = set()

    for sender in range(plan.senders):
        shipments = list(plan.shipments(sender))
        times = [each.at_ms for each in shipments]
        assert times == sorted(times)
        assert times[-1] <= plan.traffic_ms
        keys |= {each.key for each in shipments}

    assert len(keys) == plan.messages


def test_messages_are_of_every_kind() -> None:
    shipments = list(make_plan(Wishes(seed=3)).shipments(0))

    assert all(bool(each.session) == (each.path == SESSION_QUEUE) for each in shipments)
    assert any(each.ttl_ms for each in shipments)
    assert any(each.delay_ms for each in shipments)
    assert len({each.body for each in shipments}) == len(shipments)
    assert all(len(each.body) == each.body_bytes for each in shipments)


def test_nothing_is_scheduled_beyond_the_traffic() -> None:
    plan = make_plan(Wishes(seed=3))

    for each in plan.shipments(0):
        assert each.at_ms + each.delay_ms <= plan.traffic_ms


@pytest.mark.parametrize(
    ("wishes", "option"),
    [
        (Wishes(fault="fire"), "--fault"),
        (Wishes(syphon="hose"), "--syphon"),
        (Wishes(messages=1000, seconds=20), "--messages or --seconds"),
        (Wishes(messages=10), "--messages"),
        (Wishes(messages=10**9), "--messages"),
        (Wishes(seconds=1), "--seconds"),
        (Wishes(seconds=1e9), "--seconds"),
        (Wishes(seconds=float("nan")), "--seconds"),
        (Wishes(senders=0), "--senders"),
        (Wishes(senders=100), "--senders"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wishes: Wishes, option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        make_plan(wishes)


def test_a_plan_survives_the_way_to_another_process() -> None:
    plan = make_plan(Wishes(seed=3, cast="some.package"))

    assert Plan(**plan.to_values()) == plan


def test_the_entities_can_be_made_and_are_what_the_rules_judge() -> None:
    [config] = parse_config(config_text(primary_entities(), "n"), "plan.json")

    names = {queue.name for queue in config.queues} | {TOPIC}
    locks = {
        queue.lock_duration_ms for queue in config.queues if queue.name in ENTITIES
    }
    promised = rules(make_plan(Wishes())).namespace
    assert names == {*ENTITIES, WITNESS_QUEUE}
    assert locks == {promised.default.lock_ms}
    for queue in config.queues:
        window_ms = promised.of(queue.name).duplicate_window_ms
        assert bool(window_ms) == queue.requires_duplicate_detection
    assert len(promised.destinations(TOPIC)) == len(config.topics[0].subscriptions)


def test_the_secondary_is_empty_before_the_senders_come() -> None:
    assert secondary_entities(make_plan(Wishes())) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_can_be_told(fault: str) -> None:
    plan = make_plan(Wishes(fault=fault))

    assert plan.fault_text
    assert Plan(**plan.to_values()).rules == FAULTS[fault]
