"""The page of a report stands alone, and is drawn for two widths."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.pages import check_inside, check_labels, read
from twinbus.cost.forecast import STAGES
from twinbus.cost.page import page as page_module
from twinbus.cost.page import pictures
from twinbus.cost.page.page import page

NOW = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
BEGUN = 1_794_700_800
RATES = ("sent", "received", "home", "failed", "busy", "diverted", "drained", "pings")


def rates(at: int, **counts: int) -> dict[str, Any]:
    return {"at": at, "primary": "contoso", **dict.fromkeys(RATES, 0), **counts}


def outage(**others: Any) -> dict[str, Any]:
    return {
        "primary": "contoso",
        "start": "2026-11-15T10:05:10Z",
        "end": "2026-11-15T10:35:20Z",
        "inferred": False,
        "open": False,
        "entities": ["orders", "rooms"],
        "senders": 3,
        "diverted_messages": 300,
        "diverted_bytes": 30_000,
        "drain_minutes": 9,
        "duplicates": 1,
        "longest_gap_minutes": 1,
        "added_operations": 612,
        "cost": "0.000490",
        **others,
    }


def sample(**others: Any) -> dict[str, Any]:
    days = [
        {
            "day": f"2026-11-{day}",
            "stage": stage,
            "operation": "send",
            "outcome": "accepted",
            "operations": 1000 * day,
            "messages": 1000,
            "bytes_in": 10_000,
            "bytes_out": 0,
            "gap_minutes": 0,
            "cost": 0.01 * day,
        }
        for day in range(15, 18)
        for stage in STAGES
    ]
    minute = BEGUN + 10 * 3600
    around = [
        *(rates(minute + n * 60, diverted=10) for n in range(5, 35)),
        *(rates(minute + n * 60, drained=60) for n in range(36, 41)),
    ]
    values = {
        "from": "2026-11-15",
        "to": "2026-11-17",
        "prices": "example",
        "currency": "EUR",
        "namespaces": ["contoso"],
        "bill": {"total": "1.23", "operations": 4567, "lines": {"base": "0.33"}},
        "days": days,
        "entities": [
            {
                "label": "contoso",
                "entity": "orders",
                "stage": STAGES[0],
                "operation": "send",
                "outcome": "busy",
                "operations": 17,
                "bytes_in": 5,
                "bytes_out": 6,
            }
        ],
        "outages": [outage(), outage(inferred=True, drain_minutes=None)],
        "step_minutes": 10,
        "rates": [rates(BEGUN + n * 600, sent=n, received=n) for n in range(432)],
        "around": {"0": around},
        "bad_files": [],
    }
    return {**values, **others}


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    text = page(sample(), NOW)

    reader = read(text)

    assert reader.fetched == []
    assert not reader.tags & {"script", "link", "img", "iframe", "object", "video"}
    without_name = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import", without_name)


def test_the_page_has_the_figures_of_the_report() -> None:
    text = read(page(sample(), NOW)).text

    for said in ("1.23", "4,567", "inferred", "events", "612", "0.0005", "9 min"):
        assert said in text
    assert "2030-01-02 03:04 UTC" in text


def test_files_that_were_left_out_are_on_the_page() -> None:
    bad = {"path": "day=1/<b>.parquet", "kind": "newer", "reason": "its version is 2"}

    reader = read(page(sample(bad_files=[bad]), NOW))

    assert "day=1/<b>.parquet" in reader.text
    assert "its version is 2" in reader.text


def test_what_comes_from_a_ledger_is_escaped() -> None:
    name = "<script>alert(1)</script>"
    report = sample(outages=[outage(primary=name, entities=[name])])
    report["entities"][0]["entity"] = name

    reader = read(page(report, NOW))

    assert "script" not in reader.tags
    assert name in reader.text


def test_a_report_without_rows_has_a_page() -> None:
    empty: dict[str, Any] = {"from": None, "to": None, "outages": [], "bad_files": []}

    assert "There are no rows" in read(page(empty, NOW)).text


def test_light_and_dark_have_the_same_colours_by_name() -> None:
    style = Path(page_module.__file__).with_name("page.css").read_text()
    light, dark = style.split("prefers-color-scheme: dark", 1)
    names = set(re.findall(r"(--[\w-]+):", light))

    assert names == set(re.findall(r"(--[\w-]+):", dark))
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) <= names


def drawings(width: int) -> dict[str, str]:
    report = sample()
    days = {f"2026-{month:02d}-{day:02d}": day for month in (1, 12) for day in (1, 31)}
    return {
        "calendar": pictures.calendar(days, {"2026-01-31": 2}, width),
        "rates": pictures.rates(report, width),
        "costs": pictures.costs(report, STAGES, width),
        "backlog": pictures.backlog(outage(), report["around"]["0"], width),
    }


@pytest.mark.parametrize("width", [640, 340])
@pytest.mark.parametrize("name", ["calendar", "rates", "costs", "backlog"])
def test_everything_is_inside_the_picture(name: str, width: int) -> None:
    tree = ET.fromstring(drawings(width)[name])  # noqa: S314

    check_inside(tree, width)


@pytest.mark.parametrize("width", [640, 340])
@pytest.mark.parametrize("name", ["calendar", "rates", "costs", "backlog"])
def test_labels_do_not_run_into_each_other(name: str, width: int) -> None:
    check_labels(ET.fromstring(drawings(width)[name]))  # noqa: S314


def test_the_backlog_is_as_deep_as_what_was_diverted_and_drained() -> None:
    text = read(page(sample(), NOW)).text

    assert re.search(r"most in the backlog\s+300", text)
