"""Settings that every test shares.

Owns the property-based testing profiles, and that each file answers for what it leaves
open: all other fixtures live beside the tests that use them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A suite that passes once must pass again, so examples come from a fixed seed, and a
# noisy machine must not fail a test for being slow. `make fuzz` is where luck helps.
settings.register_profile(
    "twinbus",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("twinbus")


@pytest.fixture(autouse=True, scope="module")
def _each_file_answers_for_its_own_leftovers() -> Iterator[None]:
    """Whoever collects garbage is told of unclosed sockets, whosever they were."""
    yield
    gc.collect()
