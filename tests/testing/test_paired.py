"""The rules of paired namespaces convict broken pairs and acquit sound ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.testing.paired_model import RULES, WITHOUT_TAP
from tests.testing.paired_run import PairedRun
from twinbus.testing.history_paired import check_paired

# What is wrong -> the kind that it must be convicted of.
DEFECTS = {
    "accepted and forgotten": "lost",
    "backlog forgets": "lost",
    "body changed": "altered",
    "brought home twice": "duplicate",
    "completed first": "syphon",
    "diverted in health": "diverted",
    "impatient": "diverted",
    "last first": "order",
    "no look into the backlog": "incomplete",
    "one entity moves all": "diverted",
    "overtaken": "order",
    "pings are stored": "ping",
    "reported before it is sent": "early",
    "sent again": "duplicate",
    "sent again later": "duplicate",
    "sent again with another id": "renamed",
    "session not restored": "altered",
    "stored twice": "duplicate",
    "success forgotten": "diverted",
    "time to live not restored": "altered",
    "window forgotten": "duplicate",
}
# What applications cannot tell without a tap: order in the backlog, and whether a
# second copy came from one of the faults. A syphon that completes first is seen by what
# it loses, and one that is diverted in health by when it arrives.
ON_THE_WIRE = {"brought home twice", "last first"}
WITHOUT_TAP_KINDS = {"completed first": "lost", "diverted in health": "early"}
SEEDS_TO_CONVICT = 20


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_broken_pair_is_convicted(defect: str) -> None:
    kinds: set[str] = set()

    for seed in range(SEEDS_TO_CONVICT):
        kinds |= check_paired(
            PairedRun(seed, defect).events, RULES
        ).verdict.broken.keys()

    assert DEFECTS[defect] in kinds, f"{SEEDS_TO_CONVICT} seeds: {kinds or 'acquitted'}"


@pytest.mark.parametrize("defect", sorted(DEFECTS.keys() - ON_THE_WIRE))
def test_applications_alone_convict_a_broken_pair(defect: str) -> None:
    wanted = WITHOUT_TAP_KINDS.get(defect, DEFECTS[defect])
    kinds: set[str] = set()

    for seed in range(SEEDS_TO_CONVICT):
        events = PairedRun(seed, defect).without_tap()
        kinds |= check_paired(events, WITHOUT_TAP).verdict.broken.keys()

    assert wanted in kinds, f"{SEEDS_TO_CONVICT} seeds: {kinds or 'acquitted'}"


def _acquit(seeds: Iterable[int]) -> set[str]:
    """Gives the reasons for further copies that were met."""
    seen: set[str] = set()
    for seed in seeds:
        run = PairedRun(seed)
        with_tap = check_paired(run.events, RULES)
        without = check_paired(run.without_tap(), WITHOUT_TAP)

        assert with_tap.ok, f"seed {seed}: {with_tap.text()}"
        assert without.ok, f"seed {seed}, without a tap: {without.text()}"
        assert with_tap.accepted == without.accepted
        seen |= with_tap.duplicates.keys()
    return seen


def test_a_sound_pair_is_acquitted() -> None:
    # In the last one a fault begins before a send and ends after its last copy.
    seen = _acquit([*range(150), 6342])

    assert len(seen) == 4, "a model in which nothing happens proves nothing"


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_a_sound_pair_is_acquitted_over_many_seeds() -> None:
    _acquit(range(1000, 11_000))


def test_the_report_tells_what_happened() -> None:
    report = check_paired(PairedRun(3).events, RULES)

    figures = json.loads(report.to_json())
    assert figures["ok"] is True
    assert figures["accepted"] > 50
    assert figures["lost"] == 0
    assert figures["diverted"] > 0
    assert sum(figures["duplicates"].values()) == report.duplicates.total()
    assert figures["send_seconds_max"] >= 0.2
    assert figures["failover_seconds"]["max"] >= 0.2
    assert "longest send" in report.text()


def test_a_pair_that_never_failed_needs_no_look_into_the_backlog() -> None:
    run = PairedRun(1, steps=5)

    assert check_paired(run.events, replace(RULES, witnessed=False)).ok
