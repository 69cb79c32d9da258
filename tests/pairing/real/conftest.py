"""One pair of servers for all tests of this folder, whole again before each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pairing.real.site import RealPair


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPair]:
    pair = RealPair(tmp_path_factory.mktemp("pair"))
    yield pair
    pair.close()


@pytest.fixture
def pair(servers: RealPair) -> RealPair:
    """Two servers that work."""
    servers.mend()
    return servers
