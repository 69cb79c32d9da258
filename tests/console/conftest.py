"""One server for all tests of this folder; each test has its own entities."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.site import RULES, ConsoleSite
from twinbus.testing.server_process import ServerProcess

OWN = {"name": "own-rule", "rights": ["Listen"], "primary_key": "own-key"}


@pytest.fixture
def queue(request: pytest.FixtureRequest, site: ConsoleSite) -> str:
    """A queue of the test's own."""
    return site.create_queue(str(request.function.__name__)[:200])


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    entities = {
        "authorization_rules": RULES,
        "queues": ["orders", {"name": "own", "authorization_rules": [OWN]}],
    }
    folder = tmp_path_factory.mktemp("console")
    with ServerProcess(folder, entities, name="contoso") as process:
        yield ConsoleSite(process)
        assert process.stop() == 0
        assert "Traceback" not in process.log.read_text()
