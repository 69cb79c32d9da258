"""A price book: what its file says, what it refuses, and what its bills are."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.cost.money import Tier, rounded, tiered
from twinbus.cost.prices import default_text, load_prices, parse_prices
from twinbus.cost.usage import Usage
from twinbus.errors import ConfigError

SMALL = """\
name: small
currency: USD
decimals: 2
base:
  price_per_month: 9.99
  charged_for: each
operations:
  tiers:
  - up_to_millions: 1
    price_per_million: 0
  - up_to_millions: 3
    price_per_million: 0.80
  - price_per_million: 0.25
  charged:
    send: [accepted]
    ping: [accepted, failed]
connections:
  tiers:
  - up_to_connections: 10
    price_per_connection: 0
  - price_per_connection: 0.50
bandwidth_out:
  tiers:
  - price_per_gb: 0.10
"""
MONTH = Fraction(30)


def amounts(usage: Usage, text: str = SMALL) -> dict[str, str]:
    bill = parse_prices(text, "small.yaml").bill(usage)
    return {line.name: str(line.amount) for line in bill.lines}


def sends(count: int, days: Fraction = MONTH) -> Usage:
    return Usage(days, {("send", "accepted"): count})


def test_the_default_is_an_example_that_says_so() -> None:
    book = load_prices()

    assert book.name == "example"
    assert "THE FIGURES BELOW ARE EXAMPLES" in default_text()
    assert parse_prices(default_text(), "mine.yaml") == book


@pytest.mark.parametrize(
    ("count", "amount"),
    [
        (0, "0.00"),
        (1_000_000, "0.00"),
        (2_000_000, "0.80"),
        (3_000_000, "1.60"),
        (7_000_000, "2.60"),
    ],
)
def test_each_tier_has_its_own_price(count: int, amount: str) -> None:
    assert amounts(sends(count))["operations"] == amount


def test_only_what_the_book_names_is_charged() -> None:
    usage = Usage(
        MONTH,
        {
            ("send", "accepted"): 5,
            ("send", "failed"): 7,
            ("ping", "failed"): 11,
            ("settle", "accepted"): 13,
        },
    )

    bill = parse_prices(SMALL, "small.yaml").bill(usage)

    assert bill.operations == 16


def test_a_bill_has_a_line_for_all_that_is_charged_and_their_sum() -> None:
    usage = Usage(MONTH, {("send", "accepted"): 2_000_000}, 1, 5 * 1024**3, 2, 14)

    bill = parse_prices(SMALL, "small.yaml").bill(usage)

    assert amounts(usage) == {
        "base": "19.98",
        "operations": "0.80",
        "connections": "2.00",
        "bandwidth_out": "0.50",
        "bandwidth_in": "0.00",
    }
    assert (bill.currency, str(bill.total)) == ("USD", "23.28")


def test_tiers_and_the_base_price_grow_with_the_time() -> None:
    two_months = amounts(sends(4_000_000, MONTH * 2))

    assert two_months["operations"] == "1.60"
    assert two_months["base"] == "19.98"
    # A third of a cent less than 0.34: a day of the base price.
    assert amounts(sends(0, Fraction(1)))["base"] == "0.33"


def test_a_base_price_for_all_is_charged_once() -> None:
    text = SMALL.replace("charged_for: each", "charged_for: all")

    assert amounts(Usage(MONTH, namespaces=2), text)["base"] == "9.99"


@pytest.mark.parametrize(
    ("amount", "cents"), [("0.005", "0.01"), ("0.0149", "0.01"), ("2.675", "2.68")]
)
def test_half_a_cent_is_rounded_up(amount: str, cents: str) -> None:
    assert str(rounded(Fraction(amount), 2)) == cents


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=6, unique=True).map(sorted),
    st.lists(st.integers(0, 10**7), min_size=8, max_size=8),
)
def test_units_priced_one_after_the_other_cost_as_much_as_together(
    ends: list[int], units: list[int]
) -> None:
    tiers = [Tier(Decimal(end), Decimal(number)) for number, end in enumerate(ends)]
    tiers.append(Tier(None, Decimal(9)))
    one = Fraction(1)
    done, amount = Fraction(0), Fraction(0)

    for more in units:
        before = tiered(done, tiers, one)
        done += more
        amount += tiered(done, tiers, one) - before

    assert amount == tiered(done, tiers, one)


def test_an_addition_costs_at_most_what_the_dearest_tiers_say() -> None:
    book = parse_prices(SMALL, "small.yaml")
    usage = Usage(MONTH, {("send", "accepted"): 2_000_000}, bytes_out=1024**3)

    assert str(book.at_most(usage)) == "1.70"


REFUSALS = [
    ("name: small", "nmae: small", "line 1: nmae: this key is not known. Did you mean"),
    ("currency: USD\n", "", "the key 'currency' is missing."),
    ("name: small", "name: 5", "line 1: name: this is 5; it must be text"),
    ("currency: USD", 'currency: ""', "line 2: currency: this must be text of one"),
    ("decimals: 2", "decimals: 7", "line 3: decimals: 7 must be between 0 and 6."),
    ("decimals: 2", "decimals: two", "line 3: decimals: this is 'two'; it must be a"),
    ("9.99", "-9.99", "line 5: base.price_per_month: this is -9.99; it must be a num"),
    ("9.99", ".nan", "line 5: base.price_per_month: this is nan; it must be a number"),
    ("9.99", ".inf", "line 5: base.price_per_month: this is inf; it must be a number"),
    ("9.99", "yes", "line 5: base.price_per_month: this is True; it must be a number"),
    ("for: each", "for: one", "line 6: base.charged_for: 'one' must be 'each' or"),
    ("up_to_millions: 3", "up_to_millions: 1", "line 11: operations.tiers[1].up_to_m"),
    ("0.25", "0.25\n    up_to_millions: 9", "line 14: operations.tiers[2].up_to_mill"),
    ("- up_to_millions: 1\n    ", "- ", "line 9: operations.tiers[0]: the key 'up_to"),
    ("0.80", "free", "line 12: operations.tiers[1].price_per_million: this is 'free'"),
    ("    price_per_million: 0\n", "", "line 9: operations.tiers[0]: the key 'price_"),
    ("[accepted]", "[ok]", "line 15: operations.charged.send[0]: 'ok' is no outcome."),
    ("[accepted]", "accepted", "line 15: operations.charged.send: this is 'accepted'"),
    ("send:", "sent:", "line 15: operations.charged.sent: this key is not known. Did"),
    ("send:", "gap:", "line 15: operations.charged.gap: this key is not known."),
    (
        "  - price_per_gb: 0.10",
        "    []",
        "line 23: bandwidth_out.tiers: this has no tie",
    ),
    ("name: small", "name: a\nname: b", "line 2: the key 'name' is there twice."),
    (SMALL, "", "this is None; it must be a mapping of keys to values."),
    (SMALL, "a: [", "line 1, column 5: not YAML"),
]


@pytest.mark.parametrize(("old", "new", "refusal"), REFUSALS)
def test_a_mistake_is_refused_with_its_line_and_key(
    old: str, new: str, refusal: str
) -> None:
    assert old in SMALL

    with pytest.raises(ConfigError) as refused:
        parse_prices(SMALL.replace(old, new, 1), "small.yaml")

    assert refused.value.text.startswith(f"small.yaml: {refusal}")
    assert "\n" not in refused.value.text


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml: cannot be read"):
        load_prices(tmp_path / "mine.yaml")
