"""The parts of the command line, put together: one file per command or group.

Owns the list of them. `main.py` says which are asked for; only those are imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Annotated

import typer

# Each is a module with an `app`: a command, or a group of commands.
COMMANDS = ("serve", "drill", "syphon")
# Those about a pair are in `pair/`, all others beside this file.
PAIR_PARTS = ("syphon", "backlog")
PARTS = (
    *COMMANDS,
    "namespace",
    "queue",
    "topic",
    "subscription",
    "rule",
    "keys",
    "message",
    "backlog",
    "fault",
)

_HELP = "A Service-Bus-compatible namespace server, and its administration."
_EPILOG = "Exit codes: 0 it worked; 1 it failed; 2 options or files cannot be used."


def build(parts: Sequence[str] = PARTS) -> typer.Typer:
    """Put the command line together from some of its parts."""
    app = typer.Typer(
        name="twinbus",
        help=_HELP,
        epilog=_EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    # A callback also keeps the name of a command that stands alone.
    app.callback()(_top)
    for part in parts:
        folder = "twinbus.cli.pair" if part in PAIR_PARTS else "twinbus.cli"
        module = importlib.import_module(f"{folder}.{part}")
        app.add_typer(module.app, name=None if part in COMMANDS else part)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"twinbus {version('twinbus')}")
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Show the version and exit.",
    ),
]


def _top(version: _Version = False) -> None:
    """Options that stand before any command."""
