"""What is used in a time: operations, traffic and connections, as plain numbers.

Owns the one shape in which a forecast and a report hand usage to a price book. Counts
are billable operations, as the ledger counts them: a message counts once for each 64 KB
that it has begun. Knows no price, and not where the numbers come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

# Kind of operation and outcome, in the words of `ledger/schema.py`.
Charge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Usage:
    """What is used in some days, by one or more namespaces together."""

    days: Fraction
    operations: Mapping[Charge, int] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0
    # How many there are; both are charged by time and not by use.
    namespaces: int = 1
    connections: int = 0

    def plus(self, more: Usage) -> Usage:
        """The same time, in which more is used; namespaces and connections stay."""
        return replace(
            self,
            operations=Counter(self.operations) + Counter(more.operations),
            bytes_in=self.bytes_in + more.bytes_in,
            bytes_out=self.bytes_out + more.bytes_out,
        )
