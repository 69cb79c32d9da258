"""A server with two queues and a client at its connection, for tests of single goes.

Tests that need another namespace have fixtures of the same names in their own file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.near import NearClient
from tests.server.raw import RawServer, serving
from twinbus.core.entity import QueueDescription
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.directory.config import NamespaceConfig

QUEUES = (QueueDescription("q"), QueueDescription("r"))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RawServer]:
    async with serving(tmp_path, NamespaceConfig("contoso", queues=QUEUES)) as started:
        yield started


@pytest.fixture
def port(server: RawServer) -> NamespacePort:
    return server.ports["contoso"]


@pytest.fixture
async def client(port: NamespacePort) -> NearClient:
    return NearClient.connect(port)
