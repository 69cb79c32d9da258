"""The guide to costs is true: its commands run, and print what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cost.guide_pictures import COMMAND, NAMES
from tests.printed import ROOT, blocks, printed
from tests.walking import Walk
from twinbus.cli.cost import _READ, show_forecast
from twinbus.cost.prices import default_text, load_prices
from twinbus.errors import ConfigError

PAGE = "docs/cost.md"
# How much of the page is about forecasts, and what is about ledgers.
*FORECASTS, REPORT, MAKE_UP, REPORT_MADE_UP, NOTEBOOK = (
    text for _, text in blocks(PAGE, __file__)
)
SERVE = "twinbus serve --dev --namespace contoso --data ./data"
SEND = """
export CONTOSO=$(twinbus keys show --string --data ./data)
twinbus queue create orders --connection-string env:CONTOSO
twinbus message send orders hello --connection-string env:CONTOSO
"""


def without_ends(text: str) -> str:
    """The text without spaces at the ends of its lines."""
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    shown = [text for language, text in printed(PAGE) if language == "text"]
    with Walk(tmp_path) as walk:
        for command in FORECASTS:
            walk.shell(command)

    first, prices, mine, compared = map(without_ends, walk.printed)
    assert without_ends(shown[0]) in first
    assert (prices, (tmp_path / "mine.yaml").read_text()) == ("", default_text())
    assert "28,800" in mine
    assert re.search(r"│ 20 +│ 57,600 │", compared)


def test_a_ledger_is_made_up_and_has_no_rows_of_november(tmp_path: Path) -> None:
    with Walk(tmp_path) as walk:
        walk.shell(MAKE_UP)
        # It ends in February, so no Spark has to start.
        (tmp_path / "data").mkdir()
        (tmp_path / "made-up").rename(tmp_path / "data" / "ledger")
        walk.shell(REPORT)

    made, reported = walk.printed
    assert made.startswith("300,000 rows of 40 days in made-up, ")
    assert reported == "There are no rows from 2026-11-01 in ./data/ledger.\n"


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_the_reports_of_the_page_work_from_nothing(tmp_path: Path) -> None:
    with Walk(tmp_path) as walk:
        # With so many rows it is faster to compile a query.
        settings = tmp_path / "spark-defaults.conf"
        settings.write_text(re.sub(r".*\.codegen\..*", "", settings.read_text()))
        walk.shell(SERVE)
        walk.shell(SEND)
        # The ledger is written when the server ends.
        walk.stop()
        walk.shell(REPORT)
        own = (tmp_path / "report.html").read_text()
        walk.shell(MAKE_UP)
        walk.shell(REPORT_MADE_UP)
        made_up = (tmp_path / "report.html").read_text()
        walk.program(NOTEBOOK)

    _, reported, _, of_made_up, in_notebook = walk.printed
    assert re.search(r"^day +send to primary ", reported, re.MULTILINE)
    assert own.endswith("</html>")
    assert "Outages: 10 told by events, 10 inferred from rates." in of_made_up
    assert "fabrikam" in made_up
    assert "sum(operations)" in in_notebook
    assert (
        len(re.findall(r"^\| *(?:contoso|fabrikam)\|", in_notebook, re.MULTILINE)) == 20
    )


def test_the_refusal_on_the_page_is_what_is_said(tmp_path: Path) -> None:
    said = [text for language, text in printed(PAGE) if language == "text"][1]
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
