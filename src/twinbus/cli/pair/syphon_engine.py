"""Which engine moves the backlog: pumps inside this process, or tasks on Spark.

Owns the choice and its reason. An option that only Spark understands asks for Spark; so
does a syphon that is to run on, since its receipts outlive this process. A backlog that
`--until-empty` finds to be small is drained here, sooner than Spark would have started.
Knows nothing about how either works.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import typer

from twinbus import limits
from twinbus.errors import ConfigError


class SyphonEngine(enum.Enum):
    """What moves the messages."""

    APPLICATION = "application"
    SPARK = "spark"


EngineName = Annotated[
    SyphonEngine | None,
    typer.Option(
        "--engine",
        help="application: inside this process, without Spark. Otherwise spark for "
        "--master, for running on, and for more than "
        f"{limits.SYPHON_APPLICATION_MESSAGES_MAX} messages.",
    ),
]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What the options say about the engine."""

    asked: SyphonEngine | None
    until_empty: bool
    # Options that only Spark understands, by name; None for one that is not given.
    for_spark: Mapping[str, object] = field(default_factory=dict)

    def by_options(self) -> tuple[SyphonEngine, str] | None:
        """The engine and why; None if the size of the backlog decides."""
        given = [name for name, value in self.for_spark.items() if value]
        if self.asked is SyphonEngine.APPLICATION and given:
            raise ConfigError(
                f"{given[0]} is for Spark. Leave it out, or give --engine spark."
            )
        if self.asked is not None:
            return self.asked, "--engine says so"
        if given:
            return SyphonEngine.SPARK, f"{given[0]} is for Spark"
        if not self.until_empty:
            return SyphonEngine.SPARK, "without --until-empty it runs on"
        return None


def by_size(messages: int) -> tuple[SyphonEngine, str]:
    """The engine for a backlog of so many messages, and why."""
    most = limits.SYPHON_APPLICATION_MESSAGES_MAX
    if messages > most:
        return SyphonEngine.SPARK, f"{messages} messages are more than {most}"
    return SyphonEngine.APPLICATION, f"{messages} messages are not more than {most}"
