"""What counted operations have cost, by day and stage, and what each outage added.

Owns the money of a report. The bill is that of the whole time, so that tiers count as
they do in a forecast. A day and a stage have the share of it that their charged
operations are of all; the base price and the traffic stand beside them. An outage cost
what the bill has beyond the bill of the same traffic without it. Pure: rows of counts
in, numbers out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from twinbus.cost.prices import Bill, PriceBook
from twinbus.cost.usage import Charge, Usage
from twinbus.ledger.schema import ACCEPTED, FAILED, PING, RECEIVE, SEND

# An outage is often cheaper than the smallest coin.
_OUTAGE_DECIMALS = 6

Values = Mapping[str, Any]


@dataclass(slots=True)
class Spent:
    """The money of a report."""

    book: PriceBook
    bill: Bill
    usage: Usage
    # By day and stage, without base price and traffic.
    stages: dict[tuple[str, str], float] = field(default_factory=dict)
    # In the order of the outages.
    outages: list[Decimal] = field(default_factory=list)
    outage_operations: list[int] = field(default_factory=list)


def spent(
    book: PriceBook,
    rows: Sequence[Values],
    outages: Sequence[Values],
    days: int,
    namespaces: int,
) -> Spent:
    """Price rows by day, stage, operation and outcome, and outages."""
    usage = _usage(rows, days, namespaces)
    found = Spent(book, book.bill(usage), usage)
    amount = next(x.amount for x in found.bill.lines if x.name == "operations")
    charged = book.counted(usage)
    each = float(amount) / charged if charged else 0.0
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        if (row["operation"], row["outcome"]) in book.charged:
            sums[row["day"], row["stage"]] += row["operations"] * each
    found.stages = dict(sums)
    exact = replace(book, decimals=_OUTAGE_DECIMALS)
    total = exact.bill(usage).total
    for outage in outages:
        added = added_by(outage)
        without = replace(
            usage,
            operations=Counter(usage.operations) - Counter(added.operations),
            bytes_in=max(usage.bytes_in - added.bytes_in, 0),
            bytes_out=max(usage.bytes_out - added.bytes_out, 0),
        )
        found.outages.append(total - exact.bill(without).total)
        found.outage_operations.append(book.counted(added))
    return found


def _usage(rows: Sequence[Values], days: int, namespaces: int) -> Usage:
    operations: Counter[Charge] = Counter()
    for row in rows:
        operations[row["operation"], row["outcome"]] += row["operations"]
    return Usage(
        Fraction(days),
        operations,
        sum(row["bytes_in"] for row in rows),
        sum(row["bytes_out"] for row in rows),
        namespaces,
    )


def added_by(outage: Values) -> Usage:
    """What an outage added to the same traffic without it.

    The send to the primary is the same, only later. Added are the send to the backlog,
    the receive from it, the pings, and sends home that came twice.
    """
    diverted = outage["diverted_operations"]
    copies = max(outage["home_operations"] - diverted, 0) if diverted else 0
    again = max(outage["home_bytes"] - outage["diverted_bytes"], 0) if diverted else 0
    return Usage(
        Fraction(0),
        {
            (SEND, ACCEPTED): diverted + copies,
            (RECEIVE, ACCEPTED): outage["drained_operations"],
            (PING, ACCEPTED): outage["pings_accepted"],
            (PING, FAILED): outage["pings_failed"],
        },
        outage["diverted_bytes"] + again,
        outage["drained_bytes"],
    )
