"""`twinbus rule`: rules of a subscription, in a data folder or running.

A rule is written as in a configuration file: one filter, and perhaps an action.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from twinbus.cli.confirm import Yes, confirm
from twinbus.cli.namespace.catalogue import (
    Catalogue,
    NamespaceChoice,
    on_namespace,
    show_list,
)
from twinbus.cli.namespace.settings import rule_from
from twinbus.cli.output import Json, pairs, rule_json, show
from twinbus.cli.watch import Watch
from twinbus.core.names import EntityPath
from twinbus.errors import ConfigError, FilterError

if TYPE_CHECKING:
    from twinbus.core.rule import RuleDescription

app = typer.Typer(
    help="Rules of a subscription: in its data folder, or running.",
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


def _rule(
    name: str, condition: dict[str, Any], sql: str | None, action: str | None
) -> RuleDescription:
    _check_sql("--sql", "filter", sql)
    _check_sql("--action", "action", action)
    return rule_from({"name": name, "filter": condition, "action": action})


@app.command()
@on_namespace()
def create(
    choice: NamespaceChoice,
    topic: Topic,
    subscription: Subscription,
    name: Name,
    sql: Sql = None,
    correlation: Correlation = None,
    properties: Properties = None,
    nothing: Nothing = False,
    action: Action = None,
    as_json: Json = False,
) -> None:
    """Add a rule; without a filter it lets every message through."""
    condition = _filter(sql, correlation, properties, nothing)
    rule = _rule(name, condition, sql, action)
    with choice.opened() as catalogue:
        rule = catalogue.add_rule(EntityPath(topic, subscription), rule)
    show(rule_json(rule), as_json)


@app.command()
@on_namespace()
def update(
    choice: NamespaceChoice,
    topic: Topic,
    subscription: Subscription,
    name: Name,
    sql: Sql = None,
    correlation: Correlation = None,
    properties: Properties = None,
    nothing: Nothing = False,
    action: Action = None,
    as_json: Json = False,
) -> None:
    """Give a rule another filter and action."""
    condition = _filter(sql, correlation, properties, nothing)
    rule = _rule(name, condition, sql, action)
    with choice.opened() as catalogue:
        rule = catalogue.replace_rule(EntityPath(topic, subscription), rule)
    show(rule_json(rule), as_json)


@app.command("list")
@on_namespace()
def list_all(
    choice: NamespaceChoice,
    topic: Topic,
    subscription: Subscription,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """List the rules of a subscription."""
    path = EntityPath(topic, subscription)

    def found(catalogue: Catalogue) -> list[dict[str, Any]]:
        return [rule_json(rule) for rule in catalogue.rules(path)]

    show_list(choice, found, ("name", "filter", "action"), as_json, watch=watch)


@app.command("show")
@on_namespace()
def show_one(
    choice: NamespaceChoice,
    topic: Topic,
    subscription: Subscription,
    name: Name,
    as_json: Json = False,
) -> None:
    """Show a rule."""
    with choice.opened() as catalogue:
        rule = catalogue.rule(EntityPath(topic, subscription), name)
    show(rule_json(rule), as_json)


@app.command()
@on_namespace()
def delete(
    choice: NamespaceChoice,
    topic: Topic,
    subscription: Subscription,
    name: Name,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a rule; a subscription without rules gets no messages."""
    path = EntityPath(topic, subscription)
    with choice.opened() as catalogue:
        rule = catalogue.rule(path, name)
        what = f"delete the rule '{rule.name}' of '{path.text}'"
        confirm(f"{what} from {catalogue.where}", rule.name, yes=yes)
        catalogue.delete_rule(path, rule.name)
    show({"deleted": f"{path.text}/Rules/{name}"}, as_json)
