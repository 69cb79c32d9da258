"""Settings that every test shares.

Owns the property-based testing profiles, and the order of files for several workers;
fixtures live beside the tests that use them.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.forgotten_sockets import (
    forgive_forgotten_sockets,
    name_the_tests_of_transports,
)
from tests.prompt_client import look_more_often

forgive_forgotten_sockets()
name_the_tests_of_transports()
look_more_often()

# A job in the background of a shell ignores Ctrl-C, and so would all that tests start:
# a command that runs until Ctrl-C is pressed would run for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A suite that passes once must pass again, so examples come from a fixed seed, and a
# noisy machine must not fail a test for being slow. `make fuzz` is where luck helps.
settings.register_profile(
    "twinbus",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("twinbus")

FOLDER = Path(__file__).parent
# Files that take twelve seconds or more, longest first. A worker gets whole files: one
# that is left with such a file at the end works alone. Most have few tests, so the
# order by the number of tests, which the scheduler has by itself, puts them last.
LONG_FILES = (
    "spark/test_killed_driver.py",
    "test_readme.py",
    "drill/test_drill.py",
    "console/test_browser.py",
    "cli/test_syphon.py",
    "pairing/real/test_outbox.py",
    "sdk/test_throttling.py",
    "store/test_postgres.py",
    "cluster/test_faults.py",
    "store/test_crossing.py",
    "console/test_walk.py",
    "drill/test_given.py",
    "pairing/pump/test_pump_kills.py",
    "sdk/test_supervised.py",
    "pairing/real/test_refusals.py",
    "cli/test_backlog.py",
    "testing/test_plugin.py",
    "cluster/test_nodes.py",
    "pairing/real/test_outbox_kills.py",
    "client/test_silence.py",
    "server/access/test_before_claim.py",
    "test_celery_page.py",
    "sdk/test_faults.py",
    "soak/test_soak.py",
    "console/test_bulk.py",
    "faults/test_clock.py",
    "client/test_attacks.py",
    "console/test_live.py",
    "server/setup/test_supervisor.py",
    "bench/test_bench_quick.py",
    "faults/test_powerloss.py",
    "faults/test_mover.py",
    "cli/test_message.py",
    "cluster/test_refusals.py",
    "faults/test_spool_kill.py",
    "faults/test_reserve.py",
    "faults/test_kill.py",
    "pairing/real/test_primary_away.py",
    "cli/test_confirm.py",
    "test_failures_page.py",
    "sdk/test_sending.py",
    "spark/test_syphon_driver.py",
    "pairing/real/test_primary_throttled.py",
    "cli/test_two_servers.py",
    "server/broker/test_slices.py",
    "cluster/test_sdk.py",
)
# Files with tests on the Spark session. One worker gets them all: a session takes a
# minute to start and to load its classes where others are at work.
SPARK_FILES = (
    "spark/test_killed_driver.py",
    "spark/test_on_spark.py",
    "spark/test_syphon.py",
    "spark/test_example.py",
    "spark/test_memory.py",
    "cost/test_report_job.py",
    "cost/test_report_outages.py",
    "cost/test_report_campaign.py",
    "cost/test_planted_secrets.py",
)
# A test that is ended in a call of Spark's takes the session with it, and with that all
# that come after.
SPARK_SECONDS_MAX = 600
_PLACES = {FOLDER / name: place for place, name in enumerate(LONG_FILES)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first; all others, and tests in a file, keep their order."""
    items.sort(key=lambda item: _PLACES.get(item.path, len(LONG_FILES)))
    on_spark = {FOLDER / name for name in SPARK_FILES}
    for item in items:
        if item.path in on_spark and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_SECONDS_MAX))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker gets whole files, and one worker all of `SPARK_FILES`."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "Spark" if file.removeprefix("tests/") in SPARK_FILES else file

    return Scheduling(config, log)
