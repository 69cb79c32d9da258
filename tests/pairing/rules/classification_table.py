"""Writes the table of failures in the guide from the one in the code.

    python -m tests.pairing.rules.classification_table

A test compares the two, so neither can change without the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from twinbus.pairing.rules.classification import (
    CONDITIONS,
    FAULTS,
    STATUSES,
    Failure,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pairing.md"
START = "<!-- made by python -m tests.pairing.rules.classification_table -->\n"
END = "<!-- end of what is made -->\n"


def table() -> str:
    """The table, a line for each kind of failure."""
    lines = ["| what is wrong | verdict | said by |", "|---|---|---|"]
    lines += [
        f"| {kind.value} | {kind.verdict.value} | {', '.join(_said_by(kind))} |"
        for kind in Failure
    ]
    return "\n".join(lines) + "\n"


def _said_by(kind: Failure) -> Iterator[str]:
    yield from (f"`{name}`" for name, each in CONDITIONS.items() if each is kind)
    yield from (f"{status}" for status, each in STATUSES.items() if each is kind)
    for name, each in FAULTS.items():
        if each is kind:
            yield f"`{name.removeprefix('builtins.').rpartition('.')[2]}`"


def page(text: str) -> str:
    """The guide with the table of today."""
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    return f"{head}{START}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
