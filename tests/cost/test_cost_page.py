"""The guide to costs is true: its commands run, and print what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cost.guide_pictures import COMMAND, NAMES
from tests.spark.conftest import ROOT
from tests.walking import Walk, blocks
from twinbus.cli.cost import _READ, show_forecast
from twinbus.cost.prices import default_text, load_prices
from twinbus.errors import ConfigError

PAGE = "docs/cost.md"


def without_ends(text: str) -> str:
    """The text without spaces at the ends of its lines."""
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    begins = ("twinbus cost forecast ", "twinbus cost prices ")
    commands = [text for _, text in blocks(PAGE) if text.startswith(begins)]
    shown = [text for language, text in blocks(PAGE) if language == "text"]
    with Walk(tmp_path) as walk:
        for command in commands:
            walk.shell(command)

    first, prices, mine, compared = map(without_ends, walk.printed)
    assert without_ends(shown[0]) in first
    assert (prices, (tmp_path / "mine.yaml").read_text()) == ("", default_text())
    assert "28,800" in mine
    assert re.search(r"│ 20 +│ 57,600 │", compared)


def test_the_refusal_on_the_page_is_what_is_said(tmp_path: Path) -> None:
    said = [text for language, text in blocks(PAGE) if language == "text"][1]
    mine = tmp_path / "mine.yaml"
    mine.write_text(default_text().replace("millions: 100\n", "millions: 10\n"))

    with pytest.raises(ConfigError) as refused:
        load_prices(mine)

    assert (
        said.strip() == f"twinbus: {refused.value.text.replace(str(mine), mine.name)}"
    )


def test_the_page_has_every_option_with_its_default() -> None:
    row = re.compile(r"^\| `--([a-z-]+)` \| (\S+) \|", re.MULTILINE)
    # The options of a plan come first, in their order.
    defaults = zip(_READ, show_forecast.__defaults__ or (), strict=False)

    assert dict(row.findall((ROOT / PAGE).read_text())) == dict(defaults)


def test_the_pictures_are_of_the_ledger_that_the_page_makes_up() -> None:
    text = (ROOT / PAGE).read_text()

    assert COMMAND in text
    shown = re.findall(r"\(pictures/(cost-[a-z]+)\.svg\)", text)
    assert tuple(shown) == NAMES
