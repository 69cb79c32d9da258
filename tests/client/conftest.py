"""Fixtures that the tests of the client share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.site import Site, site


@pytest.fixture
async def namespace(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path) as served:
        yield served
