"""A drill in namespaces of the user has entities of its own, and removes them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.cli.conftest import run as run  # noqa: PLC0414 - a fixture
from tests.cli.run import Run
from tests.drill.test_drill import Done, Running, told
from tests.printed import blocks
from tests.walking import Walk
from twinbus.cli.remote import reach
from twinbus.client.sync.connection import Connection
from twinbus.testing.server_process import ServerProcess
from twinbus.wire.message.sections import encode_message

QUEUE = "mine"
# What the namespaces of the guide hold before the drill, and after it.
MINE = f"""
twinbus queue create {QUEUE} --connection-string env:PRIMARY
twinbus message send {QUEUE} hello --connection-string env:PRIMARY
"""
LEFT = """
twinbus queue list --json --connection-string env:PRIMARY
twinbus queue list --json --connection-string env:SECONDARY
"""


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("primary")
    entities = {"queues": [{"name": QUEUE}]}
    with ServerProcess(folder, entities, options=["--faults"]) as server:
        with Connection.from_connection_string(server.connection_string) as connection:
            connection.sender(QUEUE).send(encode_message(b"mine"))
        yield server


@pytest.fixture(scope="module")
def secondary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("secondary")) as server:
        yield server


@pytest.fixture(scope="module")
def options(
    primary: ServerProcess,
    secondary: ServerProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[str]:
    """How the drill is told where both are: by files, which keep keys out of sight."""
    folder = tmp_path_factory.mktemp("options")
    servers = {"primary": primary, "secondary": secondary}
    words = []
    for name, server in servers.items():
        (folder / name).write_text(server.connection_string)
        words += [f"--{name}", f"@{folder / name}"]
    authorities = [Path(server.ca_file).read_text() for server in servers.values()]
    (folder / "ca.pem").write_text("".join(authorities))
    return [*words, "--ca-file", str(folder / "ca.pem")]


def queues(server: ServerProcess) -> dict[str, int]:
    """The queues of a namespace, and how much is in them."""
    admin = ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=server.ca_file
    )
    with closing(admin):
        assert list(admin.list_topics()) == []
        return {
            queue.name: queue.active_message_count or 0
            for queue in admin.list_queues_runtime_properties()
        }


def faults(server: ServerProcess) -> object:
    url = f"http://127.0.0.1:{server.ports['http']}"
    return reach(server.connection_string, url, None).ask("GET", "/$faults")["value"]


@pytest.fixture
def refusal(run: Run) -> Callable[..., str]:
    """Run a drill that is refused with one line, and say which."""

    def call(*words: str) -> str:
        done = run("drill", "--syphon", "application", *words)
        assert done.code == 2, done.err
        (line,) = done.err.splitlines()
        return line

    return call


@pytest.mark.campaign
def test_a_drill_leaves_the_namespaces_as_they_were(
    primary: ServerProcess, secondary: ServerProcess, options: list[str], tmp_path: Path
) -> None:
    wanted = ("--fault", "sick", "--seed", "2", "--no-cost")
    running = Running(tmp_path / "given", *wanted, *options)

    done: Done = running.wait()

    assert done.code == 0, done.errors
    assert done.result["ok"], done.result["reasons"]
    assert done.result["figures"]["accepted"] == 900
    assert "cannot send" in told(done, "saw")
    assert "probation" in told(done, "helped")
    assert queues(primary) == {QUEUE: 1}
    assert queues(secondary) == {}
    assert faults(primary) == []
    key = primary.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert key not in done.report.read_text()
    assert key not in str(done.result)
    assert options[1] in done.result["repeat"]


def test_the_drill_of_the_guide_leaves_what_was_there(tmp_path: Path) -> None:
    *servers, drill = (text for _, text in blocks("docs/drill.md", __file__))
    with Walk(tmp_path) as walk:
        for text in servers:
            walk.shell(text)
        walk.shell(MINE)
        walk.shell(drill)
        walk.shell(LEFT)
        key = walk.variable("PRIMARY").partition("SharedAccessKey=")[2].split(";")[0]

    *_, said, left = walk.printed
    assert "Nothing was lost" in said
    assert key not in said
    first, second = (json.loads(line) for line in left.splitlines())
    assert [(each["name"], each["active_messages"]) for each in first] == [(QUEUE, 1)]
    assert second == []


def test_a_drill_that_is_stopped_removes_its_entities_and_faults(
    primary: ServerProcess, secondary: ServerProcess, options: list[str], tmp_path: Path
) -> None:
    running = Running(tmp_path / "stopped", "--fault", "unauthorized", *options)
    running.wait_for("outage")

    running.process.send_signal(signal.SIGINT)
    _, errors = running.process.communicate(timeout=60)

    assert running.process.returncode == 130, errors
    assert queues(primary) == {QUEUE: 1}
    assert queues(secondary) == {}
    assert faults(primary) == []


def test_what_the_drill_cannot_do_to_a_namespace_is_refused_in_one_line(
    secondary: ServerProcess, options: list[str], refusal: Callable[..., str]
) -> None:
    mine, other, ca_file = options[:2], options[2:4], options[4:]

    assert "needs servers of the drill's own" in refusal("--fault", "kill", *options)
    assert "Give both --primary and --secondary" in refusal(*mine)
    assert "are one namespace" in refusal("--primary", other[1], *other)
    assert "is for --primary and --secondary" in refusal(*ca_file)
    # The secondary has no switchboard.
    swapped = ["--primary", other[1], "--secondary", mine[1], *ca_file]
    line = refusal("--fault", "sick", *swapped)
    assert "needs a primary that is a twinbus server with --faults" in line
    assert "choose --fault cut or both" in line
    assert queues(secondary) == {}


def test_a_namespace_that_cannot_be_reached_or_managed_is_refused_in_one_line(
    options: list[str], refusal: Callable[..., str], tmp_path: Path
) -> None:
    assert "--ca-file" in refusal("--fault", "cut", *options[:4])
    (tmp_path / "away").write_text(
        "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b;"
        "UseDevelopmentEmulator=true;"
    )
    away = ["--primary", f"@{tmp_path / 'away'}", *options[2:]]
    assert "--primary: " in refusal("--fault", "cut", *away)
