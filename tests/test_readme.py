"""The README says what is true: its examples run, and its links lead to pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.conftest import ROOT
from tests.walking import peeked, walked

# Sessions of Spark take long to start where others are at work.
pytestmark = pytest.mark.timeout(600)


def test_the_readme_works_from_nothing(tmp_path: Path) -> None:
    with walked(
        "README.md", tmp_path, passed_over=("make ", "python3 -m venv ")
    ) as walk:
        primary = walk.variable("PRIMARY")
        orders, copies = (peeked(primary, name) for name in ("orders", "copies"))

    received, _, paired, backlog, purged, _, shown = walk.printed
    assert (received, paired) == ("hello\n", "")
    assert backlog.startswith("index  messages")
    assert purged.split() == ["purged", "0"]
    assert "[68 65 6C 6C 6F]" in shown
    assert orders == copies == ["hello"]


def test_every_page_that_is_linked_exists() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
