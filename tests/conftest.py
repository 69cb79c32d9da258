"""Settings that every test shares.

Owns the property-based testing profiles; fixtures live beside the tests that use them.
"""

from __future__ import annotations

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
