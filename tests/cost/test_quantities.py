"""Times, rates, sizes and counts: what is read, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from twinbus.cost.quantities import (
    parse_count,
    parse_rate,
    parse_size_bytes,
    parse_time_ms,
)
from twinbus.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("1h30m", 5_400_000),
        ("0.5s", 500),
        ("365d", 365 * 86_400_000),
        ("PT15M", 900_000),
        ("0s", 0),
    ],
)
def test_a_time_is_read(text: str, time_ms: int) -> None:
    assert parse_time_ms(text) == time_ms


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100/s", 100), ("90/m", Fraction(3, 2)), ("0.5/s", Fraction(1, 2)), ("0/d", 0)],
)
def test_a_rate_is_read(text: str, rate: Fraction) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "size"),
    [("500", 500), ("2KB", 2048), ("2 kb", 2048), ("1.5KB", 1536), ("1MB", 1024**2)],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


def _from_one(text: str) -> int:
    return parse_count(text, 1)


@pytest.mark.parametrize(
    ("parse", "text", "advice"),
    [
        (parse_time_ms, "15", "Write 90s, 15m, 2h or 7d."),
        (parse_time_ms, "", "Write 90s, 15m, 2h or 7d."),
        (parse_time_ms, "-1m", "Write 90s, 15m, 2h or 7d."),
        (parse_time_ms, "1h 30m", "Write 90s, 15m, 2h or 7d."),
        (parse_time_ms, "٣m", "Write 90s, 15m, 2h or 7d."),
        (parse_time_ms, "366d", "is more than a year."),
        (parse_time_ms, "P1Y", "Write it as ISO 8601"),
        (parse_rate, "100", "Write 100/s, 90/m or 5000/h."),
        (parse_rate, "-5/s", "Write 100/s, 90/m or 5000/h."),
        (parse_rate, "1e9/s", "Write 100/s, 90/m or 5000/h."),
        (parse_rate, "1000000001/s", "more than 1000000000 messages a second"),
        (parse_size_bytes, "2 apples", "Write 500, 2KB or 1MB."),
        (parse_size_bytes, "1GB", "is more than a message may have"),
        (_from_one, "0", "is not a whole number from 1 to 1,000,000."),
        (_from_one, "1.5", "is not a whole number"),
        (_from_one, "9" * 100, "is not a whole number"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    parse: Callable[[str], object], text: str, advice: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)

    assert advice in refused.value.text
    assert "\n" not in refused.value.text
