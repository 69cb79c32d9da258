"""`twinbus subscription`: subscriptions in a data folder that no server has."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli.confirm import Yes
from twinbus.cli.namespace.settings import changed_by, subscription_from, with_settings
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
from twinbus.core.entity import SubscriptionDescription
from twinbus.core.names import EntityPath

app = typer.Typer(
    help="Subscriptions of a topic, while no server has its folder.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(help="The name of the topic.")]
Name = Annotated[str, typer.Argument(help="The name of the subscription.")]

_COLUMNS = ("name", "status", "active_messages", "dead_letter_messages", "size_bytes")


@app.command()
@with_settings(SubscriptionDescription)
def create(
    topic: Topic,
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Create a subscription."""
    with opened(data, namespace, make=True) as (shards, turn):
        entity = create_entity(shards, subscription_from(topic, name, settings), turn)
        result = described(shards, entity)
    show(result, as_json)


@app.command("list")
def list_all(
    topic: Topic,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """List the subscriptions with their counts."""
    with opened(data, namespace) as (shards, _):
        found = find(shards, EntityPath(topic), "topic").subscriptions.values()
        results = [described(shards, entity) for entity in found]
    show_all(sorted(results, key=lambda one: one["name"].lower()), _COLUMNS, as_json)


@app.command("show")
def show_one(
    topic: Topic,
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Show the settings and counts of a subscription."""
    with opened(data, namespace) as (shards, _):
        entity = find(shards, EntityPath(topic, name), "subscription")
        result = described(shards, entity)
    show(result, as_json)


@app.command()
@with_settings(SubscriptionDescription)
def update(
    topic: Topic,
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Change settings of a subscription; the others stay."""
    with opened(data, namespace) as (shards, turn):
        old = find(shards, EntityPath(topic, name), "subscription")
        assert isinstance(old.description, SubscriptionDescription)
        new = changed_by(
            old.description, subscription_from(topic, name, settings), settings
        )
        entity = shards[old.shard].entities.update(new, turn)
        result = described(shards, entity)
    show(result, as_json)


@app.command()
def delete(
    topic: Topic,
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a subscription and all of its messages."""
    deleted = delete_entity(
        data, namespace, EntityPath(topic, name), "subscription", yes=yes
    )
    show({"deleted": deleted}, as_json)
