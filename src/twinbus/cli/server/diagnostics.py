"""`twinbus diagnostics`: what is known of a server that failed and was restarted.

Reads the bundles in a data folder, also while a server has it. They hold no messages
and no keys, so they may be sent to someone who helps.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.cli.offline import DATA, Data
from twinbus.cli.output import Json, show, show_all
from twinbus.errors import ConfigError

app = typer.Typer(
    help="Bundles that tell why a server failed and was restarted.",
    no_args_is_help=True,
)

Id = Annotated[
    str | None, typer.Argument(metavar="ID", help="Which one; otherwise the newest.")
]
# The newest ones, for people.
_LOG_LINES_SHOWN = 20


@app.command("list")
def list_all(data: Data = DATA, as_json: Json = False) -> None:
    """List the bundles, the newest first."""
    from twinbus.server.setup.diagnostics import load_all

    names = ("id", "time", "reason", "uptime_seconds", "missing")
    found = [{name: each[name] for name in names} for each in load_all(data)]
    show_all(found, ("id", "uptime_seconds", "reason"), as_json)


@app.command("show")
def show_one(bundle: Id = None, data: Data = DATA, as_json: Json = False) -> None:
    """Show a bundle: the reason, the stacks, the end of the log; all with --json."""
    from twinbus.server.setup.diagnostics import load

    found = load(data, bundle)
    if as_json:
        show(found, as_json)
        return
    longer = ("stacks", "log", "metrics", "limits")
    show({key: value for key, value in found.items() if key not in longer}, as_json)
    print("", "Stacks:", *found["stacks"], "", "The end of the log:", sep="\n")
    for event in found["log"][-_LOG_LINES_SHOWN:]:
        print(_line(event))


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="The file to make, .json or .json.gz.")],
    bundle: Id = None,
    data: Data = DATA,
    as_json: Json = False,
) -> None:
    """Write a bundle to a file that can be sent to someone who helps."""
    from twinbus.server.setup.diagnostics import load

    found = load(data, bundle)
    text = json.dumps(found, indent=1).encode()
    try:
        with file.open("xb") as out:
            out.write(gzip.compress(text) if file.suffix == ".gz" else text)
    except OSError as error:
        raise ConfigError(f"{file} cannot be made: {error.strerror}.") from None
    show({"id": found["id"], "file": str(file)}, as_json)


def _line(event: dict[str, Any]) -> str:
    words = (event.get(name) for name in ("time", "level", "logger", "message"))
    return " ".join(str(word) for word in words if word is not None)
