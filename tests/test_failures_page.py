"""The page about failures is true: its commands run, and its table is what happens."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.cli.conftest import run as run  # noqa: PLC0414 - a fixture
from tests.cli.run import Run
from tests.printed import ROOT
from tests.walking import walked
from twinbus.client.sync.connection import Connection
from twinbus.errors import DeadlineExceeded, TwinbusError
from twinbus.pairing.rules.classification import Failure, kind_of
from twinbus.testing.server_process import ServerProcess
from twinbus.wire.message.sections import encode_message

PAGE = "docs/failures.md"
WAYS = ("send", "receive", "manage", "contact")
MESSAGE = encode_message(b"x", {0: "1"})
# What answers without a fault take is far less, and what a slow disk takes is more.
SLOW_SECONDS = 1.5
PATIENCE_SECONDS = 10


def rows() -> dict[str, dict[str, str]]:
    """What the table says of each way, by the command that makes it so."""
    found = {}
    for line in (ROOT / PAGE).read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 6 and "`" in cells[1]:
            found[cells[1].strip("`")] = dict(zip(WAYS, cells[2:], strict=True))
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("failures")
    # The second queue is in the second shard.
    entities = {"queues": [{"name": "beside"}, {"name": "orders"}]}
    # It is a development server, which would keep no reserve of disk space.
    options = ["--faults", "--reserve", str(1 << 20), "--shards", "2"]
    with ServerProcess(folder, entities, options=options) as server:
        yield server


def answer(attempt: Callable[[], object]) -> str:
    """How an attempt ends, in the words of the table."""
    begun = time.monotonic()
    try:
        attempt()
    except (TwinbusError, AzureError) as error:
        busy = kind_of(error) is Failure.BUSY and isinstance(error, TwinbusError)
        return "busy" if busy else "no"
    return "slow" if time.monotonic() - begun >= SLOW_SECONDS else "yes"


def seen(server: ServerProcess) -> dict[str, str]:
    """What an application sees that tries each way once, on connections of its own."""

    def connect() -> Connection:
        return Connection.from_connection_string(
            server.connection_string, timeout_seconds=PATIENCE_SECONDS
        )

    def send() -> None:
        with connect() as connection:
            connection.sender("orders").send(MESSAGE)

    def receive() -> None:
        with connect() as connection:
            found = connection.receiver("orders").receive(1, PATIENCE_SECONDS / 2)
        if not found:
            raise DeadlineExceeded("receive", PATIENCE_SECONDS / 2)

    def contact() -> None:
        with connect() as connection:
            connection.open()

    admin = ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=server.ca_file, retry_total=0
    )
    with closing(admin):
        manage = answer(lambda: admin.update_queue(admin.get_queue("orders")))
    return {
        "send": answer(send),
        "receive": answer(receive),
        "manage": manage,
        "contact": answer(contact),
    }


def test_the_table_has_the_four_ways() -> None:
    closed = [
        {way for way, said in row.items() if said == "no"} for row in rows().values()
    ]

    assert {"send"} in closed
    assert {"receive"} in closed
    assert {"manage"} in closed
    assert any("contact" in ways for ways in closed)


def cases() -> list[object]:
    """A row each. The one that waits takes longer than all others together."""
    return [
        pytest.param(*row, marks=pytest.mark.campaign if "slow" in row[0] else ())
        for row in rows().items()
    ]


@pytest.mark.parametrize(("command", "said"), cases())
def test_a_rehearsed_failure_looks_as_the_page_says(
    server: ServerProcess, run: Run, command: str, said: dict[str, str]
) -> None:
    url = f"http://127.0.0.1:{server.ports['http']}"
    way = ("--connection-string", server.connection_string, "--url", url)
    with Connection.from_connection_string(server.connection_string) as connection:
        connection.sender("orders").send([MESSAGE] * 2)

    program, *words = shlex.split(command)
    assert program == "twinbus"
    assert run(*words, *way).code == 0
    found = seen(server)
    assert run("fault", "clear", *way).code == 0
    until_well(server)

    assert found == said


def until_well(server: ServerProcess) -> None:
    """The test's own timeout ends what never happens."""
    while set(seen(server).values()) != {"yes"}:
        pass


def test_the_commands_of_the_page_work_from_nothing(tmp_path: Path) -> None:
    with walked(PAGE, __file__, tmp_path) as walk:
        _, printed = walk.printed

    assert "refused" in printed
    assert "before the fault" in printed
    assert "never" not in re.sub(r".*refused.*", "", printed)
