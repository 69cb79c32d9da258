"""How results are shown: as JSON for machines, as plain columns for people.

Owns standard output of every command but `serve`. Durations are written as ISO 8601,
times in UTC. Keys of rules are left out; `twinbus keys` is the only one to show them.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from twinbus import limits
from twinbus.core.durations import format_duration, parse_duration
from twinbus.core.names import SubQueue
from twinbus.errors import ConfigError, TwinbusError

if TYPE_CHECKING:
    from twinbus.core.entity import Description
    from twinbus.core.rule import RuleDescription
    from twinbus.server.broker.directory.entity import Entity
    from twinbus.server.broker.directory.shards import Shards


Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def show(result: Mapping[str, Any], as_json: bool) -> None:
    """Print one thing, a property per line."""
    if as_json:
        print(json.dumps(result))
        return
    width = max((len(name) for name in result), default=0)
    for name, value in result.items():
        print(f"{name:<{width}}  {_text(value)}".rstrip())


def show_all(
    results: Sequence[Mapping[str, Any]], columns: Sequence[str], as_json: bool
) -> None:
    """Print several things: all of each as JSON, or some columns of each."""
    with Listing(columns, as_json) as listing:
        listing.add(results)


class Listing:
    """Several things, printed as they come: all of each as JSON, or some columns.

    When `add` returns they are out, so that what was printed may then be taken away.
    A command that fails prints no more; what it has begun is still JSON.
    """

    def __init__(self, columns: Sequence[str], as_json: bool) -> None:
        self._columns = columns
        self._as_json = as_json
        self._widths = [0] * len(columns)
        self._begun = False
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is None:
            self.add(())
        if self._begun and self._as_json:
            print("]", flush=True)

    def add(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Print some more; the first call prints what stands above them as well."""
        if self._as_json:
            self._add_json(results)
        else:
            self._add_rows(results)
        self._begun = True
        self._count += len(results)
        sys.stdout.flush()

    def _add_json(self, results: Sequence[Mapping[str, Any]]) -> None:
        before = ", " if self._count else ""
        text = ", ".join(json.dumps(result) for result in results)
        print("" if self._begun else "[", before if text else "", text, sep="", end="")

    def _add_rows(self, results: Sequence[Mapping[str, Any]]) -> None:
        columns = self._columns
        rows = [] if self._begun else [list(columns)]
        rows += [[_text(result.get(name)) for name in columns] for result in results]
        for row in rows:
            lengths = map(len, row)
            self._widths = list(map(max, self._widths, lengths))
        for row in rows:
            cells = map(str.ljust, row, self._widths)
            print("  ".join(cells).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return _one_line(", ".join(value)) or "-"
    if isinstance(value, Mapping | list):
        return json.dumps(value)
    return _one_line(str(value))


def _one_line(text: str) -> str:
    """The text with line ends, tabs and commands to a terminal written out."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in text
    )


def time_text(time_ms: int) -> str | None:
    """A moment as ISO 8601, or None for never."""
    if not time_ms:
        return None
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def description_json(description: Description | RuleDescription) -> dict[str, Any]:
    """The settings of an entity or a rule, in the words of the configuration file."""
    result: dict[str, Any] = {}
    for item in dataclasses.fields(description):
        value = getattr(description, item.name)
        if item.name in ("created_at_ms", "updated_at_ms"):
            continue
        if item.name.endswith("_ms"):
            result[item.name.removesuffix("_ms")] = format_duration(value)
        elif isinstance(value, enum.Enum):
            result[item.name] = value.value
        elif item.name == "authorization_rules":
            result[item.name] = [rule.name for rule in value]
        else:
            result[item.name] = value
    return result


def rule_json(rule: RuleDescription) -> dict[str, Any]:
    """A rule of a subscription, in the words of the configuration file."""
    data = rule.to_json()
    kind, condition = data["filter"].pop("kind"), data["filter"]
    if kind == "sql":
        shown: Any = {"sql": condition["expression"]}
        if condition["parameters"]:
            shown["parameters"] = condition["parameters"]
    else:
        shown = {kind: {key: value for key, value in condition.items() if value}}
    action = rule.action.expression if rule.action else None
    return {
        "name": rule.name,
        "filter": shown,
        "action": action,
        "created_at": time_text(rule.created_at_ms),
    }


def entity_json(entity: Entity, shards: Shards) -> dict[str, Any]:
    """All about an entity: its settings, its counts and its times."""
    main = shards.counts(entity)
    dead = shards.counts(entity, SubQueue.DEAD_LETTER)
    transfer = shards.counts(entity, SubQueue.TRANSFER_DEAD_LETTER)
    counts: dict[str, Any] = {}
    if entity.kind != "topic":
        counts = {
            "active_messages": main.active,
            "deferred_messages": main.deferred,
            "dead_letter_messages": dead.active + dead.deferred,
        }
    else:
        counts["subscriptions"] = len(entity.subscriptions)
    return {
        **description_json(entity.description),
        **counts,
        "scheduled_messages": main.scheduled,
        "transfer_dead_letter_messages": transfer.active + transfer.deferred,
        "size_bytes": main.size_bytes + dead.size_bytes + transfer.size_bytes,
        "created_at": time_text(entity.created_ms),
        "updated_at": time_text(entity.updated_ms),
        "accessed_at": time_text(main.accessed_ms),
    }


def pairs(option: str, texts: Sequence[str] | None) -> list[tuple[str, str]]:
    """Values that were given as NAME=VALUE."""
    found = []
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigError(f"{option} {text!r} must be written NAME=VALUE.")
        found.append((name, value))
    return found


def duration_ms(option: str, text: str) -> int:
    """A value that was given as an ISO 8601 duration."""
    try:
        return parse_duration(text)
    except TwinbusError as error:
        raise ConfigError(f"{option} {text}: {error.text}") from None


@contextmanager
def progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Count something that may take long; people see a bar after two seconds."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    columns = (BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=total)
    begun = time.monotonic()

    def advance(count: int) -> None:
        if time.monotonic() - begun > limits.CLI_QUIET_SECONDS:
            bar.start()
        bar.advance(task, count)

    try:
        yield advance
    finally:
        bar.stop()
