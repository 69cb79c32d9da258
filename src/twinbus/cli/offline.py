"""A namespace's data folder, opened while no server has it.

Owns the options that name a folder and the transaction around a change. A change is
made whole or not at all; a purge of everything and a reset are so in each shard. All
shards must be there. While a server has the folder, everything here is refused: the
server keeps a copy of its entities in memory and would not notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.clock import SystemClock
from twinbus.errors import ConfigError, StoreInUse

if TYPE_CHECKING:
    from twinbus.core.names import EntityPath
    from twinbus.server.broker.directory.shards import Shards
    from twinbus.server.broker.namespace import Namespace
    from twinbus.server.broker.turn import Turn

DATA = Path("twinbus-data")
# What to do about a folder that a server has.
RUNNING_HINT = (
    "Or ask that server: --connection-string STRING, which `twinbus keys show` prints."
)

Data = Annotated[Path, typer.Option(help="The folder that `serve` keeps its data in.")]
NamespaceName = Annotated[
    str | None,
    typer.Option("--namespace", help="The namespace, if the folder has several."),
]


def namespace_folder(data: Path, name: str | None) -> Path:
    """The folder of a namespace: the one that is named, or the only one."""
    from twinbus.core.names import check_namespace_name
    from twinbus.store.shards import find_namespaces

    if name is not None:
        check_namespace_name(name)
    found = find_namespaces(data)
    chosen = [folder for folder in found if name and folder.name == name.lower()]
    if name is None and len(found) == 1:
        chosen = found
    if chosen:
        return chosen[0]
    known = ", ".join(folder.name for folder in found)
    if not found:
        raise ConfigError(
            f"{data} has no namespaces. Check --data; `twinbus serve` makes them, and "
            "so does `twinbus queue create --namespace NAME`."
        )
    if name is not None:
        raise ConfigError(f"{data} has no namespace {name}, only {known}.")
    raise ConfigError(f"Say which namespace with --namespace: {data} has {known}.")


@contextmanager
def opened(
    data: Path, name: str | None, *, make: bool = False
) -> Iterator[tuple[Shards, Turn]]:
    """The shards of a namespace, and a turn of all that ends with the block."""
    from twinbus.server.broker.directory import keys
    from twinbus.server.broker.turn import Turn
    from twinbus.server.setup.namespaces import close_all, open_namespace

    if not (make and name):
        name = namespace_folder(data, name).name
    try:
        shards, places = open_namespace(data, name)
    except StoreInUse as error:
        raise StoreInUse(f"{error.text} {RUNNING_HINT}") from None
    try:
        for place in places:
            if place.problem is not None:
                raise ConfigError(place.problem)
        with _changing(shards):
            turn = Turn(SystemClock().now())
            wall_ms = turn.now.wall_ms
            shards[0].change_rules(lambda store: keys.ensure_root(store, wall_ms), turn)
            yield shards, turn
    finally:
        close_all(shards)


@contextmanager
def _changing(shards: Shards) -> Iterator[None]:
    """A transaction of each shard; all are committed, or all are undone."""
    begun = []
    try:
        for shard in shards:
            shard.store.begin()
            begun.append(shard.store)
        yield
        while begun:
            begun[0].commit()
            begun.pop(0)
    except BaseException:
        for store in begun:
            store.rollback()
        raise


def place_text(data: Path, shards: Shards) -> str:
    """Which namespace and where, for people."""
    return f"namespace '{shards[0].name}' in the folder {data}"


def shards_at(shards: Shards, path: EntityPath) -> list[Namespace]:
    """The shards that have something at a path: those of an entity, or all."""
    if path.is_namespace:
        return list(shards)
    return [shards[each.shard] for each in shards.fragments(shards.get(path))]


def count_at(shards: Shards, path: EntityPath) -> int:
    """How many messages there are at a path, in any state."""
    from twinbus.server.broker.directory.maintenance import containers_at

    return sum(
        one.active + one.deferred + one.scheduled
        for shard in shards_at(shards, path)
        for one in map(shard.store.counts, containers_at(shard, path))
    )
