"""`twinbus topic`: topics of a namespace, while no server has its data folder."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli.confirm import Yes
from twinbus.cli.namespace.settings import changed_by, topic_from, with_settings
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
from twinbus.core.entity import TopicDescription
from twinbus.core.names import EntityPath

app = typer.Typer(
    help="Topics of a namespace, while no server has its data folder.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The name of the topic.")]

_COLUMNS = ("name", "status", "subscriptions", "scheduled_messages")


@app.command()
@with_settings(TopicDescription)
def create(
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Create a topic."""
    with opened(data, namespace, make=True) as (shards, turn):
        entity = create_entity(shards, topic_from(name, settings), turn)
        result = described(shards, entity)
    show(result, as_json)


@app.command("list")
def list_all(
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """List the topics with their counts."""
    with opened(data, namespace) as (shards, _):
        found = [entity for entity in shards.entities() if entity.kind == "topic"]
        results = [described(shards, entity) for entity in found]
    show_all(sorted(results, key=lambda one: one["name"].lower()), _COLUMNS, as_json)


@app.command("show")
def show_one(
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Show the settings and counts of a topic."""
    with opened(data, namespace) as (shards, _):
        entity = find(shards, EntityPath(name), "topic")
        result = described(shards, entity)
    show(result, as_json)


@app.command()
@with_settings(TopicDescription)
def update(
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Change settings of a topic; the others stay as they are."""
    with opened(data, namespace) as (shards, turn):
        old = find(shards, EntityPath(name), "topic")
        assert isinstance(old.description, TopicDescription)
        new = changed_by(old.description, topic_from(name, settings), settings)
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
    """Delete a topic with its subscriptions and all of their messages."""
    deleted = delete_entity(data, namespace, EntityPath(name), "topic", yes=yes)
    show({"deleted": deleted}, as_json)
