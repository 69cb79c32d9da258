"""The README says what is true: its examples run, and its links lead to pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.printed import PAGES, ROOT
from tests.walking import peeked, walked

# Sessions of Spark take long to start where others are at work.
pytestmark = pytest.mark.timeout(600)


def test_the_readme_works_from_nothing(tmp_path: Path) -> None:
    with walked("README.md", __file__, tmp_path) as walk:
        primary = walk.variable("PRIMARY")
        orders, copies = (peeked(primary, name) for name in ("orders", "copies"))

    received, _, paired, backlog, purged, _, shown = walk.printed
    assert (received, paired) == ("hello\n", "")
    assert backlog.startswith("index  messages")
    assert purged.split() == ["purged", "0"]
    assert "[68 65 6C 6C 6F]" in shown
    assert orders == copies == ["hello"]


def anchors(page: Path) -> set[str]:
    """What links can name in a page: its headings, as GitHub writes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)", text.lower(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_page_and_heading_that_is_linked_exists(page: str) -> None:
    place = ROOT / page
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", place.read_text())
    for target, anchor in links:
        if "://" not in target:
            linked = place.parent / target if target else place
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"
