"""What a backlog and an outage cost: operations, and their price at most.

Owns what is counted for them; prices and the arithmetic are `cost/`'s. A message counts
once for each 64 KB of the mean of those that wait. The price is that of the default
price book, all of it in the dearest tiers: what it really adds to a bill depends on
what else is used in the month, which the report of a ledger says.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from twinbus.cost.prices import PriceBook, load_prices
from twinbus.cost.spent import added_by
from twinbus.cost.usage import Usage
from twinbus.ledger.keeper import LedgerKeeper
from twinbus.ledger.schema import ACCEPTED, RECEIVE, SEND, SETTLE, size_class

# An outage is often cheaper than the smallest coin.
_DECIMALS = 6


@cache
def _book() -> PriceBook:
    return replace(load_prices(), decimals=_DECIMALS)


def about_prices(ledger: LedgerKeeper | None) -> dict[str, Any]:
    """Which prices these are, and where operations are counted."""
    book = _book()
    folder = None if ledger is None else str(ledger.folder)
    return {"book": book.name, "currency": book.currency, "ledger": folder}


def backlog_costs(
    diverted: int, returned: int, waiting: int, waiting_bytes: int
) -> dict[str, dict[str, Any]]:
    """What a backlog has added so far, and what it takes to bring home what waits."""
    each = size_class(waiting_bytes // waiting) if waiting else 1
    so_far = {(SEND, ACCEPTED): diverted * each, (RECEIVE, ACCEPTED): returned * each}
    to_drain = {
        (RECEIVE, ACCEPTED): waiting * each,
        (SEND, ACCEPTED): waiting * each,
        (SETTLE, ACCEPTED): waiting,
    }
    days = Fraction(0)
    return {
        "so_far": _cost(Usage(days, so_far)),
        "to_drain": _cost(Usage(days, to_drain, waiting_bytes, waiting_bytes)),
    }


def outage_cost(outage: dict[str, Any]) -> dict[str, Any]:
    """What an outage has added once it is drained; the last ping of each succeeded."""
    diverted, pings = outage["diverted"], outage["pings"]
    accepted = 0 if outage["ended_at"] is None else min(outage["clients"], pings)
    names = ("diverted_operations", "home_operations", "drained_operations")
    counted = {
        **dict.fromkeys(names, diverted),
        **dict.fromkeys(("diverted_bytes", "home_bytes", "drained_bytes"), 0),
        "pings_accepted": accepted,
        "pings_failed": pings - accepted,
    }
    return _cost(added_by(counted))


def _cost(usage: Usage) -> dict[str, Any]:
    book = _book()
    money = book.at_most(usage)
    return {"operations": book.counted(usage), "money_at_most": str(money)}
