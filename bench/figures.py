"""Figures: medians of rounds with their spread, as a table and as one flat object.

Owns how a result is counted and shown. A figure that could not be measured is there
with no value, and the reason is listed: nothing is skipped in silence.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.target import Missing


@dataclass(frozen=True, slots=True)
class Figure:
    """One result; the values are those of the rounds."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(slots=True)
class Goal:
    """What a figure should reach."""

    value: float
    at_most: bool = False

    def met_by(self, value: float) -> bool:
        return value <= self.value if self.at_most else value >= self.value

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.value:g}"


GOALS = {
    "server_send_vs_rabbitmq": Goal(1.2),
    "server_receive_vs_rabbitmq": Goal(1.2),
    "server_send_vs_limit": Goal(0.65),
    "server_receive_vs_limit": Goal(0.55),
    "proton_send_vs_rabbitmq": Goal(1.8),
    "proton_receive_vs_rabbitmq": Goal(4),
    "proton_send_vs_artemis": Goal(1),
    "proton_receive_vs_artemis": Goal(1),
    "cluster_send_vs_quorum": Goal(1),
    "cluster_receive_vs_quorum": Goal(1),
    "cluster_send_vs_copy": Goal(0.5),
    "cluster_pinned_receive_ratio": Goal(0.9),
    "encoding_worst_vs_best": Goal(1.15, at_most=True),
    "latency_1_p50_vs_rabbitmq": Goal(1, at_most=True),
    "latency_1_p99_vs_rabbitmq": Goal(1, at_most=True),
    "latency_8_p50_vs_rabbitmq": Goal(1, at_most=True),
    "latency_8_p99_vs_rabbitmq": Goal(1, at_most=True),
    "latency_64_p50_vs_rabbitmq": Goal(1, at_most=True),
    "latency_64_p99_vs_rabbitmq": Goal(1, at_most=True),
    "topic_10_copy_vs_send": Goal(0.5, at_most=True),
    "topic_100_copy_vs_send": Goal(0.5, at_most=True),
    "deep_receive_ratio": Goal(0.95),
    "deep_memory_mib": Goal(64, at_most=True),
    "start_seconds_empty": Goal(1, at_most=True),
    "start_seconds_at_million": Goal(2, at_most=True),
    "ledger_overhead_percent": Goal(2, at_most=True),
    "console_processor_percent": Goal(2, at_most=True),
    "console_overhead_percent": Goal(2, at_most=True),
    "client_send_batches_vs_sdk": Goal(5),
    "client_send_single_vs_sdk": Goal(3),
    "paired_overhead_percent": Goal(3, at_most=True),
    # With the official constructor on both sides: see `pairing.py`.
    "paired_send_batches_vs_sdk": Goal(1.5),
    "paired_send_made_batches_vs_sdk": Goal(5),
    "paired_send_made_single_vs_sdk": Goal(5),
    "paired_send_dict_batches_vs_sdk": Goal(5),
    "paired_send_light_batches_vs_sdk": Goal(5),
    "paired_send_light_single_vs_sdk": Goal(5),
    "paired_send_single_vs_sdk": Goal(5),
    "syphon_vs_shovel": Goal(2),
    "syphon_two_tasks_vs_one_far": Goal(1.5),
    "report_growth_vs_linear": Goal(1.2, at_most=True),
    "attack_longest_ms": Goal(250, at_most=True),
    "load_throttled_loud_p99_vs_full": Goal(3, at_most=True),
    "load_throttled_quiet_p99_vs_full": Goal(3, at_most=True),
    "partitioned_throttled_ratio": Goal(0.5, at_most=True),
}


@dataclass(slots=True)
class Results:
    """All figures of a run."""

    figures: dict[str, Figure | None] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    # What is not measured: the machine, the versions, the numbers of messages.
    facts: dict[str, str | int | float | bool] = field(default_factory=dict)

    def add(self, name: str, values: Sequence[float]) -> None:
        self.figures[name] = Figure(values)

    def ratio(self, name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
        """A figure that compares two neighbours in each round."""
        pairs = zip(ours, theirs, strict=True)
        self.add(name, [one / other for one, other in pairs])

    def miss(self, peer: Missing, *names: str) -> None:
        """A peer is not there, and neither are these figures."""
        self.missing[peer.name] = peer.reason
        for name in names:
            self.figures[name] = None

    def flat(self) -> dict[str, Any]:
        """Everything as one object without depth."""
        flat: dict[str, Any] = {}
        for name, figure in self.figures.items():
            flat[name] = None if figure is None else _rounded(figure.median)
        for name, figure in self.figures.items():
            if figure is not None:
                flat[f"{name}_min"] = _rounded(min(figure.values))
                flat[f"{name}_max"] = _rounded(max(figure.values))
                flat[f"{name}_rounds"] = len(figure.values)
        flat |= {f"missing_{name}": reason for name, reason in self.missing.items()}
        return flat | self.facts

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.flat(), indent=2) + "\n")

    def show(self, console: Console) -> None:
        """Print the table."""
        table = Table("figure", "median", "spread", "goal", "")
        # Where the page is narrow the spread takes two lines, and a name stays whole.
        table.columns[0].no_wrap = True
        for column in table.columns[1:3]:
            column.justify = "right"
        for name, figure in self.figures.items():
            goal = GOALS.get(name)
            asked = "" if goal is None else str(goal)
            if figure is None:
                table.add_row(name, "missing", "", asked, "")
                continue
            verdict = ""
            if goal is not None:
                verdict = "met" if goal.met_by(figure.median) else "MISSED"
            low, high = min(figure.values), max(figure.values)
            spread = f"{_text(low)} - {_text(high)}"
            table.add_row(name, _text(figure.median), spread, asked, verdict)
        console.print(table)
        for name, reason in self.missing.items():
            console.print(f"missing: {name}: {reason}", markup=False)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
