"""`twinbus backlog`: look into the backlog queues of a pair, replay and purge.

Works with any secondary, a twinbus server or Azure, and needs no Spark. Looking needs
the right to listen; `replay` also the right to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from twinbus import limits
from twinbus.cli.confirm import Yes, confirm, messages_text
from twinbus.cli.output import Json, progress, show, show_all
from twinbus.cli.pair.options import (
    CaFile,
    OptionalPrimaryText,
    PrimaryName,
    SecondaryText,
)
from twinbus.cli.trust import CaFiles
from twinbus.errors import ConfigError, RemoteError

if TYPE_CHECKING:
    from twinbus.client.connection import Connection
    from twinbus.spark.syphon_job.backlog import Backlog

app = typer.Typer(help="Backlog queues of paired namespaces.", no_args_is_help=True)

_T = TypeVar("_T")
_COLUMNS = ("index", "messages", "dead_lettered", "oldest", "destinations")
_PEEK_COLUMNS = (
    *("index", "sequence_number", "destination", "message_id"),
    *("session_id", "diverted_at", "dead_letter_reason", "body"),
)
# No limit, as a number: `min` needs no special case.
_ALL = 1 << 62

Index = Annotated[
    list[int] | None, typer.Option("--index", min=0, help="Only this one; several.")
]
DeadLetter = Annotated[
    bool, typer.Option("--dead-letter", help="The dead-lettered ones.")
]


@dataclass(frozen=True, slots=True)
class BacklogSelection:
    """Which backlog queues a command is about."""

    secondary: str
    primary: str | None
    primary_name: str | None
    ca_file: CaFiles
    indexes: list[int] | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Connection, Backlog, list[int]]]:
        """A connection to the secondary, and the queues that are there."""
        from twinbus.cli.pair.options import name_of_primary, namespace
        from twinbus.spark.syphon_job.backlog import Backlog

        name = name_of_primary(self.primary, self.primary_name, self.ca_file)
        secondary = namespace(self.secondary, self.ca_file)
        async with _named(secondary.name), secondary.connection() as connection:
            connection.timeout_seconds = limits.CLI_NAMESPACE_SECONDS
            backlog = Backlog(connection, name)
            found = await backlog.find()
            if not found:
                raise ConfigError(
                    f"'{secondary.name}' has no backlog queue of '{name}'. Check "
                    "--primary-name: it has to be as the senders have it."
                )
            missing = sorted(set(self.indexes or ()) - set(found))
            if missing:
                raise ConfigError(
                    f"There is no backlog queue {backlog.path(missing[0])}."
                )
            yield connection, backlog, self.indexes or found


@asynccontextmanager
async def _named(secondary: str) -> AsyncIterator[None]:
    """Say whose key was refused."""
    from twinbus.cli.sdk import ClientFailed
    from twinbus.pairing.rules.classification import Failure, kind_of

    try:
        yield
    except RemoteError as error:
        if kind_of(error) is not Failure.ACCESS:
            raise
        raise ClientFailed(
            f"The secondary '{secondary}': {error.text} Check the key in --secondary."
        ) from error


def _run(
    place: BacklogSelection,
    work: Callable[[Connection, Backlog, list[int]], Awaitable[_T]],
) -> _T:
    async def run() -> _T:
        async with place.opened() as (connection, backlog, indexes):
            return await work(connection, backlog, indexes)

    return asyncio.run(run())


@app.command("list")
def list_all(
    secondary: SecondaryText,
    primary: OptionalPrimaryText = None,
    primary_name: PrimaryName = None,
    maximum: Annotated[
        int,
        typer.Option("--max", min=1, help="How many messages of each to look at."),
    ] = limits.CLI_LISTED_MESSAGES,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """List the backlog queues: how many messages, how many dead, and for whom."""
    from twinbus.cli.pair.backlog_queues import described

    async def work(
        connection: Connection, backlog: Backlog, indexes: list[int]
    ) -> list[dict[str, Any]]:
        return [
            await described(connection, backlog, index, maximum) for index in indexes
        ]

    results = _run(BacklogSelection(secondary, primary, primary_name, ca_file), work)
    if not as_json:
        for result in results:
            names = result["destinations"].items()
            texts = [f"{name} {count}" for name, count in sorted(names)]
            result["destinations"] = texts + (
                [] if result["looked_at_all"] else ["..."]
            )
    show_all(results, _COLUMNS, as_json)


@app.command()
def peek(
    secondary: SecondaryText,
    primary: OptionalPrimaryText = None,
    primary_name: PrimaryName = None,
    index: Index = None,
    dead_letter: DeadLetter = False,
    start: Annotated[
        int, typer.Option("--from", min=0, help="The first sequence number.")
    ] = 0,
    maximum: Annotated[
        int, typer.Option("--max", min=1, help="How many at most, of each queue.")
    ] = limits.CLI_SHOWN_MESSAGES,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Look at messages without taking them; aliases are read."""
    from twinbus.cli.pair.backlog_queues import browse, dead_path, shown

    async def work(
        connection: Connection, backlog: Backlog, indexes: list[int]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for each in indexes:
            path = backlog.path(each)
            place = dead_path(path) if dead_letter else path
            left = maximum
            async for message in browse(connection, place, max(start, 1)):
                found.append(shown(message, each))
                left -= 1
                if not left:
                    break
        return found

    results = _run(
        BacklogSelection(secondary, primary, primary_name, ca_file, index), work
    )
    show_all(results, _PEEK_COLUMNS, as_json)


@app.command()
def replay(
    secondary: SecondaryText,
    primary: OptionalPrimaryText = None,
    primary_name: PrimaryName = None,
    index: Index = None,
    reason: Annotated[
        str | None,
        typer.Option(
            help="Only those dead-lettered for this, such as MessageTooLarge."
        ),
    ] = None,
    maximum: Annotated[
        int | None,
        typer.Option("--max", min=1, help="How many at most, of each queue."),
    ] = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Put dead-lettered messages back into their backlog queue, after a repair."""
    from twinbus.cli.pair import backlog_queues

    async def work(
        connection: Connection, backlog: Backlog, indexes: list[int]
    ) -> dict[str, int]:
        done: dict[str, int] = {}
        with progress(None) as advance:
            for each in indexes:
                found = await backlog_queues.replay(
                    connection, backlog.path(each), reason, maximum or _ALL, advance
                )
                for name, count in found.items():
                    done[name] = done.get(name, 0) + count
        return done

    done = _run(
        BacklogSelection(secondary, primary, primary_name, ca_file, index), work
    )
    # For people in one line: each reason and how many messages had it.
    reasons = [f"{name} {count}" for name, count in sorted(done.items())]
    told = {"replayed": sum(done.values()), "reasons": done if as_json else reasons}
    show(told, as_json)


@app.command()
def purge(
    secondary: SecondaryText,
    primary: OptionalPrimaryText = None,
    primary_name: PrimaryName = None,
    index: Index = None,
    dead_letter: DeadLetter = False,
    yes: Yes = False,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Delete messages that wait in backlog queues. They are lost for good."""
    from twinbus.cli.pair import backlog_queues

    async def work(connection: Connection, backlog: Backlog, indexes: list[int]) -> int:
        paths = _paths(backlog, indexes, dead_letter)
        with progress(None) as advance:
            return sum(
                [
                    await backlog_queues.purge(connection, path, advance)
                    for path in paths
                ]
            )

    place = BacklogSelection(secondary, primary, primary_name, ca_file, index)
    if not yes:
        place = _confirmed(place, dead_letter)
    show({"purged": _run(place, work)}, as_json)


def _paths(backlog: Backlog, indexes: list[int], dead_letter: bool) -> list[str]:
    from twinbus.cli.pair.backlog_queues import dead_path

    paths = map(backlog.path, indexes)
    return list(map(dead_path, paths) if dead_letter else paths)


def _confirmed(place: BacklogSelection, dead_letter: bool) -> BacklogSelection:
    """The same place with just those queues that a person agreed to purge.

    Asks on no connection: one that waits for a person could end meanwhile.
    """
    from twinbus.cli.pair.options import name_of_primary, namespace

    async def look(
        _: Connection, backlog: Backlog, indexes: list[int]
    ) -> tuple[list[int], str]:
        count = "all messages"
        if not dead_letter:
            depths = await backlog.depths(indexes)
            count = f"at most {messages_text(sum(depths.values()))}"
        return indexes, f"{count} of {', '.join(_paths(backlog, indexes, dead_letter))}"

    indexes, what = _run(place, look)
    where = namespace(place.secondary, place.ca_file).name
    name = name_of_primary(place.primary, place.primary_name, place.ca_file)
    confirm(f"delete {what} at {where} for good", name, yes=False)
    return replace(place, indexes=indexes)
