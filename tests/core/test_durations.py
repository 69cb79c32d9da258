"""Durations: text to milliseconds and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus import errors
from twinbus.core.durations import (
    DURATION_MAX_MS,
    DURATION_MAX_TEXT,
    format_duration,
    parse_duration,
)

CANONICAL = [
    ("PT0S", 0),
    ("PT0.001S", 1),
    ("PT1.5S", 1_500),
    ("PT5S", 5_000),
    ("PT1M", 60_000),
    ("PT1M30S", 90_000),
    ("PT1H", 3_600_000),
    ("PT1H0.25S", 3_600_250),
    ("P1D", 86_400_000),
    ("P7D", 604_800_000),
    ("P1DT2H3M4.005S", 93_784_005),
    (DURATION_MAX_TEXT, DURATION_MAX_MS),
]


@pytest.mark.parametrize(("text", "duration_ms"), CANONICAL)
def test_canonical_text_goes_both_ways(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms
    assert format_duration(duration_ms) == text


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("P0D", 0),
        ("PT60S", 60_000),
        ("PT90M", 5_400_000),
        ("PT0H0M05S", 5_000),
        ("P0DT1H", 3_600_000),
        ("PT0.0019999S", 1),
        ("PT36H", 129_600_000),
    ],
)
def test_other_spellings_are_read(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


def test_the_maximum_of_the_python_client_is_the_maximum() -> None:
    assert parse_duration("P10675199DT2H48M5.477539S") == DURATION_MAX_MS


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("P10675199DT2H48M5.476S", True),
        ("P10675199DT2H48M5.477S", True),
        ("P10675199DT2H48M5.478S", False),
        ("P99999999999999D", False),
    ],
)
def test_nothing_is_longer_than_the_maximum(text: str, fits: bool) -> None:
    if fits:
        assert parse_duration(text) <= DURATION_MAX_MS
    else:
        with pytest.raises(errors.ArgumentOutOfRange, match="longer than"):
            parse_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1M",
        "PT1",
        "-PT1S",
        "PT-1S",
        "PT1.S",
        "PT.5S",
        "PT1,5S",
        "PT1.5M",
        "P1Y",
        "P1M",
        "P1W",
        "PT1S ",
        "PT1S\n",
        "pt1s",
        "PT1e3S",
        "PT１S",  # noqa: RUF001 - a digit of another script
        "PT1M1H",
        "00:01:00",
        "P" + "0" * 63 + "D",
    ],
)
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(errors.ArgumentError, match="ISO 8601"):
        parse_duration(text)


def test_the_longest_text_is_read() -> None:
    assert parse_duration("P" + "0" * 62 + "D") == 0


@given(st.integers(min_value=0, max_value=DURATION_MAX_MS))
def test_every_duration_survives_its_text(duration_ms: int) -> None:
    assert parse_duration(format_duration(duration_ms)) == duration_ms
