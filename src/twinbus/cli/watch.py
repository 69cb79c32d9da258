"""`--watch`: look at something again and again, until Ctrl-C.

Owns the pace and the screen: at a terminal the newest look replaces the one before,
elsewhere each is printed below the last. Ctrl-C ends it, which is no failure.
Knows nothing about what is looked at: a look prints, as it does without `--watch`.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Callable
from typing import Annotated

import typer

from twinbus import limits

Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        help=f"Look again every {limits.CLI_WATCH_SECONDS:g} seconds, until Ctrl-C.",
    ),
]


def watched(look: Callable[[], None], *, again: bool) -> None:
    """Look once, or `again` and again."""
    if not again:
        look()
        return
    with contextlib.suppress(KeyboardInterrupt):
        if sys.stdout.isatty():
            _on_screen(look)
        else:
            _below_each_other(look)


def _below_each_other(look: Callable[[], None]) -> None:
    pause = threading.Event()
    while True:
        look()
        sys.stdout.flush()
        pause.wait(limits.CLI_WATCH_SECONDS)


def _on_screen(look: Callable[[], None]) -> None:
    from rich.live import Live
    from rich.text import Text

    pause = threading.Event()
    with Live(auto_refresh=False) as live:
        while True:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                look()
            # Not as markup: names of entities may have brackets.
            live.update(Text(printed.getvalue().rstrip()), refresh=True)
            pause.wait(limits.CLI_WATCH_SECONDS)
