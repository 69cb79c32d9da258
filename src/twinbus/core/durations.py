"""Durations as text and as whole milliseconds.

Owns the one reading and the one writing of ISO 8601 durations (`PT1M30S`). Inside the
server a duration is an integer of milliseconds; text exists only at the edges. Years
and months are refused, because their length depends on the calendar.
Knows nothing about what a duration is used for, or which values a field allows.
"""

from __future__ import annotations

import re

from twinbus import errors, limits

# The longest time span of .NET, which the real service uses to say "never".
DURATION_MAX_MS = 922_337_203_685_477
DURATION_MAX_TEXT = "P10675199DT2H48M5.4775807S"


_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
_SECOND_MS = 1_000

_PATTERN = re.compile(
    r"P(?:(?P<days>[0-9]+)D)?"
    r"(?P<time>T(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?"
    r"(?:(?P<seconds>[0-9]+)(?:\.(?P<fraction>[0-9]+))?S)?)?"
)


def parse_duration(text: str) -> int:
    """Read an ISO 8601 duration as milliseconds; what is finer is cut off.

    Raises `ArgumentError` for any other text, `ArgumentOutOfRange` above the maximum.
    """
    match = (
        _PATTERN.fullmatch(text)
        if len(text) <= limits.DURATION_TEXT_CHARS_MAX
        else None
    )
    if match is None or text.endswith(("P", "T")):
        raise errors.ArgumentError(
            f"'{text[: limits.DURATION_TEXT_CHARS_MAX]}' is not a duration. "
            "Write it as ISO 8601, for example PT30S, PT1H or P7D."
        )
    part = match.groupdict(default="0")
    total_ms = (
        int(part["days"]) * _DAY_MS
        + int(part["hours"]) * _HOUR_MS
        + int(part["minutes"]) * _MINUTE_MS
        + int(part["seconds"]) * _SECOND_MS
        + int(part["fraction"].ljust(3, "0")[:3])
    )
    if total_ms > DURATION_MAX_MS:
        raise errors.ArgumentOutOfRange(
            f"The duration '{text}' is longer than {DURATION_MAX_TEXT}."
        )
    return total_ms


def format_duration(duration_ms: int) -> str:
    """Write milliseconds as the shortest ISO 8601 text; the maximum keeps its own."""
    assert duration_ms >= 0
    if duration_ms >= DURATION_MAX_MS:
        return DURATION_MAX_TEXT
    days, rest_ms = divmod(duration_ms, _DAY_MS)
    hours, rest_ms = divmod(rest_ms, _HOUR_MS)
    minutes, rest_ms = divmod(rest_ms, _MINUTE_MS)
    seconds, fraction_ms = divmod(rest_ms, _SECOND_MS)
    time = f"{hours}H" if hours else ""
    time += f"{minutes}M" if minutes else ""
    if fraction_ms:
        time += f"{seconds}." + f"{fraction_ms:03d}".rstrip("0") + "S"
    elif seconds or not (days or time):
        time += f"{seconds}S"
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")
