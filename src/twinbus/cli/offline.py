"""A namespace's data folder, opened while no server has it.

Owns the options that name a folder and the transaction around a change. A change is
made whole or not at all. While a server has the folder, everything here is refused: the
server keeps a copy of its entities in memory and would not notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.confirm import confirm, messages_text
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError, EntityNotFound

if TYPE_CHECKING:
    from twinbus.core.names import EntityPath
    from twinbus.server.broker.directory.entity import Entity
    from twinbus.server.broker.namespace import Namespace
    from twinbus.server.broker.turn import Turn

DATA = Path("twinbus-data")

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
) -> Iterator[tuple[Namespace, Turn]]:
    """A namespace, and a turn of it that ends with the block."""
    from twinbus.server.broker.directory import keys
    from twinbus.server.broker.turn import Turn
    from twinbus.server.setup.namespaces import open_namespace

    if not (make and name):
        name = namespace_folder(data, name).name
    namespace = open_namespace(data, name).first
    store = namespace.store
    try:
        store.begin()
        try:
            turn = Turn(SystemClock().now())
            keys.ensure_root(store, turn.now.wall_ms)
            yield namespace, turn
            store.commit()
        except BaseException:
            store.rollback()
            raise
    finally:
        store.close()


def place_text(data: Path, namespace: Namespace) -> str:
    """Which namespace and where, for people."""
    return f"namespace '{namespace.name}' in the folder {data}"


def count_at(namespace: Namespace, path: EntityPath) -> int:
    """How many messages there are at a path, in any state."""
    from twinbus.server.broker.directory.maintenance import containers_at

    found = map(namespace.store.counts, containers_at(namespace, path))
    return sum(one.active + one.deferred + one.scheduled for one in found)


def delete_entity(
    data: Path, name: str | None, path: EntityPath, kind: str, *, yes: bool
) -> str:
    """Delete the entity of that kind, once confirmed; returns its path."""
    with opened(data, name) as (namespace, turn):
        found = find(namespace, path, kind).path
        count = messages_text(count_at(namespace, found))
        where = place_text(data, namespace)
        what = f"delete the {kind} '{found.text}' with {count} from {where}"
        confirm(what, found.subscription or found.entity, yes=yes)
        namespace.delete(found, turn)
    return path.text


def find(namespace: Namespace, path: EntityPath, kind: str) -> Entity:
    """The entity at that path, which must be of that kind."""
    entity = namespace.entities.get(path)
    if entity.kind != kind:
        raise EntityNotFound(f"{kind} {path.text}")
    return entity
