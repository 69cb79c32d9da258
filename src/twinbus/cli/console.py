"""`twinbus console`: opens the console of a running namespace in a browser, signed in.

Owns the command. It proves its key in the usual way and is given a link that works
once, so that no key is typed into a page or stands in an address.
"""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from twinbus import limits
from twinbus.cli.output import Json, show
from twinbus.cli.remote import CaFile, Url, reach
from twinbus.clock import SystemClock
from twinbus.core.sas import make_token
from twinbus.errors import ConfigError

app = typer.Typer()

_LINK = "/$console/link"


@app.command("console")
def console(
    string: Annotated[
        str | None,
        typer.Argument(
            metavar="CONNECTION_STRING", help="The same as --connection-string."
        ),
    ] = None,
    connection_string: Annotated[
        str | None,
        typer.Option(
            "--connection-string",
            envvar="TWINBUS_CONNECTION_STRING",
            show_envvar=True,
            help="The namespace; @FILE and env:NAME keep it secret.",
        ),
    ] = None,
    url: Url = None,
    ca_file: CaFile = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the link and open no browser.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Open the console of a namespace in a browser, signed in.

    The link works once, within a minute.
    """
    given = string or connection_string
    if given is None:
        raise ConfigError("Say which namespace: twinbus console CONNECTION_STRING.")
    remote = reach(given, url, ca_file)
    parsed, address = remote.parsed, remote.address
    entity = parsed.entity_path or ""
    headers = {}
    if parsed.key_name is not None and parsed.key is not None:
        # The session ends with the token, so it has to last.
        resource = f"{address.scheme}://{address.host}/{entity}"
        end_s = SystemClock().now().wall_ms // 1000 + limits.CONSOLE_SESSION_SECONDS
        token = make_token(resource, parsed.key_name, parsed.key, end_s)
        headers["Authorization"] = token
    path = f"{_LINK}?path={entity}" if entity else _LINK
    answer = remote.ask("POST", path, None, headers)
    link = f"{address.scheme}://{address.authority}{answer['path']}"
    is_open = not no_open and webbrowser.open(link)
    if as_json or not is_open:
        show({"link": link}, as_json)
