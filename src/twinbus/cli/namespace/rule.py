"""`twinbus rule`: rules of a subscription, while no server has the data folder.

A rule is written as in a configuration file: one filter, and perhaps an action.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from twinbus.cli.confirm import Yes, confirm
from twinbus.cli.namespace.settings import rule_from
from twinbus.cli.offline import DATA, Data, NamespaceName, find, opened, place_text
from twinbus.cli.output import Json, pairs, rule_json, show, show_all
from twinbus.core.names import EntityPath
from twinbus.errors import ConfigError, EntityNotFound, FilterError

if TYPE_CHECKING:
    from twinbus.core.rule import RuleDescription
    from twinbus.server.broker.directory.entity import Entity

app = typer.Typer(
    help="Rules of a subscription, while no server has its folder.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(help="The name of the topic.")]
Subscription = Annotated[str, typer.Argument(help="The name of the subscription.")]
Name = Annotated[str, typer.Argument(help="The name of the rule.")]
Sql = Annotated[str | None, typer.Option(help="An SQL filter: amount > 10.")]
Correlation = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="A condition on label, session_id, ..."),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="A condition on an application property.",
    ),
]
Nothing = Annotated[bool, typer.Option("--nothing", help="Let no message through.")]
Action = Annotated[str | None, typer.Option(help="An SQL action: SET kind = 'big'.")]


def _filter(
    sql: str | None,
    correlation: Sequence[str] | None,
    properties: Sequence[str] | None,
    nothing: bool,
) -> dict[str, Any]:
    """The filter as a configuration file has it; without any, all messages match."""
    given = [sql is not None, bool(correlation or properties), nothing]
    if sum(given) > 1:
        raise ConfigError("A rule has one filter: give --sql, conditions or --nothing.")
    if sql is not None:
        return {"sql": sql}
    if correlation or properties:
        conditions: dict[str, Any] = dict(pairs("--correlation", correlation))
        if properties:
            conditions["properties"] = dict(pairs("--property", properties))
        return {"correlation": conditions}
    return {"false": {}} if nothing else {"true": {}}


def _check_sql(
    option: str, kind: Literal["filter", "action"], text: str | None
) -> None:
    """Say which option cannot be read; a place in the text alone does not."""
    from twinbus.core.filter_parse import parse

    try:
        if text is not None:
            parse(text, kind)
    except FilterError as error:
        raise ConfigError(f"{option} {text!r}: {error.text}") from None


def _find_rule(entity: Entity, name: str) -> RuleDescription:
    rule = entity.rules.get(name.lower())
    if rule is None:
        raise EntityNotFound(f"{entity.name}/Rules/{name}")
    return rule.description


@app.command()
def create(
    topic: Topic,
    subscription: Subscription,
    name: Name,
    sql: Sql = None,
    correlation: Correlation = None,
    properties: Properties = None,
    nothing: Nothing = False,
    action: Action = None,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Add a rule; without a filter it lets every message through."""
    condition = _filter(sql, correlation, properties, nothing)
    _check_sql("--sql", "filter", sql)
    _check_sql("--action", "action", action)
    rule = rule_from({"name": name, "filter": condition, "action": action})
    with opened(data, namespace) as (shards, turn):
        entity = find(shards, EntityPath(topic, subscription), "subscription")
        rule = dataclasses.replace(rule, created_at_ms=turn.now.wall_ms)
        shards[entity.shard].entities.add_rule(entity, rule, turn.now.wall_ms)
    show(rule_json(rule), as_json)


@app.command()
def update(
    topic: Topic,
    subscription: Subscription,
    name: Name,
    sql: Sql = None,
    correlation: Correlation = None,
    properties: Properties = None,
    nothing: Nothing = False,
    action: Action = None,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Give a rule another filter and action."""
    condition = _filter(sql, correlation, properties, nothing)
    _check_sql("--sql", "filter", sql)
    _check_sql("--action", "action", action)
    rule = rule_from({"name": name, "filter": condition, "action": action})
    with opened(data, namespace) as (shards, turn):
        entity = find(shards, EntityPath(topic, subscription), "subscription")
        rule = dataclasses.replace(rule, created_at_ms=turn.now.wall_ms)
        shards[entity.shard].entities.replace_rule(entity, rule, turn.now.wall_ms)
    show(rule_json(rule), as_json)


@app.command("list")
def list_all(
    topic: Topic,
    subscription: Subscription,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """List the rules of a subscription."""
    with opened(data, namespace) as (shards, _):
        entity = find(shards, EntityPath(topic, subscription), "subscription")
        results = [rule_json(rule.description) for rule in entity.rules_by_name]
    show_all(results, ("name", "filter", "action"), as_json)


@app.command("show")
def show_one(
    topic: Topic,
    subscription: Subscription,
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Show a rule."""
    with opened(data, namespace) as (shards, _):
        entity = find(shards, EntityPath(topic, subscription), "subscription")
        rule = _find_rule(entity, name)
    show(rule_json(rule), as_json)


@app.command()
def delete(
    topic: Topic,
    subscription: Subscription,
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a rule; a subscription without rules gets no messages."""
    with opened(data, namespace) as (shards, turn):
        entity = find(shards, EntityPath(topic, subscription), "subscription")
        rule = _find_rule(entity, name)
        what = f"delete the rule '{rule.name}' of '{entity.name}'"
        confirm(f"{what} from {place_text(data, shards)}", rule.name, yes=yes)
        shards[entity.shard].entities.remove_rule(entity, name, turn.now.wall_ms)
    show({"deleted": f"{entity.name}/Rules/{name}"}, as_json)
