"""`twinbus queue`: queues of a namespace, while no server has its data folder."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli.confirm import Yes
from twinbus.cli.namespace.settings import changed_by, queue_from, with_settings
from twinbus.cli.offline import (
    DATA,
    Data,
    NamespaceName,
    create_entity,
    delete_entity,
    described,
    find,
    opened,
)
from twinbus.cli.output import Json, show, show_all
from twinbus.core.entity import QueueDescription
from twinbus.core.names import EntityPath

app = typer.Typer(
    help="Queues of a namespace, while no server has its data folder.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The name of the queue.")]

_COLUMNS = ("name", "status", "active_messages", "dead_letter_messages", "size_bytes")


@app.command()
@with_settings(QueueDescription)
def create(
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Create a queue."""
    with opened(data, namespace, make=True) as (shards, turn):
        entity = create_entity(shards, queue_from(name, settings), turn)
        result = described(shards, entity)
    show(result, as_json)


@app.command("list")
def list_all(
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """List the queues with their counts."""
    with opened(data, namespace) as (shards, _):
        found = [entity for entity in shards.entities() if entity.kind == "queue"]
        results = [described(shards, entity) for entity in found]
    show_all(sorted(results, key=lambda one: one["name"].lower()), _COLUMNS, as_json)


@app.command("show")
def show_one(
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Show the settings and counts of a queue."""
    with opened(data, namespace) as (shards, _):
        entity = find(shards, EntityPath(name), "queue")
        result = described(shards, entity)
    show(result, as_json)


@app.command()
@with_settings(QueueDescription)
def update(
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Change settings of a queue; the others stay as they are."""
    with opened(data, namespace) as (shards, turn):
        old = find(shards, EntityPath(name), "queue")
        assert isinstance(old.description, QueueDescription)
        new = changed_by(old.description, queue_from(name, settings), settings)
        entity = shards[old.shard].entities.update(new, turn)
        result = described(shards, entity)
    show(result, as_json)


@app.command()
def delete(
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a queue and all of its messages."""
    deleted = delete_entity(data, namespace, EntityPath(name), "queue", yes=yes)
    show({"deleted": deleted}, as_json)
