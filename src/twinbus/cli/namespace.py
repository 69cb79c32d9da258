"""`twinbus namespace`: empty an entity or all of it, while no server has its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.offline import DATA, Data, NamespaceName, opened
from twinbus.cli.output import Json, show
from twinbus.core.names import parse_address
from twinbus.errors import ConfigError

if TYPE_CHECKING:
    from twinbus.server.config import NamespaceConfig

app = typer.Typer(
    help="A namespace as a whole, while no server has its data folder.",
    no_args_is_help=True,
)


@app.command()
def purge(
    path: Annotated[
        str,
        typer.Argument(help="A queue, a topic, TOPIC/Subscriptions/NAME, or below."),
    ],
    data: Data = DATA,
    namespace: NamespaceName = None,
    as_json: Json = False,
) -> None:
    """Delete all messages of an entity, its dead letters and session states too."""
    from twinbus.server import maintenance

    with opened(data, namespace) as (place, _):
        purged = maintenance.purge(place, parse_address(path))
    show({"purged": purged}, as_json)


@app.command()
def reset(
    data: Data = DATA,
    namespace: NamespaceName = None,
    config: Annotated[
        Path | None, typer.Option(help="What it has afterwards; as for `serve`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete all entities and messages; keys stay, and so does what --config names."""
    from twinbus.server import maintenance

    with opened(data, namespace) as (place, now_ms):
        deleted = len(place.entities)
        maintenance.reset(place, _wanted(config, place.name), now_ms)
        made = len(place.entities)
    show({"deleted": deleted, "made": made}, as_json)


def _wanted(config: Path | None, name: str) -> NamespaceConfig:
    from twinbus.server.config import NamespaceConfig, load_config

    if config is None:
        return NamespaceConfig(name)
    for found in load_config(config):
        if found.name.lower() == name.lower():
            return found
    raise ConfigError(f"{config} says nothing about the namespace '{name}'.")
