"""The guide to source and sink says what is true: its examples run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.walking import peeked, walked

# Sessions of Spark take long to start where others are at work.
pytestmark = pytest.mark.timeout(600)


# The README has a program on Spark with source and sink, and `make test` runs that.
@pytest.mark.campaign
def test_the_examples_about_spark_work_from_nothing(tmp_path: Path) -> None:
    page = "docs/spark-source-and-sink.md"
    with walked(page, __file__, tmp_path, programs=False) as walk:
        totals = peeked(walk.variable("BUS"), "totals")

    assert totals == ["hello"]
