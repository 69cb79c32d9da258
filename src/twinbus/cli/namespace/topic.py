"""`twinbus topic`: topics of a namespace, in a data folder or running."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli.confirm import Yes
from twinbus.cli.namespace.catalogue import (
    EntityList,
    NamespaceChoice,
    delete_entity,
    on_namespace,
)
from twinbus.cli.namespace.settings import check_changes, topic_from
from twinbus.cli.output import Json, show
from twinbus.cli.watch import Watch
from twinbus.core.entity import TopicDescription
from twinbus.core.names import EntityPath

app = typer.Typer(
    help="Topics of a namespace: in its data folder, or running.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The name of the topic.")]

_COLUMNS = ("name", "status", "subscriptions", "scheduled_messages")


@app.command()
@on_namespace(TopicDescription)
def create(
    choice: NamespaceChoice,
    name: Name,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Create a topic."""
    described = topic_from(name, settings)
    with choice.opened(make=True) as catalogue:
        result = catalogue.create(described, settings)
    show(result, as_json)


@app.command("list")
@on_namespace()
def list_all(
    choice: NamespaceChoice,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """List the topics with their counts."""
    EntityList("topic", _COLUMNS, None, as_json, watch).show(choice)


@app.command("show")
@on_namespace()
def show_one(
    choice: NamespaceChoice,
    name: Name,
    as_json: Json = False,
) -> None:
    """Show the settings and counts of a topic."""
    with choice.opened() as catalogue:
        result = catalogue.shown("topic", EntityPath(name))
    show(result, as_json)


@app.command()
@on_namespace(TopicDescription)
def update(
    choice: NamespaceChoice,
    name: Name,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Change settings of a topic; the others stay as they are."""
    check_changes(settings)
    described = topic_from(name, settings)
    with choice.opened() as catalogue:
        result = catalogue.update(described, settings)
    show(result, as_json)


@app.command()
@on_namespace()
def delete(
    choice: NamespaceChoice,
    name: Name,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a topic with its subscriptions and all of their messages."""
    path = EntityPath(name)
    delete_entity(choice, "topic", path, yes=yes, as_json=as_json)
