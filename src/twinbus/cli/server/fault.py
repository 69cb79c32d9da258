"""`twinbus fault`: rehearse an outage of a running server that has `--faults`.

Owns the options; what a fault does is decided by the server, and refused there. A fault
acts where a real one would, and ends by itself.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from twinbus import limits
from twinbus.cli.output import Json, duration_ms, show, show_all
from twinbus.cli.remote import CaFile, Url, reach
from twinbus.core.durations import format_duration
from twinbus.errors import ArgumentError

app = typer.Typer(
    help="Rehearse an outage: faults of a running server that has --faults.",
    no_args_is_help=True,
)

Server = Annotated[
    str,
    typer.Option(
        "--connection-string",
        help="The server; @FILE and env:NAME keep it secret. Needs Manage.",
    ),
]
_COLUMNS = ("id", "kind", "target", "share", "delay_seconds", "until")


@app.command()
def add(
    kind: Annotated[
        str,
        typer.Argument(
            help="throttle, slow, send-down, sick, ping-down, receive-down, "
            "management-down, unauthorized, storage-down, storage-full, "
            "storage-slow, refuse, silence, stall or crash; docs/server.md says what "
            "each does.",
        ),
    ],
    connection_string: Server,
    target: Annotated[
        str | None,
        typer.Argument(
            help="An entity, or the number of a shard for storage faults; otherwise "
            "the whole namespace."
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="When it ends: PT30S, or 30 (seconds); at most a day. Otherwise 10 "
            "minutes.",
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long slow, storage-slow and stall delay; otherwise 5, 2 and 10 "
            "seconds.",
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Strike this share of the requests: 0.1 is one in ten."),
    ] = None,
    url: Url = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Switch a fault on; it ends by itself."""
    body: dict[str, Any] = {"kind": kind}
    if target is not None:
        body["target"] = target
    if duration is not None:
        body["seconds"] = _seconds("--for", duration)
    if delay is not None:
        body["delay_seconds"] = _seconds("--delay", delay)
    if share is not None:
        body["share"] = share
    remote = reach(connection_string, url, ca_file)
    show(_shown(remote.ask("POST", "/$faults", body), as_json), as_json)


@app.command("list")
def list_faults(
    connection_string: Server,
    url: Url = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """List the faults that are on. With refuse or silence on, it needs --url."""
    found = reach(connection_string, url, ca_file).ask("GET", "/$faults")["value"]
    show_all([_shown(fault, as_json) for fault in found], _COLUMNS, as_json)


@app.command()
def clear(
    connection_string: Server,
    fault: Annotated[
        int | None, typer.Argument(help="The id of one fault; otherwise all.")
    ] = None,
    url: Url = None,
    ca_file: CaFile = None,
    as_json: Json = False,
) -> None:
    """Switch one fault off, or all, and print those that were on.

    With refuse or silence on, it needs --url.
    """
    path = "/$faults" if fault is None else f"/$faults/{fault}"
    ended = reach(connection_string, url, ca_file).ask("DELETE", path)["cleared"]
    show_all([_shown(one, as_json) for one in ended], _COLUMNS, as_json)


def _shown(fault: dict[str, Any], as_json: bool) -> dict[str, Any]:
    if as_json:
        return fault
    until = datetime.fromtimestamp(fault["until_ms"] / 1000, UTC)
    shown = {**fault, "until": f"{until:%Y-%m-%d %H:%M:%S}Z"}
    del shown["until_ms"]
    return shown


def _seconds(option: str, text: str) -> float:
    """The duration of an option; refused here, since the server knows no options."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = duration_ms(option, text) / 1000
    longest = limits.FAULT_SECONDS_MAX
    if not 0 < seconds <= longest:
        raise ArgumentError(
            f"{option} {text} must be above 0 and at most {longest} seconds "
            f"({format_duration(longest * 1000)})."
        )
    return seconds
