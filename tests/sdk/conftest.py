"""One server for all tests of this folder, and both official Python clients.

Each client has a namespace of its own on that server, with the same entities, so every
test that asks for a `bus` runs twice without seeing its twin. `ahead.py` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.sdk import declared
from tests.sdk.ahead import Ahead
from tests.sdk.blocking import LoopThread
from tests.sdk.buses import Bus
from tests.sdk.servers import Server, serving

FOLDER = Path(__file__).parent
CLIENTS = ("sync", "async")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The official clients leave a socket open when a server ends a connection."""
    leak = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(leak)


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with every entity that the collected tests declared."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, declared.configuration(CLIENTS)) as running:
        yield running


@pytest.fixture(scope="module")
def ahead(request: pytest.FixtureRequest, server: Server) -> Iterator[Ahead]:
    """The tests of a file that ask for a bus, at work.

    Not those of other files: where several processes share the tests, each gets whole
    files, and would run the tests of all others too.
    """
    loop = LoopThread()

    def bus(client: str) -> Bus:
        endpoint = server.namespaces[client]
        made = Bus(endpoint, server.ca_file, loop if client == "async" else None)
        made.throttled = server.namespaces[declared.throttled(client)]
        return made

    items = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.path == request.path
        and "bus" in item.fixturenames
    ]
    tests = Ahead(items, bus)
    yield tests
    tests.close()
    loop.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Report the verdict of a test that was run ahead."""
    tests = pyfuncitem.funcargs.get("bus")
    if not isinstance(tests, Ahead):
        return None
    tests.verdict(pyfuncitem)
    return True


@pytest.fixture(params=CLIENTS)
def bus(ahead: Ahead) -> Bus:
    """An official client: the synchronous, then the asynchronous one."""
    # The test itself gets its bus from `ahead`; this is how pytest finds the verdict.
    return cast("Bus", ahead)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """The queue that `declared.with_queue` made for the test."""
    return str(request.function.__name__)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The topic that `declared.with_topic` made for the test."""
    return str(request.function.__name__)
