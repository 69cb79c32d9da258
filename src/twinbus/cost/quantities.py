"""Times, rates, sizes and counts, as people write them: 15m, 100/s, 2KB, 10.

Owns one reading for each. Whatever cannot be read is refused in one line with what to
write instead. Knows nothing about what a quantity is for.
"""

from __future__ import annotations

import re
from fractions import Fraction

from twinbus import limits
from twinbus.core.durations import parse_duration
from twinbus.errors import CallerError, ConfigError

_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3}

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_TIME = re.compile(rf"(?:{_NUMBER}[smhd])+")
_TIME_PART = re.compile(rf"({_NUMBER})([smhd])")
_RATE = re.compile(rf"({_NUMBER})/([smhd])")
_SIZE = re.compile(rf"({_NUMBER}) ?([kmg]?b|)")
_COUNT = re.compile(r"[0-9]{1,12}")


def _shown(text: str) -> str:
    return repr(text[: limits.DURATION_TEXT_CHARS_MAX])


def parse_time_ms(text: str) -> int:
    """A time in milliseconds: 90s, 15m, 1h30m, 7d; ISO 8601 (PT15M) is taken, too."""
    if text.startswith("P"):
        try:
            return _bounded_ms(Fraction(parse_duration(text)), text)
        except CallerError as refusal:
            raise ConfigError(refusal.text) from None
    if not _TIME.fullmatch(text):
        raise ConfigError(f"{_shown(text)} is not a time. Write 90s, 15m, 2h or 7d.")
    parts = _TIME_PART.findall(text)
    return _bounded_ms(
        sum((Fraction(number) * _MS[unit] for number, unit in parts), Fraction(0)), text
    )


def _bounded_ms(time_ms: Fraction, text: str) -> int:
    if time_ms > limits.FORECAST_MS_MAX:
        raise ConfigError(f"{_shown(text)} is more than a year. Write 2h, or 7d.")
    return int(time_ms)


def parse_rate(text: str) -> Fraction:
    """Messages in a second: 100/s, 90/m, 5000/h or 3/d."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{_shown(text)} is not a rate. Write 100/s, 90/m or 5000/h.")
    rate = Fraction(found[1]) * 1_000 / _MS[found[2]]
    if rate > limits.FORECAST_RATE_MAX:
        most = limits.FORECAST_RATE_MAX
        raise ConfigError(f"{_shown(text)} is more than {most} messages a second.")
    return rate


def parse_size_bytes(text: str) -> int:
    """The size of a message: 500, 2KB, 1MB. A KB has 1,024 bytes."""
    found = _SIZE.fullmatch(text.lower())
    if found is None:
        raise ConfigError(f"{_shown(text)} is not a size. Write 500, 2KB or 1MB.")
    size_bytes = int(Fraction(found[1]) * _BYTES[found[2]])
    if size_bytes > limits.MESSAGE_KILOBYTES_MAX * 1024:
        most = f"{limits.MESSAGE_KILOBYTES_MAX // 1024}MB"
        raise ConfigError(f"{_shown(text)} is more than a message may have, {most}.")
    return size_bytes


def parse_count(text: str, least: int) -> int:
    """A whole number that is not too large to be meant."""
    most = limits.FORECAST_COUNT_MAX
    if not _COUNT.fullmatch(text) or not least <= int(text) <= most:
        raise ConfigError(
            f"{_shown(text)} is not a whole number from {least} to {most:,}."
        )
    return int(text)
