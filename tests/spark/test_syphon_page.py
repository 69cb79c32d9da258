"""The guide to the syphon says what is true: a cluster drains a backlog as printed.

The address of the master and the folder of the journal are changed, since the page has
those of a made-up machine. On loopback a primary has no name, so one is added.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.printed import blocks
from tests.spark.syphon_drain import standalone
from tests.spark.syphon_pair import (
    PRIMARY,
    Pair,
    Place,
    Shape,
    filled,
    inside,
    judged,
    receipts,
)
from tests.walking import Walk

# Nothing listens there.
AWAY = "spark://127.0.0.1:9"
MESSAGES = 30


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair[Place]]:
    """Two namespaces, and their connection strings in the files of the page."""
    with inside(tmp_path, Shape()) as pair:
        places = {"primary": pair.primary, "secondary": pair.secondary}
        for name, each in places.items():
            (tmp_path / f"{name}.txt").write_text(each.connection_string)
        yield pair


def command(pair: Pair[Place], master: str) -> str:
    """The command of the page, with this master."""
    ((_, text),) = blocks("docs/spark-syphon.md", __file__)
    changed = text.replace("spark://host:7077", master)
    journal = str(pair.options["journalLocation"])
    changed = changed.replace("/mnt/shared/twinbus", journal)
    return f"{changed.rstrip()} --primary-name {PRIMARY}"


def test_a_master_that_is_away_is_said_in_one_line(pair: Pair[Place]) -> None:
    with Walk(pair.folder) as walk, walk.start(command(pair, AWAY)) as syphon:
        said, _ = syphon.communicate(timeout=60)

    assert syphon.returncode == 2
    assert said.startswith(f"twinbus: --master {AWAY} does not answer")
    assert said.count("\n") == 1


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_cluster_drains_the_backlog_as_printed(pair: Pair[Place]) -> None:
    expected = filled(pair, MESSAGES, seed=1)
    with (
        standalone(pair.folder / "cluster", workers=1) as master,
        Walk(pair.folder) as walk,
    ):
        walk.shell(f"export PYSPARK_PYTHON={sys.executable}")
        walk.shell(command(pair, master))

    assert judged(pair, expected).duplicates() == 0
    assert receipts(pair) == (MESSAGES, MESSAGES)
