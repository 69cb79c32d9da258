"""The forecast reproduces the figures of the original documents, to the operation."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from twinbus.cost.forecast import (
    DRAINING,
    FAILED_OVER,
    FROM_BACKLOG,
    FROM_PRIMARY,
    HEALTHY,
    IDLE,
    PINGS,
    POLLS,
    TO_BACKLOG,
    TO_PRIMARY,
    CostForecast,
    PairPlan,
    forecast,
)
from twinbus.cost.prices import default_text, load_prices, parse_prices
from twinbus.errors import ConfigError

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
# The example of the command's help.
PLAN = PairPlan(
    entities=5,
    rate=Fraction(100),
    size_bytes=2048,
    backlog_queues=10,
    syphons=1,
    senders=20,
    outage_ms=2 * HOUR_MS,
    outages_per_year=4,
)


def changed(**values: object) -> CostForecast:
    fields = {name: getattr(PLAN, name) for name in PairPlan.__slots__}
    return forecast(PairPlan(**{**fields, **values}), load_prices())


def test_seed_ten_queues_are_polled_40_960_and_28800_times() -> None:
    assert PLAN.polls(HOUR_MS) == 40

    found = forecast(PLAN, load_prices())

    idle = {period.name: period.phases[IDLE].stages for period in found.periods}
    assert idle["day"] == {POLLS: 960}
    assert idle["month"] == {POLLS: 28_800}
    assert idle["year"] == {POLLS: 960 * 365}


@pytest.mark.parametrize("syphons", [0, 1, 2, 7])
def test_seed_each_further_syphon_polls_as_much_again(syphons: int) -> None:
    found = changed(syphons=syphons)

    assert found.period("month").phases[IDLE].operations == 28_800 * syphons


def test_a_service_that_ends_idle_links_makes_60_polls_an_hour_of_40() -> None:
    plan = PairPlan(poll_ms=10 * MINUTE_MS)

    assert plan.polls(HOUR_MS) == 60
    assert plan.polls(30 * 24 * HOUR_MS) == 43_200


def test_seed_a_diverted_message_has_four_charges_against_two() -> None:
    month = forecast(PLAN, load_prices()).period("month")
    diverted = 100 * 2 * 3600

    # 720,000 messages are drained in 720 seconds, in which 72,000 more are sent.
    draining = month.phases[DRAINING].stages
    assert month.phases[FAILED_OVER].stages[TO_BACKLOG] == diverted
    assert draining[FROM_BACKLOG] == diverted
    assert draining[TO_PRIMARY] == draining[FROM_PRIMARY] == diverted + 72_000
    sent = 100 * 30 * 86_400
    total = month.total.stages
    assert sum(total[s] for s in (TO_PRIMARY, FROM_PRIMARY)) == 2 * sent
    assert sum(total[s] for s in (TO_BACKLOG, FROM_BACKLOG)) == 2 * diverted
    assert month.unpaired.operations == 2 * sent


@pytest.mark.parametrize(
    ("outage_ms", "interval_ms", "pings"),
    [
        (2 * HOUR_MS, MINUTE_MS, 121),
        (2 * HOUR_MS - 1, MINUTE_MS, 120),
        (MINUTE_MS, MINUTE_MS, 2),
        (MINUTE_MS - 1, MINUTE_MS, 1),
        (HOUR_MS, 10_000, 361),
    ],
)
def test_seed_pings_are_one_and_one_more_for_each_interval_failed_over(
    outage_ms: int, interval_ms: int, pings: int
) -> None:
    found = changed(outage_ms=outage_ms, ping_interval_ms=interval_ms)

    # For each of 5 entities and 20 factories.
    stages = found.period("month").phases[FAILED_OVER].stages
    assert stages[PINGS] == pings * 5 * 20


def test_seed_nothing_is_pinged_while_all_is_healthy() -> None:
    found = changed(outages_per_year=0)

    for period in found.periods:
        assert PINGS not in period.total.stages
        assert period.phases[FAILED_OVER].operations == 0
        assert set(period.total.stages) == {TO_PRIMARY, FROM_PRIMARY, POLLS}


def test_pairing_adds_polls_pings_and_two_charges_for_each_diverted_message() -> None:
    month = forecast(PLAN, load_prices()).period("month")
    # Ten queues have no empty poll for 2 hours and 12 minutes: 8.8 polls each.
    polls = 28_800 - 10 * 9

    assert month.total.stages[POLLS] == polls
    assert month.added_operations == polls + 121 * 100 + 2 * 720_000


def test_messages_count_once_for_each_64_kb() -> None:
    small, large = (
        changed(size_bytes=size).period("month").unpaired.operations
        for size in (65_536, 65_537)
    )

    assert large == 2 * small


def test_the_failover_interval_holds_sends_and_delays_the_pings() -> None:
    found = changed(failover_interval_ms=MINUTE_MS)

    stages = found.period("month").phases[FAILED_OVER].stages
    assert stages[PINGS] == 120 * 100
    assert stages[TO_BACKLOG] == 720_000


def test_an_outage_shorter_than_the_failover_interval_costs_nothing() -> None:
    found = changed(failover_interval_ms=MINUTE_MS, outage_ms=MINUTE_MS - 1)

    assert (
        found.period("year").total == changed(outages_per_year=0).period("year").total
    )


def test_a_year_has_all_outages_and_a_day_and_a_month_one() -> None:
    found = forecast(PLAN, load_prices())

    counts = [period.outages for period in found.periods]
    diverted = [p.phases[FAILED_OVER].stages[TO_BACKLOG] for p in found.periods]
    assert counts == [1, 1, 4]
    assert diverted == [720_000, 720_000, 4 * 720_000]


def test_an_outage_that_is_longer_than_a_day_is_not_in_the_day() -> None:
    found = changed(outage_ms=30 * HOUR_MS)

    assert set(found.period("day").phases) == {IDLE, HEALTHY}
    assert found.period("day").outages == 0
    assert found.period("month").outages == 1


def test_outages_longer_than_a_year_are_refused() -> None:
    with pytest.raises(ConfigError, match="longer than a year"):
        changed(outage_ms=100 * 24 * HOUR_MS)


def test_without_sends_an_outage_is_not_noticed() -> None:
    found = changed(rate=Fraction(0))

    for period in found.periods:
        assert period.total.stages == period.phases[IDLE].stages


def test_the_backlog_holds_an_outage_of_its_size() -> None:
    # 50 GB at 200 KB a second.
    assert PLAN.backlog_holds_ms == 10 * 5 * 1024**3 * 1000 // (100 * 2048)
    assert PLAN.drain_ms == 720_000


def test_waiting_syphons_receive_again_what_they_cannot_deliver() -> None:
    # In each of 10 queues 600 messages more in each minute, and 2,000 locked at most:
    # 600, 1,200, 1,800, and then 117 times 2,000.
    each = 600 + 1_200 + 1_800 + 117 * 2_000

    assert PLAN.received_again == 10 * each
    assert changed(syphons=0).plan.received_again == 0
    assert changed(outages_per_year=1, outage_ms=59_000).plan.received_again == 0


def test_the_money_of_the_phases_adds_up_to_the_bill() -> None:
    found = forecast(PLAN, load_prices())

    for period in found.periods:
        phases = [period.phases[p].money for p in (HEALTHY, FAILED_OVER, DRAINING)]
        assert sum(phases) == period.total.money
        assert period.added_money == period.total.money - period.unpaired.money


def test_a_month_costs_what_the_price_book_says() -> None:
    month = changed(outages_per_year=0).period("month")

    # 518,428,800 operations: 87 million at 0.80 and 418.4288 million at 0.50; 10 for
    # the base. 42 connections are free. 494.38 GB go out, 100 of them free, at 0.08.
    operations = Decimal("69.60") + Decimal("209.21")
    assert month.total.operations == 518_428_800
    assert month.total.money == 10 + operations + Decimal("31.55")


def test_settlements_are_in_the_forecast_where_the_book_charges_them() -> None:
    text = default_text().replace("settle: []", "settle: [accepted]")
    month = forecast(PLAN, parse_prices(text, "mine.yaml")).period("month")

    # One for each message that was received, from the primary or the backlog.
    assert month.total.stages["settlements"] == 259_200_000 + 720_000
