"""Options of Spark jobs: read once, refused by name, secrets kept out of sight.

    options = Options(given, known=("entity", "chunkSize", *ACCESS))
    access = options.access()                        one of the three of `ACCESS`
    chunk = options.integer("chunkSize", 500, low=1, high=2000)

Spark hands options over as texts whose names are in lower case; here they have the
spelling of the documentation, and every error names the option so. Rule: a connection
string is held as an `Access`, which prints as where it is found and never as what it
is. One that is in a variable or a file is read where it is needed, on each machine, so
that it travels in no plan and no task. Knows nothing about sources, sinks or syphons.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from twinbus.core.sas import ConnectionString, Secret, parse_connection_string
from twinbus.errors import ArgumentError

ACCESS = ("connectionString", "connectionStringEnv", "connectionStringFile")
# What Spark itself puts among the options of any source or sink.
_SPARKS_OWN = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Access:
    """Where a connection string is: given as it is, in a variable, or in a file."""

    # The option that says so.
    option: str
    # The variable or the file; None for a string that was given.
    place: str | None
    given: Secret | None = None

    def text(self) -> Secret:
        """The connection string, read now."""
        if self.given is not None:
            return self.given
        assert self.place is not None
        if self.option.endswith("Env"):
            found = os.environ.get(self.place, "")
        else:
            found = _content(self.option, self.place)
        if not found.strip():
            raise ArgumentError(
                f"Option '{self.option}': '{self.place}' is empty or not set on this "
                "machine. It has to be there on the driver and on every executor."
            )
        return Secret(found.strip())

    def parsed(self) -> ConnectionString:
        """The connection string, taken apart; errors never show its values."""
        try:
            return parse_connection_string(self.text().reveal())
        except ArgumentError as error:
            if error.text.startswith("Option "):
                raise
            raise ArgumentError(f"Option '{self.option}': {error.text}") from None

    def __str__(self) -> str:
        return f"{self.option}={self.place or '***'}"


def _content(option: str, place: str) -> str:
    """The text of a file: at its path, or shipped by `spark-submit --files`."""
    path = Path(place)
    if not path.is_absolute() and not path.exists():
        path = _shipped(place) or path
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not a text"
        if isinstance(error, OSError):
            reason = error.strerror or reason
        raise ArgumentError(
            f"Option '{option}': '{place}' cannot be read ({reason})."
        ) from None


def _shipped(name: str) -> Path | None:
    from pyspark import SparkFiles

    root = SparkFiles._root_directory if SparkFiles._is_running_on_worker else None
    return Path(root) / name if root else None


class Options:
    """The options of one job."""

    def __init__(self, given: Mapping[str, str], known: Collection[str]) -> None:
        spelling = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for key, value in given.items():
            name = spelling.get(key.lower())
            if name is not None:
                self._values[name] = value
            elif key.lower() not in _SPARKS_OWN:
                raise ArgumentError(_unknown(key, sorted(known)))

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self._values

    def text(self, name: str) -> str | None:
        """A text, or None if it was not given."""
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise ArgumentError(f"Option '{name}' is empty. Give it a value.")
        return value

    def needed(self, name: str, why: str) -> str:
        """A text that has to be there; `why` ends the sentence that asks for it."""
        value = self.text(name)
        if value is None:
            raise ArgumentError(f"Option '{name}' is missing: {why}.")
        return value

    def folder(self, name: str) -> str | None:
        """A folder, as a path; None if it was not given."""
        text = self.text(name)
        if text is None:
            return None
        path = text.removeprefix("file://")
        if "://" in path:
            raise ArgumentError(
                f"Option '{name}': '{text}' is no folder. It has to be on a disk, and "
                "with several machines on one that they share, not in an object store."
            )
        return path

    def integer(self, name: str, default: int, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ArgumentError(
                f"Option '{name}' must be a whole number from {low} to {high}, "
                f"not '{text}'."
            )
        return value

    def flag(self, name: str) -> bool:
        """True or false; false if it was not given."""
        return _FLAGS[self.choice(name, tuple(_FLAGS), "false")]

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of several words, in any case."""
        text = self.text(name) or default
        for each in choices:
            if each.lower() == text.lower():
                return each
        raise ArgumentError(f"Option '{name}' must be {_or(choices)}, not '{text}'.")

    def access(self, names: tuple[str, str, str] = ACCESS) -> Access:
        """Where the connection string is; exactly one of three options says it."""
        found = self.optional_access(names)
        if found is None:
            raise ArgumentError(
                f"Option '{names[1]}' is missing: it names the variable that holds the "
                f"connection string ('{names[2]}' names a file)."
            )
        return found

    def optional_access(self, names: tuple[str, str, str]) -> Access | None:
        """The same where it may be missing."""
        given = [name for name in names if self.has(name)]
        if not given:
            return None
        if len(given) > 1:
            raise ArgumentError(
                f"Options '{given[0]}' and '{given[1]}' are both given. Choose one."
            )
        [name] = given
        value = self.needed(name, "")
        if name == names[0]:
            return Access(name, None, Secret(value))
        return Access(name, value)


def _or(choices: tuple[str, ...]) -> str:
    quoted = [f"'{each}'" for each in choices]
    return " or ".join((", ".join(quoted[:-1]), quoted[-1]))


def _unknown(key: str, known: list[str]) -> str:
    lowered = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.lower(), lowered, 1)
    hint = (
        f"Did you mean '{lowered[close[0]]}'?"
        if close
        else (f"Known are {', '.join(known)}.")
    )
    return f"Option '{key}' is not known. {hint}"
