"""A command acts on the server that its connection string names, or on none.

Two servers run side by side, as the README has them, with free ports.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import Run, Served, served
from twinbus.core.sas import parse_connection_string
from twinbus.testing.proxy import FaultyProxy

PLAIN = ("--dev", "--amqp-port", 0, "--http-port", 0)
PLAIN_BOTH = (*PLAIN, "--https-port", 0)
TLS = ("--host", "127.0.0.1", "--amqps-port", 0, "--https-port", 0)
ROOT = "RootManageSharedAccessKey"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs, and how commands reach it."""

    name: str
    served: Served
    data: Path
    bus: tuple[str, ...]

    @property
    def ports(self) -> dict[str, int]:
        """Its ports, by what the ready line calls them."""
        ports: dict[str, int] = self.served.ready["namespaces"][self.name]
        return ports

    def fill(self, run: Run) -> None:
        """Put two messages into its queue."""
        sent = run("message", "send", "orders", "hello", "--count", 2, *self.bus)
        assert sent.code == 0, sent.err

    def held(self, run: Run) -> int:
        """How many messages its queue has."""
        return len(run("message", "peek", "orders", *self.bus).json)

    def rules(self, run: Run) -> dict[str, str]:
        """The primary keys that the folder has, by authorization rule."""
        names = run("keys", "list", "--data", self.data, "--json").json
        shown = [
            run("keys", "show", rule["name"], "--data", self.data, "--json").json
            for rule in names
        ]
        return {rule["name"]: rule["primary_key"] for rule in shown}


@contextmanager
def serving(run: Run, folder: Path, name: str, *options: object) -> Iterator[Server]:
    data = folder / name
    config = folder / f"{name}.json"
    config.write_text(
        json.dumps({"namespaces": [{"name": name, "queues": [{"name": "orders"}]}]})
    )
    with served(data, "--config", config, *options) as started:
        yield Server(name, started, data, _bus(run, started.ready, data, name))


def _bus(run: Run, ready: Any, data: Path, name: str) -> tuple[str, ...]:
    """The options that name a server."""
    told = ready["namespaces"][name]
    text: str = told["connection_string"]
    if "SharedAccessKey=" not in text:
        host = ("--host", f"localhost:{told['amqps_port'] or told['amqp_port']}")
        shown = run("keys", "show", "--data", data, *host, "--json").json
        text = shown["connection_string"]
    if ready["ca_file"] is None and "Emulator" not in text:
        text += ";UseDevelopmentEmulator=true"
    trust = () if ready["ca_file"] is None else ("--ca-file", ready["ca_file"])
    return ("--connection-string", text, *trust, "--json")


@pytest.fixture(params=["dev", "tls"])
def servers(
    request: pytest.FixtureRequest, run: Run, tmp_path: Path
) -> Iterator[tuple[Server, Server]]:
    """The primary and the secondary, each with two messages."""
    first, second = (PLAIN, PLAIN_BOTH) if request.param == "dev" else (TLS, TLS)
    with (
        serving(run, tmp_path, "contoso", *first) as primary,
        serving(run, tmp_path, "backup", *second) as secondary,
    ):
        primary.fill(run)
        secondary.fill(run)
        yield primary, secondary


def test_a_connection_string_decides_which_server_is_changed(
    run: Run, servers: tuple[Server, Server]
) -> None:
    for one, other in (servers, servers[::-1]):
        before = other.rules(run)

        purged = run("namespace", "purge", "--all", *one.bus, "--yes").json
        left = one.held(run), other.held(run)
        run("keys", "create", "guest", "--right", "Send", *one.bus)
        made = one.rules(run)
        changed = run("keys", "regenerate", "guest", *one.bus, "--yes").json
        after = one.rules(run)
        run("keys", "delete", "guest", *one.bus, "--yes")
        one.fill(run)
        reset = run("namespace", "reset", *one.bus, "--yes").json

        assert (purged, left) == ({"purged": 2}, (0, 2))
        assert made["guest"] != after["guest"] == changed["primary_key"]
        assert one.rules(run).keys() == {ROOT}
        assert reset == {"deleted": 1, "made": 1}
        assert (one.held(run), other.held(run)) == (0, 2)
        assert other.rules(run) == before
        one.fill(run)


@pytest.mark.parametrize(
    ("options", "kind"),
    [(("--host", "127.0.0.1", "--amqp-port", 0), "HTTP"), (TLS[:4], "HTTPS")],
)
def test_a_server_that_does_not_tell_its_http_port_is_left_alone(
    run: Run, tmp_path: Path, options: tuple[object, ...], kind: str
) -> None:
    with serving(run, tmp_path, "contoso", *options) as server:
        server.fill(run)

        refused = run("namespace", "purge", "--all", *server.bus, "--yes")

        port = server.ports["amqp_port"] or server.ports["amqps_port"]
        assert refused.code == 2
        assert refused.err == (
            f"twinbus: localhost:{port} does not say where it has {kind}. Name it with "
            "--url.\n"
        )
        assert server.held(run) == 2


def test_the_port_of_a_connection_string_is_that_of_amqp(
    run: Run, tmp_path: Path
) -> None:
    with serving(run, tmp_path, "contoso", *TLS) as server:
        server.fill(run)
        amqps, https = server.ports["amqps_port"], server.ports["https_port"]
        admin = [part.replace(f":{amqps}", f":{https}") for part in server.bus]

        refused = run("namespace", "purge", "--all", *admin, "--yes")
        left = server.held(run)
        url = ("--url", f"https://localhost:{https}")
        done = run("namespace", "purge", "--all", *admin, *url, "--yes")

    assert (refused.code, left) == (1, 2)
    assert f"localhost:{https} does not answer as an AMQP port does" in refused.err
    assert "--url" in refused.err
    assert refused.err.count("\n") == 1
    assert done.json == {"purged": 2}


def test_another_server_behind_the_told_port_changes_nothing(
    run: Run, tmp_path: Path
) -> None:
    # The AMQP port is forwarded from elsewhere, the HTTP port is not, and the same
    # number belongs to a server here.
    with serving(run, tmp_path, "here", *PLAIN) as here:
        same = ("--http-port", here.ports["http_port"])
        elsewhere = ("--dev", "--host", "127.0.0.2", "--amqp-port", 0, *same)
        with (
            serving(run, tmp_path, "there", *elsewhere) as there,
            FaultyProxy("127.0.0.2", there.ports["amqp_port"]) as forwarded,
        ):
            here.fill(run)
            there.fill(run)
            parsed = parse_connection_string(here.bus[1])
            forward = here.bus[1].replace(f":{parsed.port}", f":{forwarded.port}")
            behind = replace(there, bus=("--connection-string", forward, "--json"))

            refused = run("namespace", "purge", "--all", *behind.bus, "--yes")

            assert refused.code == 1
            assert "is another server than --connection-string names" in refused.err
            assert (here.held(run), behind.held(run)) == (2, 2)
