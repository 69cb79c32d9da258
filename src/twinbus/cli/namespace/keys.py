"""`twinbus keys`: authorization rules of a namespace, and the one place to see keys.

Showing works while a server has the data folder. Changing the folder does not, since
the server would go on with the old keys: with --connection-string the server itself is
asked, and an old key ends at once.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from twinbus.cli.confirm import Yes, confirm
from twinbus.cli.offline import (
    DATA,
    Data,
    NamespaceName,
    namespace_folder,
    opened,
    place_text,
)
from twinbus.cli.output import Json, show, show_all
from twinbus.cli.remote import CaFile, Remote, Running, Url, reach
from twinbus.cli.secret import database_url, dev_key
from twinbus.core.sas import DEV_KEY_NAME, Secret
from twinbus.errors import ConfigError
from twinbus.server.setup.served_at import ServedAt

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
String = Annotated[
    bool,
    typer.Option(
        "--string",
        help="Print the connection string for messages alone, for a variable.",
    ),
]
# What a host name or an address is made of, so that it fits into a connection string.
_HOST = re.compile(r"[\w.:-]+")


def _check_host(host: str | None) -> str | None:
    """Refuse it before a key is changed."""
    if host is not None:
        _host_and_port(host)
    return host


HostName = Annotated[
    str | None,
    typer.Option(
        "--host",
        callback=_check_host,
        help="How clients reach the server: HOST or HOST:PORT; otherwise as it was "
        "served last.",
    ),
]

KeysDatabase = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", help="The database that `serve` was given."
    ),
]


def _path(name: str) -> str:
    return f"/$authorizationRules/{quote(name, safe='')}"


def _remote_rule(
    remote: Remote, name: str, action: str, body: Any
) -> AuthorizationRule:
    """Ask a running server about the keys of a rule."""
    from twinbus.core.rights import AuthorizationRule, parse_rights

    told = remote.ask("POST", f"{_path(name)}/{action}", body)
    secondary = told["secondaryKey"]
    return AuthorizationRule(
        told["keyName"],
        parse_rights(told["rights"]),
        Secret(told["primaryKey"]),
        Secret(secondary) if secondary else None,
    )


def _host_and_port(host: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname or "", parts.port
    except ValueError:
        parts, name, port = urlsplit(""), "", None
    if parts.netloc != host or not _HOST.fullmatch(name):
        raise ConfigError(f"--host {host} must be HOST or HOST:PORT.")
    return name, port


def _at_folder(folder: Path, host: str | None) -> ServedAt:
    """Where clients find the namespace of a folder."""
    return _at_host(ServedAt.remembered(folder) or ServedAt(), host)


def _at_remote(remote: Remote, host: str | None) -> ServedAt:
    """Where clients find a running namespace: where it was found just now."""
    parsed, address = remote.parsed, remote.address
    ports = {address.scheme: address.port}
    if parsed.port is not None:
        ports["amqp" if parsed.dev else "amqps"] = parsed.port
    return _at_host(ServedAt(parsed.host, ports, parsed.dev), host)


def _at_host(known: ServedAt, host: str | None) -> ServedAt:
    """The same at the host that was given; a port is that of messages."""
    if host is None:
        return known
    name, port = _host_and_port(host)
    if port is None or port == known.message_port:
        return replace(known, host=name)
    ports = {kind: known.ports[kind] for kind in known.ports if kind == "https"}
    ports["amqp" if known.dev else "amqps"] = port
    return ServedAt(name, ports, known.dev)


def _shown(rule: AuthorizationRule, served_at: ServedAt) -> dict[str, Any]:
    from twinbus.core.rights import format_rights

    secondary = rule.secondary_key
    return {
        "name": rule.name,
        "rights": list(format_rights(rule.rights)),
        "primary_key": rule.primary_key.reveal(),
        "secondary_key": secondary.reveal() if secondary else None,
        **served_at.strings(rule.name, rule.primary_key),
    }


@app.command("show")
def show_one(
    name: Name = DEV_KEY_NAME,
    host: HostName = None,
    data: Data = DATA,
    namespace: NamespaceName = None,
    database: KeysDatabase = None,
    string: String = False,
    as_json: Json = False,
) -> None:
    """Show the keys of a rule and the connection strings with them."""
    from twinbus.server.broker.directory import keys

    if string and as_json:
        raise ConfigError("Give --string or --json, not both.")
    if database is not None:
        if namespace is None:
            raise ConfigError("Say which namespace of the database: --namespace NAME.")
        rules = keys.read_shared_rules(database_url(database), namespace)
        served_at = _at_host(ServedAt(), host)
    else:
        folder = namespace_folder(data, namespace)
        rules = keys.read_rules(folder)
        served_at = _at_folder(folder, host)
        if served_at.dev and (key := dev_key()) is not None:
            rules = keys.with_dev_key(rules, key)
    shown = _shown(keys.find_rule(rules, name), served_at)
    if string:
        print(shown["connection_string"])
    else:
        show(shown, as_json)


@app.command("list")
def list_all(
    data: Data = DATA, namespace: NamespaceName = None, as_json: Json = False
) -> None:
    """List the rules and what they allow, without keys."""
    from twinbus.core.rights import format_rights
    from twinbus.server.broker.directory.keys import read_rules

    results = [
        {"name": rule.name, "rights": list(format_rights(rule.rights))}
        for rule in read_rules(namespace_folder(data, namespace))
    ]
    show_all(results, ("name", "rights"), as_json)


@app.command()
def create(
    name: Name,
    right: Rights,
    host: HostName = None,
    data: Data = DATA,
    namespace: NamespaceName = None,
    connection_string: Running = None,
    url: Url = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Create a rule with new keys for the whole namespace."""
    from twinbus.core.rights import AuthorizationRule, format_rights, parse_rights
    from twinbus.server.broker.directory.keys import add_rule, new_key

    rights = parse_rights(right)
    if connection_string is not None:
        remote = reach(connection_string, url, ca_file)
        body = {"properties": {"rights": list(format_rights(rights))}}
        remote.ask("PUT", _path(name), body, {"If-None-Match": "*"})
        made = _remote_rule(remote, name, "listKeys", None)
        show(_shown(made, _at_remote(remote, host)), as_json)
        return
    rule = AuthorizationRule(name, rights, new_key(), new_key())
    with opened(data, namespace, make=True) as (shards, turn):
        wall_ms = turn.now.wall_ms
        shards[0].change_rules(lambda store: add_rule(store, rule, wall_ms), turn)
        served_at = _at_folder(data / shards[0].name.lower(), host)
    show(_shown(rule, served_at), as_json)


