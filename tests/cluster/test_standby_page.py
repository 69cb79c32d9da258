"""The guide's role, database and standby are made as printed, and a node uses them."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.site import cluster
from tests.postgres import PostgresServer
from tests.printed import blocks

PAGE = "docs/cluster.md"
# What the page has for other machines.
DATA = "/var/lib/postgresql/15/main"
PRIMARY = "postgresql://replicator@db.example.org"


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    server = PostgresServer.make()
    yield server
    server.stop()


def test_a_standby_that_is_made_as_printed_has_all_that_is_acknowledged(
    primary: PostgresServer, tmp_path: Path
) -> None:
    role, copy, wait = (text for _, text in blocks(PAGE, __file__))
    run_all(primary, role)
    primary.query("CREATE ROLE replicator LOGIN REPLICATION")
    standby = PostgresServer.empty()
    assert DATA in copy
    assert PRIMARY in copy
    copy = copy.replace("\\\n", " ").replace(DATA, str(standby.data))
    here = f"'{primary.url(user='replicator')}'"
    program, *arguments = shlex.split(copy.replace(PRIMARY, here))
    standby.run(program, *arguments)
    standby.start()
    with contextlib.ExitStack() as stack:
        stack.callback(standby.stop)
        run_all(primary, wait)
        primary.await_standby()
        url = primary.url("messages", "twinbus")
        with cluster(tmp_path, url, {"queues": [{"name": "orders"}]}, 1) as site:
            assert site.post(0, "orders", b"a") == 201
            assert site.health(0)["durability"] == "standby"
        schema = f"twinbus_{site.nodes[0].name.lower()}"
        query = f'SELECT count(*) FROM "{schema}".message'  # noqa: S608
        assert standby.query(query, "messages") == [(1,)]


def run_all(server: PostgresServer, block: str) -> None:
    for statement in block.split(";\n"):
        if statement:
            server.query(statement)
