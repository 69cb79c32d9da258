"""`twinbus namespace`: show its shards, empty an entity or all of it, copy it.

Works on the folder while no server has it, and with --connection-string on a running
server; a copy is from a folder into a database.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from twinbus.cli.confirm import Yes, confirm, messages_text
from twinbus.cli.offline import (
    DATA,
    Data,
    NamespaceName,
    count_at,
    namespace_folder,
    opened,
    place_text,
    shards_at,
)
from twinbus.cli.output import Json, progress, show, show_all
from twinbus.cli.remote import CaFile, Running, Url, reach
from twinbus.cli.secret import database_url
from twinbus.core.names import parse_address
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.server.broker.directory.config import NamespaceConfig

app = typer.Typer(
    help="A namespace as a whole: its folder, or a running server.",
    no_args_is_help=True,
)


_SHARD_COLUMNS = ("shard", "state", "entities", "size_bytes", "outbox_rows")
_RUNNING_COLUMNS = ("spool_rows", "spool_age_seconds", "denied")
_PARTITIONED_COLUMNS = ("name", "kind", "fragments", "shards", "messages")


@app.command("show")
def show_namespace(
    data: Data = DATA,
    namespace: NamespaceName = None,
    connection_string: Running = None,
    url: Url = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Show the tier, the shards, and the fragments of partitioned entities."""
    from twinbus.server.broker.directory.overview import overview

    if connection_string is not None:
        found = reach(connection_string, url, ca_file).ask("GET", "/$shards")
    else:
        with opened(data, namespace) as (shards, _turn):
            found = overview(shards)
    if as_json:
        show(found, as_json)
        return
    print(f"The tier is {found['tier']}.\n")
    more = () if connection_string is None else _RUNNING_COLUMNS
    rows = [{**each, "denied": _denied(each)} for each in found["shards"]]
    show_all(rows, (*_SHARD_COLUMNS, *more), as_json)
    for each in found["shards"]:
        for text in (each.get("problem"), *each.get("throttled_by", ())):
            if text:
                print(f"\nShard {each['shard']}: {text}")
    if found["partitioned"]:
        print()
        parted = [_partitioned(each) for each in found["partitioned"]]
        show_all(parted, _PARTITIONED_COLUMNS, as_json)
        if len(found["shards"]) == 1:
            print("\nWith one shard, a partitioned entity has one fragment.")


def _denied(shard: dict[str, Any]) -> int:
    """How many sends were denied because of load."""
    return sum(shard.get("denied", {}).values())


def _partitioned(entity: dict[str, Any]) -> dict[str, Any]:
    """A partitioned entity in one row; its fragments have a place in each list."""
    fragments = entity["fragments"]
    return {
        "name": entity["name"],
        "kind": entity["kind"],
        "fragments": len(fragments),
        "shards": [str(each["shard"]) for each in fragments],
        "messages": [str(each["messages"]) for each in fragments],
    }


@app.command()
def purge(
    path: Annotated[
        str | None,
        typer.Argument(help="A queue, a topic, TOPIC/Subscriptions/NAME, or below."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All entities, instead of one.")
    ] = False,
    data: Data = DATA,
    namespace: NamespaceName = None,
    connection_string: Running = None,
    url: Url = None,
    ca_file: CaFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete all messages of an entity, its dead letters and session states too."""
    from twinbus.server.broker.directory import maintenance

    target = parse_address(path or "")
    if target.is_namespace is not everything or (path and everything):
        raise ConfigError("Say what to purge: the path of an entity, or --all.")
    if connection_string is not None:
        remote = reach(connection_string, url, ca_file)
        what = f"'{target.text}'" if path else "all entities"
        what = f"delete all messages of {what} in {remote}"
        confirm(what, target.text or remote.name, yes=yes)
        below = "".join(f"/{quote(part)}" for part in target.text.split("/") if part)
        show(remote.ask("POST", f"{below}/$purge"), as_json)
        return
    with opened(data, namespace) as (shards, turn):
        count = messages_text(count_at(shards, target))
        what = f"'{target.text}'" if path else "all entities"
        what = f"delete {count} of {what} in {place_text(data, shards)}"
        confirm(what, target.text or shards[0].name, yes=yes)
        found = shards_at(shards, target)
        purged = sum(maintenance.purge(each, target, turn) for each in found)
    show({"purged": purged}, as_json)


@app.command()
def copy(
    source: Annotated[
        Path,
        typer.Option("--from", metavar="DIR", help="The folder of `serve --data`."),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--to", metavar="URL", help="The database of `serve --database`, as there."
        ),
    ],
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Copy a namespace from a folder into PostgreSQL, while no server has it.

    The folder stays as it is. All rows are read again and compared.
    """
    url = database_url(target)
    folder = namespace_folder(source, namespace)
    try:
        from twinbus.store.copying import copy_namespace
    except ImportError:
        raise ConfigError(
            "--to needs the driver of PostgreSQL: pip install 'twinbus[postgres]'"
        ) from None
    with progress(None) as advance:
        rows = copy_namespace(folder, url, namespace or folder.name, advance)
    messages = rows["message"] + rows["scheduled"]
    found = {
        "entities": rows["entity"],
        "messages": messages,
        "rows": sum(rows.values()),
    }
    show({"copied": namespace or folder.name, **found}, as_json)


@app.command()
def reset(
    data: Data = DATA,
    namespace: NamespaceName = None,
    config: Annotated[
        Path | None, typer.Option(help="What it has afterwards; as for `serve`.")
    ] = None,
    connection_string: Running = None,
    url: Url = None,
    ca_file: CaFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete all entities and messages; keys stay, and so does what --config names.

    A running server makes those of its own configuration again.
    """
    from twinbus.server.broker.directory import maintenance

    if connection_string is not None:
        if config is not None:
            raise ConfigError(
                "A running server has a configuration of its own. Leave --config out."
            )
        remote = reach(connection_string, url, ca_file)
        confirm(f"delete all entities and messages of {remote}", remote.name, yes=yes)
        show(remote.ask("POST", "/$reset"), as_json)
        return
    with opened(data, namespace) as (shards, turn):
        wanted = _wanted(config, shards[0].name)
        count = messages_text(count_at(shards, parse_address("")))
        what = f"delete all {len(list(shards.entities()))} entities with {count}"
        confirm(f"{what} of {place_text(data, shards)}", shards[0].name, yes=yes)
        deleted = maintenance.reset(shards[0], wanted, turn)
        made = len(list(shards.entities()))
    show({"deleted": deleted, "made": made}, as_json)


def _wanted(config: Path | None, name: str) -> NamespaceConfig:
    from twinbus.server.broker.directory.config import NamespaceConfig
    from twinbus.server.setup.config import load_config

    if config is None:
        return NamespaceConfig(name)
    for found in load_config(config):
        if found.name.lower() == name.lower():
            return found
    raise ConfigError(f"{config} says nothing about the namespace '{name}'.")
