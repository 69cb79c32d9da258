"""Prices in tiers, and rounding.

Owns all arithmetic with money. Amounts are exact fractions until `rounded` makes a
decimal number of one, half up, at the end of a line of a bill. Knows nothing about what
is charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import floor


@dataclass(frozen=True, slots=True)
class Tier:
    """What one unit costs from the end of the tier before to the end of this one."""

    # Counted from 0; None in the last tier, which has no end.
    up_to: Decimal | None
    price: Decimal


def tiered(units: Fraction, tiers: Sequence[Tier], stretch: Fraction) -> Fraction:
    """The price of so many units; the ends of the tiers are `stretch` times as far."""
    amount, start = Fraction(0), Fraction(0)
    for tier in tiers:
        end = (
            units if tier.up_to is None else min(units, Fraction(tier.up_to) * stretch)
        )
        amount += max(end - start, Fraction(0)) * Fraction(tier.price)
        start = max(end, start)
    return amount


def rounded(amount: Fraction, decimals: int) -> Decimal:
    """The amount with so many decimals; what is half way between goes up."""
    return Decimal(floor(amount * 10**decimals + Fraction(1, 2))).scaleb(-decimals)
