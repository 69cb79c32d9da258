"""A short soak with a fixed seed: everything that `make soak` does, for a few seconds.

The seed is one whose first faults are of different kinds: an entity of the primary
takes no sends while its links open, the syphon is killed, the primary's answers to one
worker are swallowed, and the primary is killed.
"""

from __future__ import annotations

from pathlib import Path

from tests.soak.run import Soak

SEED = 1627
SECONDS = 9
# What a killed syphon held stays locked for a minute; it is found in the backlog then.
HOME_SECONDS = 2


def test_a_few_seconds_of_faults_lose_nothing(tmp_path: Path) -> None:
    soak = Soak(tmp_path, SEED, SECONDS, HOME_SECONDS)

    report = soak.run()

    text = soak.text(report)
    print(text)
    assert report.ok, text
    assert report.lost == 0
    # A soak in which nothing happens proves nothing.
    assert report.accepted > 200, text
    assert (report.diverted or 0) > 20, text
    assert report.failover_seconds, text
    assert report.failback_seconds, text
    figures = soak.figures(report)
    assert sum(figures["faults"].values()) >= 3, text
    assert 0 < figures["send_seconds_max"] < 60
