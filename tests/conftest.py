"""Settings that every test shares.

Owns the property-based testing profiles, and that one file's leftovers are not blamed
on the next: all other fixtures live beside the tests that use them.
"""

from __future__ import annotations

import gc
import warnings

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
def _no_leftovers_of_others() -> None:
    """Let go of what former files left, such as sockets of other clients.

    Whoever collects garbage is told of unclosed sockets, whosever they were.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
