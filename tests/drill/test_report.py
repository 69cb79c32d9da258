"""The report stands alone, says what happened, and is drawn for two widths."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.drill import stories
from tests.pages import SVG, check_inside, check_labels, read
from twinbus.charts import nice_ceiling
from twinbus.drill.director import Performance
from twinbus.drill.judge import judge
from twinbus.drill.report import report
from twinbus.drill.report.picture import draw, tick_seconds
from twinbus.drill.report.summary import figures, summary_of
from twinbus.drill.report.timeline import Timeline

NOW = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)


def summary(*, left: int = 0) -> dict[str, Any]:
    plan, events = stories.plan(), stories.events()
    judgement = judge(plan, events, left)
    scene = stories.scene()
    return summary_of(Performance(plan, scene, judgement, events, stories.BEGUN_MS))


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    page = report.page(summary(), stories.timeline(), NOW)

    reader = read(page)

    assert reader.fetched == []
    assert not reader.tags & {"script", "link", "img", "iframe", "object", "video"}
    without_name = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import", without_name)


def test_a_drill_that_passed_says_so_with_its_figures() -> None:
    found = summary()

    reader = read(report.page(found, stories.timeline(), NOW))

    assert found["ok"], stories.verdict_text()
    assert "Nothing was lost" in reader.text
    assert "passed" in reader.text
    for name, value in figures(found):
        assert name in reader.text
        assert value in reader.text
    for lesson in (*found["saw"], *found["helped"]):
        assert lesson["what"] in reader.text
        assert lesson["text"] in reader.text
    assert found["repeat"] in reader.text
    assert "2030-01-02 03:04 UTC" in reader.text


def test_a_drill_that_failed_says_why() -> None:
    found = summary(left=17)

    reader = read(report.page(found, stories.timeline(), NOW))

    assert "The drill failed" in reader.text
    assert "Messages that were still waiting at the end: 17." in reader.text
    assert "Nothing was lost" not in reader.text


def test_whatever_comes_from_a_drill_is_escaped() -> None:
    found = summary()
    found["sentence"] = found["repeat"] = "<script>alert('&')</script>"
    found["reasons"] = found["notes"] = ["<img src=x>"]

    reader = read(report.page(found, stories.timeline(), NOW))

    assert not reader.tags & {"script", "img"}
    assert "<script>alert('&')</script>" in reader.text


def test_light_and_dark_have_the_same_colours_by_name() -> None:
    style = (Path(report.__file__).parent / "report.css").read_text()
    light, dark = style.split("prefers-color-scheme: dark", 1)
    names = set(re.findall(r"(--[\w-]+):", light))

    assert names == set(re.findall(r"(--[\w-]+):", dark))
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) <= names


# -- the picture ---------------------------------------------------------------------


@pytest.mark.parametrize("width", [960, 360])
def test_everything_is_inside_the_picture(width: int) -> None:
    tree = ET.fromstring(draw(stories.timeline(), width))  # noqa: S314

    check_inside(tree, width)


@pytest.mark.parametrize("width", [960, 360])
def test_the_picture_shows_all_series(width: int) -> None:
    tree = ET.fromstring(draw(stories.timeline(), width))  # noqa: S314

    classes = {name for node in tree.iter() for name in node.get("class", "").split()}
    texts = {node.text for node in tree.iter(f"{SVG}text")}
    wanted = {"accepted", "received", "backlog", "suspect", "over", "healthy", "shade"}
    assert wanted | {"probation", "relapse"} <= classes
    assert {"orders", "rooms", "messages per second", "contact", "manage"} <= texts


@pytest.mark.parametrize("width", [960, 360])
def test_labels_do_not_run_into_each_other(width: int) -> None:
    check_labels(ET.fromstring(draw(stories.timeline(), width)))  # noqa: S314


def test_a_drill_in_which_nothing_happened_can_be_drawn() -> None:
    tree = ET.fromstring(draw(Timeline(1.0), 960))  # noqa: S314

    assert tree.tag == f"{SVG}svg"


@pytest.mark.parametrize(
    ("value", "ceiling"),
    [(0.5, 1), (1, 1), (5, 6), (51, 60), (2250, 3000), (9000, 10000)],
)
def test_axes_end_at_numbers_that_people_like(value: float, ceiling: int) -> None:
    assert nice_ceiling(value) == ceiling


def test_the_marks_of_the_time_axis_have_room() -> None:
    assert tick_seconds(45, 10) == 5
    assert tick_seconds(45, 5) == 10
