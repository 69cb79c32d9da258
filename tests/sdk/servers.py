"""The server as a process of its own, as a user starts it.

Owns the command line, the ready line and the end of the process. A test talks to it
only through sockets. Knows nothing about clients or about which entities a test wants.

With TWINBUS_TEST_SHARDS=4 in the environment, all servers of this folder have four
shards; with TWINBUS_TEST_DATABASE=URL each has a new database in that PostgreSQL.
Clients must see no difference.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import psycopg
from psycopg.conninfo import make_conninfo

_STOP_SECONDS_MAX = 20


def shard_options(folder: Path | None = None) -> list[str]:
    """Options for the shards or the database that the environment asks for.

    A folder has the same database when it is served again.
    """
    count = os.environ.get("TWINBUS_TEST_SHARDS", "")
    url = os.environ.get("TWINBUS_TEST_DATABASE", "")
    if url:
        named = uuid4() if folder is None else uuid5(NAMESPACE_URL, str(folder))
        return ["--database", _database(url, f"sdk_{named.hex}")]
    return ["--shards", count] if count else []


def _database(url: str, name: str) -> str:
    """The URL of a database beside another one, which is made if it is not there."""
    with (
        contextlib.suppress(psycopg.errors.DuplicateDatabase),
        psycopg.connect(url, autocommit=True) as connection,
    ):
        connection.execute(f"CREATE DATABASE {name}".encode())
    return make_conninfo(url, dbname=name)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one namespace is found."""

    connection_string: str
    amqp_port: int
    amqps_port: int
    http_port: int
    https_port: int

    def secured(self, host: str) -> str:
        """The connection string without the words that turn TLS off."""
        return ";".join(
            f"Endpoint=sb://{host}" if part.startswith("Endpoint=") else part
            for part in self.connection_string.split(";")
            if part and not part.startswith("UseDevelopmentEmulator")
        )

    def signed(self, key_name: str, key: str) -> str:
        """The connection string with another key."""
        text = re.sub(
            "SharedAccessKeyName=[^;]*",
            f"SharedAccessKeyName={key_name}",
            self.connection_string,
        )
        return re.sub("SharedAccessKey=[^;]*", f"SharedAccessKey={key}", text)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    ca_file: str
    namespaces: Mapping[str, Endpoint]
    log: Path


@contextmanager
def serving(folder: Path, config: Mapping[str, Any]) -> Iterator[Server]:
    """Run a server with the namespaces of a configuration until the block ends.

    Fails if the server has met a bug of its own, or does not stop when it is asked to.
    """
    file = folder / "namespaces.json"
    options = shard_options(folder)
    if "--database" in options:
        # A namespace in a database has one shard.
        alone = [{**each, "shards": 1} for each in config["namespaces"]]
        config = {**config, "namespaces": alone}
    file.write_text(json.dumps(config))
    names = [namespace["name"] for namespace in config["namespaces"]]
    command = [sys.executable, "-m", "twinbus.cli.main", "serve", "--dev"]
    command += ["--no-supervisor", "--no-ledger", *options]
    command += [word for name in names for word in ("--namespace", name)]
    command += ["--data", str(folder / "data"), "--config", str(file)]
    for port in ("amqp", "amqps", "http", "https"):
        command += [f"--{port}-port", "0"]
    log = folder / "server.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            yield _ready(process, log)
        finally:
            process.terminate()
            try:
                code = process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    said = log.read_text()
    assert code == 0, f"the server ended with {code}:\n{said}"
    assert "Traceback" not in said, said


def _ready(process: subprocess.Popen[bytes], log: Path) -> Server:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the server did not start:\n{log.read_text()}"
    ready = json.loads(line)
    assert ready["ready"] is True
    endpoints = {
        name: Endpoint(**{field: entry[field] for field in Endpoint.__slots__})
        for name, entry in ready["namespaces"].items()
    }
    return Server(ready["ca_file"], endpoints, log)
