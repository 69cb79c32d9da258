"""A server whose faults a test switches on and off.

Owns its two queues, its switchboard and its health. Knows nothing about the clients
that a test uses while a fault is on.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.run import Run, Served, served
from tests.sdk.servers import shard_options
from twinbus.core.sas import parse_connection_string

OPTIONS = ("--dev", "--amqp-port", 0, "--http-port", 0, "--https-port", 0)
CONFIG = {"namespaces": [{"name": "shop", "queues": [{"name": "a"}, {"name": "b"}]}]}


class FaultSite:
    """A server with the queues a and b."""

    def __init__(self, started: Served, run: Run) -> None:
        self.started = started
        self._run = run
        told = started.ready["namespaces"]["shop"]
        self.text: str = told["connection_string"]
        self.http_port: int = told["http_port"]
        # Where AMQP does not answer, a command must be told where HTTP is.
        url = f"http://127.0.0.1:{self.http_port}"
        self._bus = ("--connection-string", self.text, "--url", url)

    def fault(self, *args: object) -> Any:
        """Run `twinbus fault`."""
        return self._run("fault", *args, *self._bus, "--json").json

    def refused(self, *args: object) -> str:
        """Run `twinbus fault`, which is refused with one line."""
        done = self._run("fault", *args, *self._bus)
        assert done.code in (1, 2)
        (line,) = done.err.splitlines()
        return line

    def clear(self) -> None:
        """End all faults, and wait until the server has recovered."""
        self.fault("clear")
        until(lambda: self.health()["status"] == "healthy")

    def restore(self) -> None:
        """Leave neither faults nor messages to the next test."""
        self.clear()
        self._run("namespace", "purge", "--all", "--yes", *self._bus)

    def health(self) -> Any:
        """What `/health` says, asked again while the answer is that it is too often."""
        while (answer := self._ask_health()) is None:
            pass
        return answer

    def says(self, problem: str) -> bool:
        """Whether `/health` names that problem, of the server or of one shard."""
        found = self.health()
        return any(
            problem in text for text in (found["message"], *found.get("shards", ()))
        )

    def _ask_health(self) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=10)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            return None if answer.status == 429 else json.loads(answer.read())
        finally:
            connection.close()


def admin_text(started: Served) -> str:
    """The connection string for an official administration client."""
    told = started.ready["namespaces"]["shop"]
    parsed = parse_connection_string(told["connection_string"])
    assert parsed.key is not None
    return (
        f"Endpoint=sb://localhost:{told['https_port']}/;"
        f"SharedAccessKeyName={parsed.key_name};"
        f"SharedAccessKey={parsed.key.reveal()}"
    )


@contextmanager
def started(folder: Path, *options: str) -> Iterator[Served]:
    """Run the server of a site until the block ends."""
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG))
    words = ("--config", config, *OPTIONS, *shard_options(), *options)
    with served(folder / "data", *words) as process:
        yield process


def until(condition: Callable[[], bool]) -> None:
    """Ask until it is so; the test's own timeout ends what never happens."""
    while not condition():
        pass
