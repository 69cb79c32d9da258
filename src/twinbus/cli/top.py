"""Options that stand before any command.

Apart from `main.py`, which must not import the option parser for a supervisor.
"""

from __future__ import annotations

from typing import Annotated

import typer


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from twinbus.wire import codec

        engine = "" if codec.__file__.endswith(".py") else " (compiled engine)"
        print(f"twinbus {version('twinbus')}{engine}")
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


def top(version: _Version = False) -> None:
    """Options that stand before any command."""
