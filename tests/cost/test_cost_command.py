"""`twinbus cost prices` and `twinbus cost forecast`, as a user runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import Result, Run, run_main
from twinbus.cost.prices import load_prices

EXAMPLE = (
    *("--entities", 5, "--rate", "100/s", "--size", "2KB", "--backlog-queues", 10),
    *("--syphons", 1, "--senders", 20, "--ping-interval", "1m", "--outage", "2h"),
    *("--outages-per-year", 4),
)


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: object) -> Result:
        return run_main(monkeypatch, capsys, ("cost", *args))

    return call


def test_the_printed_price_book_can_be_used(cost: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(cost("prices").out)

    assert load_prices(mine) == load_prices()
    found = cost("forecast", "--prices", mine, "--json").json
    assert found == cost("forecast", "--json").json


def test_prices_of_a_file_are_used(cost: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    text = cost("prices").out.replace("name: example", "name: ours")
    mine.write_text(text.replace("price_per_month: 10", "price_per_month: 30"))

    idle = ("--rate", "0/s", "--prices", mine)
    shown = cost("forecast", *idle).out

    month = cost("forecast", *idle, "--json").json["periods"]["month"]
    assert month["total"]["money"] == "30.00"
    assert "Prices: ours." in shown
    assert "no service" not in shown


def test_the_tables_fit_80_columns(cost: Run) -> None:
    shown = cost("forecast", *EXAMPLE)

    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "…" not in shown.out
    rows = [line.replace("│", " ").split() for line in shown.out.splitlines()]
    assert ["idle", "960", "28,800", "350,400"] in rows
    assert ["empty", "polls", "28,800", "28,710", "0", "0"] in rows
    assert ["pings", "0", "0", "12,100", "0"] in rows
    assert ["pairing", "adds", "1,452,970", "1,480,810", "6,158,440"] in rows
    assert "holds an outage of 3d49m4s." in shown.out
    assert "diverts 720,000 messages; to drain them takes 12m." in shown.out
    assert "They are the prices of no service" in shown.out


def test_the_keys_of_the_json_stay(cost: Run) -> None:
    found = cost("forecast", *EXAMPLE, "--json").json

    assert list(found) == ["plan", "prices", "currency", "periods", "backlog", "outage"]
    assert list(found["periods"]) == ["day", "month", "year"]
    month = found["periods"]["month"]
    assert list(month) == [
        *("days", "outages", "phases", "total", "unpaired", "pairing_adds"),
    ]
    assert list(month["phases"]) == ["idle", "healthy", "failed_over", "draining"]
    assert month["phases"]["failed_over"] == {
        "operations": 732_100,
        "money": "0.37",
        "stages": {
            "send_to_primary": 0,
            "receive_from_primary": 0,
            "send_to_backlog": 720_000,
            "receive_from_backlog": 0,
            "pings": 12_100,
            "empty_polls": 0,
            "settlements": 0,
        },
    }
    assert month["pairing_adds"] == {"operations": 1_480_810, "money": "0.85"}
    assert found["backlog"] == {"bytes": 50 * 1024**3, "holds_seconds": 262_144.0}
    assert found["outage"] == {
        "diverted_messages": 720_000,
        "pings_per_entity_and_sender": 121,
        "drain_seconds": 720.0,
        "received_again_at_most": 2_376_000,
    }


def test_values_of_an_option_are_compared(cost: Run) -> None:
    compare = ("--compare", "backlog-queues=5,10,20")

    shown = cost("forecast", *EXAMPLE, *compare)
    found = cost("forecast", *EXAMPLE, *compare, "--json").json

    assert max(map(len, shown.out.splitlines())) <= 80
    assert "…" not in shown.out
    assert found["compared"] == "backlog-queues"
    assert [each["value"] for each in found["forecasts"]] == ["5", "10", "20"]
    idle = [each["periods"]["month"]["phases"]["idle"] for each in found["forecasts"]]
    assert [each["operations"] for each in idle] == [14_400, 28_800, 57_600]
    assert "14,400" in shown.out


def test_an_outage_that_is_longer_than_a_day_has_no_figures_there(cost: Run) -> None:
    long = (*EXAMPLE, "--outage", "30h")

    found = cost("forecast", *long, "--json").json["periods"]
    shown = cost("forecast", *long).out

    assert found["day"]["phases"]["failed_over"] is None
    assert found["month"]["phases"]["failed_over"]["operations"] > 0
    assert "day, no outages" in shown


def test_an_outage_that_overflows_the_backlog_is_pointed_out(cost: Run) -> None:
    shown = cost("forecast", *EXAMPLE, "--outage", "4d").out

    assert "An outage of 4d does not fit: sends would fail." in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rate", "fast"), "--rate: 'fast' is not a rate. Write 100/s, 90/m or"),
        (("--size", "2 apples"), "--size: '2 apples' is not a size. Write 500, 2KB"),
        (("--outage", "2"), "--outage: '2' is not a time. Write 90s, 15m, 2h or 7d."),
        (("--entities", "0"), "--entities: '0' is not a whole number from 1 to"),
        (("--syphons", "-1"), "--syphons: '-1' is not a whole number from 0 to"),
        (("--ping-interval", "0s"), "--ping-interval: '0s' is not between 1s and 180"),
        (("--poll", "0s"), "--poll: '0s' is not between 1s and"),
        (("--drain-rate", "0/s"), "--drain-rate: '0/s' would take for ever. Write"),
        (("--outage", "300d", "--outages-per-year", "2"), "longer than a year."),
        (("--compare", "colour=1,2"), "--compare 'colour=1,2': write NAME=VALUE,VALUE"),
        (("--compare", "senders"), "--senders: '' is not a whole number from 1 to"),
        (("--compare", "rate=1/s,x"), "--rate: 'x' is not a rate."),
        (("--compare", "senders=" + "1," * 50 + "1"), "has more than 50 values."),
        (("--prices", "none.yaml"), "none.yaml: cannot be read: No such file"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(
    cost: Run, options: tuple[str, ...], said: str
) -> None:
    refused = cost("forecast", *options)

    assert refused.code == 2
    assert refused.out == ""
    assert said in refused.err
    assert refused.err.count("\n") == 1
