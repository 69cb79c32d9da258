"""`twinbus status`: a running namespace on one screen.

Owns what the screen has: health, shards, and each entity with its counts and rates.
Counts come from the administration API, so a namespace of Azure has them too. Health,
shards and rates are what a server of ours says of itself (`/health`, `/$shards` and
`/metrics`); for another they are missing. Rates are between two looks. Changes nothing.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from twinbus import limits
from twinbus.cli.administration import administered
from twinbus.cli.namespace.running import RunningCatalogue
from twinbus.cli.output import Json, show, show_all
from twinbus.cli.remote import CaFile, Remote, Url
from twinbus.cli.watch import Watch, watched
from twinbus.errors import ConfigError

app = typer.Typer()

_COLUMNS = (
    *("entity", "kind", "status", "active_messages", "dead_letter_messages"),
    *("scheduled_messages", "in_per_second", "out_per_second"),
)
_SHARDS = ("shard", "state", "entities", "size_bytes", "spool_rows", "problem")
_COUNTER = re.compile(
    r'^twinbus_messages_(in|out)_total\{entity="([^"]*)".*\} ([\d.e+]+)$', re.MULTILINE
)

Given = Annotated[
    str | None,
    typer.Argument(
        metavar="CONNECTION_STRING", help="The same as --connection-string."
    ),
]
Option = Annotated[
    str | None,
    typer.Option(
        "--connection-string",
        envvar="TWINBUS_CONNECTION_STRING",
        show_envvar=True,
        help="The namespace; @FILE and env:NAME keep it secret. Needs Manage.",
    ),
]


@app.command("status")
def status(
    string: Given = None,
    connection_string: Option = None,
    url: Url = None,
    ca_file: CaFile = None,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """Show a running namespace: health, shards, entities, counts and rates."""
    given = string or connection_string
    if given is None:
        raise ConfigError(
            "Say which namespace: twinbus status --connection-string STRING."
        )
    with administered(given, url, ca_file) as (client, remote):
        screen = _StatusScreen(remote, RunningCatalogue(client, str(remote)))
        screen.count()
        if screen.counters:
            threading.Event().wait(limits.CLI_WATCH_SECONDS)
        watched(lambda: _print(screen.look(), as_json), again=watch)


@dataclass(slots=True)
class _StatusScreen:
    """Looks at one namespace; remembers the counters of the look before."""

    remote: Remote
    catalogue: RunningCatalogue
    # Messages in and out by entity in lower case, and when they were read.
    counters: dict[tuple[str, str], float] = field(default_factory=dict)
    counted_at: float = 0.0

    def look(self) -> dict[str, Any]:
        """All of it now."""
        before, since = self.counters, self.counted_at
        self.count()
        seconds = self.counted_at - since
        entities = list(self._entities())
        for entity in entities:
            for way in ("in", "out"):
                key = way, entity["entity"].lower()
                moved = self.counters.get(key, 0) - before.get(key, 0)
                # A server that was started again counts from 0.
                known = key in self.counters and moved >= 0
                rate = round(moved / seconds, 1) if known else None
                entity[f"{way}_per_second"] = rate
        shards = self._said("/$shards")
        return {
            "namespace": str(self.remote),
            "health": self._said("/health"),
            "shards": shards and shards.get("shards"),
            "entities": entities,
        }

    def count(self) -> None:
        """Read the counters; none of a namespace that is not ours."""
        code, text = self.remote.fetch("GET", "/metrics")
        self.counted_at = time.monotonic()
        found = _COUNTER.findall(text.decode("utf-8", "replace"))
        is_ours = code == http.client.OK
        self.counters = {
            (way, entity.lower()): float(count)
            for way, entity, count in (found if is_ours else ())
        }

    def _entities(self) -> Iterator[dict[str, Any]]:
        for queue in self.catalogue.listed("queue", None):
            yield {"entity": queue["name"], "kind": "queue", **queue}
        for topic in self.catalogue.listed("topic", None):
            yield {"entity": topic["name"], "kind": "topic", **topic}
            for below in self.catalogue.listed("subscription", topic["name"]):
                path = f"{topic['name']}/Subscriptions/{below['name']}"
                yield {"entity": path, "kind": "subscription", **below}

    def _said(self, path: str) -> dict[str, Any] | None:
        """What a server of ours says there; also an unhealthy one answers."""
        _, text = self.remote.fetch("GET", path)
        try:
            found = json.loads(text)
        except ValueError:
            return None
        return found if isinstance(found, dict) and "error" not in found else None


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show(found, as_json)
        return
    health = found["health"] or {"status": "not known", "message": "It does not say."}
    print(f"{found['namespace']}: {health['status']}. {health['message']}\n")
    if found["shards"]:
        show_all(found["shards"], _SHARDS, as_json)
        print()
    show_all(found["entities"], _COLUMNS, as_json)
