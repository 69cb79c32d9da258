"""Numbered changes of a schema.

Owns which scripts there are (`<dialect>/sql/migrations/NNN_name.sql`, counted from 1
without gaps) and the rule that a newer schema is refused: an older program would not
know what it breaks. Does not run anything; each database has its own way to do so.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

from twinbus.errors import Bug, ConfigError


class Migration(NamedTuple):
    """One step from schema `number - 1` to schema `number`."""

    number: int
    name: str
    sql: str


def migrations(dialect: str) -> list[Migration]:
    """All steps in order."""
    folder = files("twinbus.store") / dialect / "sql" / "migrations"
    steps = []
    for path in folder.iterdir():
        number, _, name = path.name.removesuffix(".sql").partition("_")
        steps.append(Migration(int(number), name, path.read_text("utf-8")))
    steps.sort()
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        raise Bug(f"The migrations of {dialect} have a gap.")
    return steps


def pending(dialect: str, current: int, where: str) -> list[Migration]:
    """The steps that a database with schema `current` still needs."""
    steps = migrations(dialect)
    if current > len(steps):
        raise ConfigError(
            f"{where} has schema {current}, but this version of twinbus knows only "
            f"schemas up to {len(steps)}. Use a newer twinbus, or choose another "
            "--data."
        )
    return steps[current:]
