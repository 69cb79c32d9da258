"""The command `twinbus`: puts its parts together and ends with a documented code.

Exit codes, the same for every command:

    0   it worked
    1   it was tried and failed; the text says why
    2   it was not tried: an option, a file or a folder cannot be used

Errors go to standard error in one line. Results go to standard output, as JSON with
`--json`. Only the part that is asked for is imported, so that `serve` is ready fast.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from twinbus.errors import (
    UNREACHABLE_HINT,
    ArgumentError,
    ArgumentOutOfRange,
    ConfigError,
    InvalidField,
    TwinbusError,
    Unreachable,
)

if TYPE_CHECKING:
    import typer

FAILED = 1
NOT_TRIED = 2

# Each has a module with an `app`: a command, or a group of commands. The groups follow
# the commands in the help.
COMMANDS = {
    "serve": "server.serve",
    "status": "status",
    "console": "console",
    "drill": "drill",
    "syphon": "pair.syphon",
    "proxy": "server.proxy",
}
PARTS = {
    **COMMANDS,
    "namespace": "namespace.namespace",
    "queue": "namespace.queue",
    "topic": "namespace.topic",
    "subscription": "namespace.subscription",
    "rule": "namespace.rule",
    "keys": "namespace.keys",
    "message": "namespace.message",
    "backlog": "pair.backlog",
    "cost": "cost",
    "fault": "server.fault",
    "diagnostics": "server.diagnostics",
}

_HELP = "A Service-Bus-compatible namespace server, and its administration."
_EPILOG = "Exit codes: 0 it worked; 1 it failed; 2 options or files cannot be used."


def build(parts: Iterable[str]) -> typer.Typer:
    """Put the command line together from some of its parts."""
    import typer

    from twinbus.cli.top import top

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
    app.callback()(top)
    for part in parts:
        module = importlib.import_module(f"twinbus.cli.{PARTS[part]}")
        app.add_typer(module.app, name=None if part in COMMANDS else part)
    return app


def exit_code(error: TwinbusError) -> int:
    """Whether an error is about what was asked, or about what happened."""
    asked = (ConfigError, ArgumentError, ArgumentOutOfRange, InvalidField)
    return NOT_TRIED if isinstance(error, asked) else FAILED


def main() -> None:
    """Run the command line."""
    asked = [part for part in PARTS if part in sys.argv[1:2]]
    try:
        if asked == ["serve"]:
            # Imports make no garbage, and looking for it takes a tenth of a start. The
            # server turns it on again when it is ready; the supervisor makes none.
            gc.disable()
            if "--no-supervisor" not in sys.argv:
                from twinbus.cli.server.supervise import supervise

                sys.exit(supervise())
        build(asked or PARTS)()
    except TwinbusError as error:
        hint = f" {UNREACHABLE_HINT}" if isinstance(error, Unreachable) else ""
        print(f"twinbus: {error.text}{hint}", file=sys.stderr)
        sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
