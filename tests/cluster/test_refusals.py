"""`serve --database` says in one line what is wrong, and leaves nothing half made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import Result, Run
from tests.postgres import PostgresServer, shared_server
from twinbus.server.setup.diagnostics import _without_password

PASSWORD = "do-not-show-this"
START = ("-m", "twinbus.cli.main")
SCHEMAS = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'twinbus%'"


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that asks for passwords, but for its owner."""
    server = PostgresServer.make()
    server.query(f"CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'")
    (server.data / "pg_hba.conf").write_text(
        "local all postgres trust\nlocal all all scram-sha-256\n"
    )
    server.query("SELECT pg_reload_conf()")
    yield server
    server.stop()


def serve(
    tmp_path: Path,
    url: str,
    *options: str,
    namespace: str = "contoso",
    start: Sequence[str] = START,
) -> tuple[int, str, str]:
    """Run the command, as a process: a refusal may come from deep below."""
    command = [sys.executable, *start, "serve", "--dev"]
    command += ["--no-supervisor", "--no-ledger", "--namespace", namespace]
    command += ["--data", str(tmp_path), "--database", "env:DATABASE", *options]
    for kind in ("amqp", "http"):
        command += [f"--{kind}-port", "0"]
    environment = {**os.environ, "DATABASE": url, "LC_ALL": "C"}
    done = subprocess.run(
        command, capture_output=True, env=environment, timeout=60, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(tmp_path: Path, url: str, *options: str, **given: Any) -> str:
    """The one line that it says."""
    code, out, err = serve(tmp_path, url, *options, **given)
    assert (code, out) == (2, ""), err
    said = [line for line in err.splitlines() if " WARNING " not in line]
    assert len(said) == 1, err
    assert PASSWORD not in err
    return said[0]


def test_a_url_that_is_none(tmp_path: Path) -> None:
    line = refused(tmp_path, f"mysql://app:{PASSWORD}@localhost/x")

    assert "--database is not a URL of PostgreSQL" in line


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    line = refused(tmp_path, f"postgresql://app:{PASSWORD}@127.0.0.1:9/contoso")

    assert "contoso at 127.0.0.1:9 does not answer" in line
    assert "Check that it runs" in line


def test_a_wrong_password(tmp_path: Path, guarded: PostgresServer) -> None:
    url = f"postgresql://app:{PASSWORD}x@/postgres?host={guarded.folder}"

    line = refused(tmp_path, url)

    assert "refuses the connection" in line
    assert "password authentication failed" in line


def test_a_role_that_may_not_make_a_schema(
    tmp_path: Path, guarded: PostgresServer
) -> None:
    url = f"postgresql://app:{PASSWORD}@/postgres?host={guarded.folder}"

    line = refused(tmp_path, url)

    assert "may not make the schema twinbus_contoso" in line
    assert "Grant it CREATE on the database" in line
    assert guarded.query(SCHEMAS) == [(0,)]


def test_a_database_that_is_not_there(tmp_path: Path, guarded: PostgresServer) -> None:
    line = refused(tmp_path, guarded.url("nowhere"))

    assert 'database "nowhere" does not exist' in line


def test_a_database_without_free_connections(tmp_path: Path) -> None:
    server = shared_server()
    url = server.new_database()
    name = url.split("/")[3].split("?")[0]
    server.query("CREATE ROLE few LOGIN CONNECTION LIMIT 0")
    server.query(f"GRANT CREATE ON DATABASE {name} TO few")

    line = refused(tmp_path, server.url(name, "few"))

    assert "has no connection left" in line


def test_a_schema_of_another_program(tmp_path: Path) -> None:
    server = shared_server()
    url = server.new_database()
    name = url.split("/")[3].split("?")[0]
    server.query("CREATE SCHEMA twinbus_contoso", name)
    server.query("CREATE TABLE twinbus_contoso.theirs (a int)", name)

    line = refused(tmp_path, url)

    assert "The schema twinbus_contoso" in line
    assert "was not made by twinbus" in line


def test_a_newer_schema(tmp_path: Path) -> None:
    server = shared_server()
    url = server.new_database()
    name = url.split("/")[3].split("?")[0]
    server.query("CREATE SCHEMA twinbus_contoso", name)
    server.query("CREATE TABLE twinbus_contoso.twinbus_schema (number bigint)", name)
    server.query("INSERT INTO twinbus_contoso.twinbus_schema VALUES (99)", name)

    line = refused(tmp_path, url)

    assert "has schema 99, but this version of twinbus knows only" in line


def test_an_older_postgresql(tmp_path: Path) -> None:
    server = shared_server()
    url = server.new_database()
    name = url.split("/")[3].split("?")[0]
    # As if a later one were needed.
    program = "from twinbus.store.postgres import database; database.VERSION_MIN = 99;"
    program += "from twinbus.cli.main import main; main()"

    line = refused(tmp_path, url, start=("-c", program))

    major = server.query("SHOW server_version_num")[0][0][:-4]
    assert f"is PostgreSQL {major}. twinbus needs 99 or newer." in line
    assert server.query(SCHEMAS, name) == [(0,)]


def test_a_standby_that_is_away(tmp_path: Path) -> None:
    server = PostgresServer.make({"synchronous_standby_names": "somewhere"})
    try:
        line = refused(tmp_path, server.url())
    finally:
        server.stop()

    assert "No standby has confirmed a write" in line
    assert "synchronous_standby_names = 'somewhere'" in line


def test_a_machine_with_another_time(tmp_path: Path) -> None:
    url = shared_server().new_database()
    command = ["faketime", "-f", "+10m", sys.executable, "-c"]
    program = "from twinbus.cli.main import main; main()"
    options = ["serve", "--dev", "--no-supervisor", "--namespace", "contoso"]
    options += ["--data", str(tmp_path), "--database", url, "--no-ledger"]
    options += ["--amqp-port", "0", "--http-port", "0"]

    done = subprocess.run(
        [*command, program, *options], capture_output=True, timeout=60, check=False
    )

    assert done.returncode == 2, done.stderr
    assert "The clock of this machine is 600 seconds ahead of" in done.stderr.decode()


def test_the_configuration_names_folders_for_shards(tmp_path: Path) -> None:
    config = tmp_path / "namespaces.yaml"
    config.write_text("namespaces: [{name: contoso, shards: [./one, ./two]}]")

    line = refused(tmp_path, shared_server().new_database(), "--config", str(config))

    assert "names folders for the shards of contoso" in line
    assert "Give their number" in line


def test_a_bundle_of_diagnostics_has_no_password() -> None:
    for word in (
        f"postgresql://app:{PASSWORD}@host/name",
        f"--database=postgresql://app:{PASSWORD}@x:{PASSWORD}@host/name",
        f"host=x password={PASSWORD} dbname=y",
    ):
        shown = _without_password(word)

        assert PASSWORD not in shown
        assert "***" in shown


# -- keys ------------------------------------------------------------------------------


def keys_of(run: Run, url: str, *options: str) -> Result:
    return run("keys", "show", "--database", url, *options, "--json")


def test_keys_of_a_namespace_that_is_not_there(run: Run) -> None:
    url = shared_server().new_database()

    result = keys_of(run, url, "--namespace", "contoso")

    assert result.code == 2
    assert "There is no namespace contoso in the PostgreSQL database" in result.err


def test_keys_need_the_name_of_the_namespace(run: Run) -> None:
    result = keys_of(run, shared_server().url())

    assert result.code == 2
    assert "--namespace NAME" in result.err