@app.command()
def regenerate(
    name: Name = DEV_KEY_NAME,
    secondary: Secondary = False,
    host: HostName = None,
    data: Data = DATA,
    namespace: NamespaceName = None,
    connection_string: Running = None,
    url: Url = None,
    ca_file: CaFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give a rule another key; the old one no longer works."""
    from twinbus.server.broker.directory.keys import find_rule, regenerate_key

    which = "secondary" if secondary else "primary"
    what = f"end the {which} key of the authorization rule '{name}' of"
    if connection_string is not None:
        remote = reach(connection_string, url, ca_file)
        confirm(f"{what} {remote}", name, yes=yes)
        body = {"keyType": f"{which.title()}Key"}
        rule = _remote_rule(remote, name, "regenerateKeys", body)
        served_at = _at_remote(remote, host)
    else:
        with opened(data, namespace) as (shards, turn):
            find_rule(shards[0].rules, name)
            confirm(f"{what} {place_text(data, shards)}", name, yes=yes)
            wall_ms = turn.now.wall_ms
            rule = shards[0].change_rules(
                lambda store: regenerate_key(store, name, wall_ms, secondary=secondary),
                turn,
            )
            served_at = _at_folder(data / shards[0].name.lower(), host)
    show(_shown(rule, served_at), as_json)


@app.command()
def delete(
    name: Name,
    data: Data = DATA,
    namespace: NamespaceName = None,
    connection_string: Running = None,
    url: Url = None,
    ca_file: CaFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a rule; its keys no longer work."""
    from twinbus.server.broker.directory.keys import delete_rule, find_rule

    what = f"delete the authorization rule '{name}' and end its keys, of"
    if connection_string is not None:
        remote = reach(connection_string, url, ca_file)
        confirm(f"{what} {remote}", name, yes=yes)
        remote.ask("DELETE", _path(name))
    else:
        with opened(data, namespace) as (shards, turn):
            find_rule(shards[0].rules, name)
            confirm(f"{what} {place_text(data, shards)}", name, yes=yes)
            wall_ms = turn.now.wall_ms
            shards[0].change_rules(
                lambda store: delete_rule(store, name, wall_ms), turn
            )
    show({"deleted": name}, as_json)
