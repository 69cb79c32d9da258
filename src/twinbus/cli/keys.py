"""`twinbus keys`: authorization rules of a namespace, and the one place to see keys.

Showing works while a server has the data folder. Changing does not, since the server
would go on with the old keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from twinbus.cli.offline import DATA, Data, NamespaceName, namespace_folder, opened
from twinbus.cli.output import Json, show, show_all
from twinbus.core.sas import DEV_KEY_NAME, format_connection_string
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.core.rights import AuthorizationRule

app = typer.Typer(
    help="Authorization rules of a namespace and their keys.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="The name of the authorization rule.")]
Rights = Annotated[
    list[str],
    typer.Option("--right", metavar="RIGHT", help="Send, Listen or Manage; several."),
]
Secondary = Annotated[
    bool, typer.Option("--secondary", help="Change the secondary key instead.")
]
HostName = Annotated[
    str, typer.Option("--host", help="How clients reach the server: HOST or HOST:PORT.")
]


def _shown(rule: AuthorizationRule, host: str) -> dict[str, Any]:
    from twinbus.core.rights import format_rights

    try:
        name, port = urlsplit(f"//{host}").hostname or "", urlsplit(f"//{host}").port
    except ValueError:
        raise ConfigError(f"--host {host} must be HOST or HOST:PORT.") from None
    secondary = rule.secondary_key
    return {
        "name": rule.name,
        "rights": list(format_rights(rule.rights)),
        "primary_key": rule.primary_key.reveal(),
        "secondary_key": secondary.reveal() if secondary else None,
        "connection_string": format_connection_string(
            name, port, rule.name, rule.primary_key, dev=False
        ),
    }


@app.command("show")
def show_one(
    name: Name = DEV_KEY_NAME,
    host: HostName = "localhost",
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Show the keys of a rule and a connection string with them."""
    from twinbus.server.keys import find_rule, read_rules

    rules = read_rules(namespace_folder(data, namespace))
    show(_shown(find_rule(rules, name), host), as_json)


@app.command("list")
def list_all(
    data: Data = DATA, namespace: NamespaceName = None, as_json: Json = False
) -> None:
    """List the rules and what they allow, without keys."""
    from twinbus.core.rights import format_rights
    from twinbus.server.keys import read_rules

    results = [
        {"name": rule.name, "rights": list(format_rights(rule.rights))}
        for rule in read_rules(namespace_folder(data, namespace))
    ]
    show_all(results, ("name", "rights"), as_json)


@app.command()
def create(
    name: Name,
    right: Rights,
    host: HostName = "localhost",
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Create a rule with new keys for the whole namespace."""
    from twinbus.core.rights import AuthorizationRule, parse_rights
    from twinbus.server.keys import add_rule, new_key

    rule = AuthorizationRule(name, parse_rights(right), new_key(), new_key())
    with opened(data, namespace, make=True) as (place, _):
        add_rule(place.store, rule)
    show(_shown(rule, host), as_json)


@app.command()
def regenerate(
    name: Name = DEV_KEY_NAME,
    secondary: Secondary = False,
    host: HostName = "localhost",
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Give a rule another key; the old one no longer works."""
    from twinbus.server.keys import regenerate_key

    with opened(data, namespace) as (place, _):
        rule = regenerate_key(place.store, name, secondary=secondary)
    show(_shown(rule, host), as_json)


@app.command()
def delete(
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Delete a rule; its keys no longer work."""
    from twinbus.server.keys import delete_rule

    with opened(data, namespace) as (place, _):
        delete_rule(place.store, name)
    show({"deleted": name}, as_json)
