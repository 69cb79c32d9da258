"""The price book: read from YAML, and what it says about a usage.

Owns the format of the file, which the comments of `prices.yaml` explain, and the lines
of a bill. Every mistake in a file is refused in one line that names the line and the
key. There is no price in the code: what a file leaves out is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from twinbus import limits
from twinbus.config_node import (
    ConfigNode,
    known_fields,
    read_file,
    read_text,
    required_field,
)
from twinbus.cost.money import Tier, rounded, tiered
from twinbus.cost.usage import Charge, Usage
from twinbus.ledger.schema import GAP, OPERATIONS, OUTCOMES

MONTH_DAYS = 30
MILLION = 1_000_000
GIGABYTE = 1024**3

_DEFAULT = Path(__file__).with_name("prices.yaml")
_EACH, _ALL = "each", "all"
_FREE = (Tier(None, Decimal(0)),)


@dataclass(frozen=True, slots=True)
class BillLine:
    """One line of a bill."""

    # base, operations, connections, bandwidth_out or bandwidth_in.
    name: str
    # Months, operations, connections or bytes.
    quantity: int | Fraction
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Bill:
    """What a usage costs."""

    currency: str
    lines: tuple[BillLine, ...]

    @property
    def total(self) -> Decimal:
        """The sum of the lines, which are rounded."""
        return sum((line.amount for line in self.lines), Decimal(0))

    @property
    def operations(self) -> int:
        """How many operations are charged."""
        return next(int(x.quantity) for x in self.lines if x.name == "operations")


@dataclass(frozen=True, slots=True)
class PriceBook:
    """What things cost."""

    name: str
    currency: str
    decimals: int
    base: Decimal
    # Whether the base price is for each namespace, or once for all.
    base_for_each: bool
    operations: Sequence[Tier]
    charged: frozenset[Charge]
    connections: Sequence[Tier] = _FREE
    bandwidth_out: Sequence[Tier] = _FREE
    bandwidth_in: Sequence[Tier] = _FREE

    def counted(self, usage: Usage) -> int:
        """How many of the operations are charged."""
        found = usage.operations.items()
        return sum(count for charge, count in found if charge in self.charged)

    def bill(self, usage: Usage) -> Bill:
        """What a usage costs, line by line."""
        months = usage.days / MONTH_DAYS
        based = usage.namespaces if self.base_for_each else 1
        held = tiered(Fraction(usage.connections), self.connections, Fraction(1))
        count = self.counted(usage)
        lines: list[tuple[str, int | Fraction, Fraction]] = [
            ("base", months, Fraction(self.base) * months * based),
            (
                "operations",
                count,
                tiered(Fraction(count, MILLION), self.operations, months),
            ),
            ("connections", usage.connections, held * months),
        ]
        for name, used, tiers in (
            ("bandwidth_out", usage.bytes_out, self.bandwidth_out),
            ("bandwidth_in", usage.bytes_in, self.bandwidth_in),
        ):
            amount = tiered(Fraction(used, GIGABYTE), tiers, months)
            lines.append((name, used, amount))
        return Bill(
            self.currency,
            tuple(
                BillLine(name, quantity, rounded(amount, self.decimals))
                for name, quantity, amount in lines
            ),
        )

    def at_most(self, usage: Usage) -> Decimal:
        """What a usage adds to a bill at most: all of it in the dearest tiers.

        What it really adds depends on what else is used in the month.
        """
        parts = (
            (Fraction(self.counted(usage), MILLION), self.operations),
            (Fraction(usage.bytes_out, GIGABYTE), self.bandwidth_out),
            (Fraction(usage.bytes_in, GIGABYTE), self.bandwidth_in),
        )
        amount = sum(
            units * Fraction(max(tier.price for tier in tiers))
            for units, tiers in parts
        )
        return rounded(Fraction(amount), self.decimals)


# -- the file ------------------------------------------------------------------------


def default_text() -> str:
    """The default price book, with its comments."""
    return _DEFAULT.read_text(encoding="utf-8")


def load_prices(path: Path | None = None) -> PriceBook:
    """Read a price book; the default one without a path.

    `ConfigError` says what to change.
    """
    return _book(read_file(_DEFAULT if path is None else path))


def parse_prices(text: str, file: str) -> PriceBook:
    """Read a price book from text; `file` is its name for errors and its format."""
    return _book(read_text(text, file))


def _book(root: ConfigNode) -> PriceBook:
    flows = ("connections", "bandwidth_out", "bandwidth_in")
    known = ("name", "currency", "decimals", "base", "operations", *flows)
    fields = known_fields(root.mapping(), known)
    base, base_for_each = _base(fields.get("base"))
    decimals = required_field(root, fields, "decimals")
    if not 0 <= decimals.integer() <= limits.PRICE_DECIMALS_MAX:
        most = limits.PRICE_DECIMALS_MAX
        decimals.fail(f"{decimals.value} must be between 0 and {most}.")
    operations = required_field(root, fields, "operations")
    inside = known_fields(operations.mapping(), ("tiers", "charged"))
    units = ("connections", "connection"), ("gb", "gb"), ("gb", "gb")
    return PriceBook(
        name=_words(required_field(root, fields, "name")),
        currency=_words(required_field(root, fields, "currency")),
        decimals=decimals.integer(),
        base=base,
        base_for_each=base_for_each,
        operations=_tiers(operations, ("millions", "million"), ("charged",)),
        charged=_charged(required_field(operations, inside, "charged")),
        **{
            name: _tiers(fields[name], unit)
            for name, unit in zip(flows, units, strict=True)
            if name in fields
        },
    )


def _words(node: ConfigNode) -> str:
    text = node.text()
    if not text.strip() or not text.isprintable():
        node.fail("this must be text of one line that is not empty.")
    return text


def _base(node: ConfigNode | None) -> tuple[Decimal, bool]:
    if node is None:
        return Decimal(0), False
    fields = known_fields(node.mapping(), ("price_per_month", "charged_for"))
    price = required_field(node, fields, "price_per_month").amount()
    charged_for = required_field(node, fields, "charged_for")
    if charged_for.text() not in (_EACH, _ALL):
        charged_for.fail(f"{charged_for.value!r} must be '{_EACH}' or '{_ALL}'.")
    return price, charged_for.text() == _EACH


def _charged(node: ConfigNode) -> frozenset[Charge]:
    kinds = [name for name in OPERATIONS if name != GAP]
    found = set()
    for kind, outcomes in known_fields(node.mapping(), kinds).items():
        for outcome in outcomes.items():
            if outcome.text() not in OUTCOMES:
                outcome.fail(
                    f"{outcome.value!r} is no outcome. Use {', '.join(OUTCOMES)}."
                )
            found.add((kind, outcome.text()))
    return frozenset(found)


def _tiers(
    node: ConfigNode, unit: tuple[str, str], beside: tuple[str, ...] = ()
) -> tuple[Tier, ...]:
    """The tiers of a section; `unit` is the plural and the singular of what is sold."""
    fields = known_fields(node.mapping(), ("tiers", *beside))
    nodes = required_field(node, fields, "tiers")
    up_to, price = f"up_to_{unit[0]}", f"price_per_{unit[1]}"
    tiers: list[Tier] = []
    last = len(nodes.items()) - 1
    if last < 0:
        nodes.fail(f"this has no tier. Write one with {price}.")
    for number, child in enumerate(nodes.items()):
        inside = known_fields(child.mapping(), (up_to, price))
        end = inside.get(up_to)
        if end is None and number != last:
            child.fail(f"the key '{up_to}' is missing: only the last tier has no end.")
        if end is not None and number == last:
            end.fail(
                "the last tier has no end, or more would have no price. Remove it."
            )
        before = tiers[-1].up_to if tiers else Decimal(0)
        if end is not None and before is not None and end.amount() <= before:
            end.fail(f"{end.value} must be more than {before}. Put tiers in order.")
        tiers.append(
            Tier(
                None if end is None else end.amount(),
                required_field(child, inside, price).amount(),
            )
        )
    return tuple(tiers)
