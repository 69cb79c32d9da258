"""`twinbus subscription`: subscriptions of a namespace, in a data folder or running."""

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
from twinbus.cli.namespace.settings import check_changes, subscription_from
from twinbus.cli.output import Json, show
from twinbus.cli.watch import Watch
from twinbus.core.entity import SubscriptionDescription
from twinbus.core.names import EntityPath

app = typer.Typer(
    help="Subscriptions of a topic: in its data folder, or running.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(help="The name of the topic.")]
Name = Annotated[str, typer.Argument(help="The name of the subscription.")]

_COLUMNS = ("name", "status", "active_messages", "dead_letter_messages", "size_bytes")


@app.command()
@on_namespace(SubscriptionDescription)
def create(
    choice: NamespaceChoice,
    topic: Topic,
    name: Name,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Create a subscription."""
    described = subscription_from(topic, name, settings)
    with choice.opened(make=True) as catalogue:
        result = catalogue.create(described, settings)
    show(result, as_json)


@app.command("list")
@on_namespace()
def list_all(
    choice: NamespaceChoice,
    topic: Topic,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """List the subscriptions with their counts."""
    EntityList("subscription", _COLUMNS, topic, as_json, watch).show(choice)


@app.command("show")
@on_namespace()
def show_one(
    choice: NamespaceChoice,
    topic: Topic,
    name: Name,
    as_json: Json = False,
) -> None:
    """Show the settings and counts of a subscription."""
    with choice.opened() as catalogue:
        result = catalogue.shown("subscription", EntityPath(topic, name))
    show(result, as_json)


@app.command()
@on_namespace(SubscriptionDescription)
def update(
    choice: NamespaceChoice,
    topic: Topic,
    name: Name,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Change settings of a subscription; the others stay as they are."""
    check_changes(settings)
    described = subscription_from(topic, name, settings)
    with choice.opened() as catalogue:
        result = catalogue.update(described, settings)
    show(result, as_json)


@app.command()
@on_namespace()
def delete(
    choice: NamespaceChoice,
    topic: Topic,
    name: Name,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a subscription and all of its messages."""
    path = EntityPath(topic, name)
    delete_entity(choice, "subscription", path, yes=yes, as_json=as_json)
