"""Asks before a command destroys something.

Owns the option --yes, the question and the refusal. A person types the name of what is
destroyed; where there is no terminal, --yes has to say it. Questions go to standard
error, so that --json stays alone on standard output. Rule: when `confirm` raises,
nothing was changed.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from twinbus.errors import ConfigError

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def confirm(what: str, name: str, *, yes: bool) -> None:
    """Let a person type the name, unless --yes was given.

    `what` says what will be destroyed and where, as in "delete the queue 'orders'".
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"This would {what}. Without a terminal to ask at, that needs --yes. "
            "Nothing was changed."
        )
    print(f"This will {what}.", file=sys.stderr)
    print(f"Type {name} to confirm: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise ConfigError(f"The answer was not {name}. Nothing was changed.")


def messages_text(count: int) -> str:
    """How many messages, in words."""
    return "1 message" if count == 1 else f"{count} messages"
