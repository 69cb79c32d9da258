"""`$filter` of a list in the administration API.

Owns what may be written, which is what the old .NET `NamespaceManager` documents:

    startswith(path, 'orders') eq true
    messageCount gt 0 and updatedAt lt 2024-05-01T00:00:00Z

Conditions are joined by `and` alone. Words are known in any case, as names are. What is
anything else is refused with the place where reading stopped, never guessed at. The
reader goes over the text once, and both its length and its conditions are bounded.
Knows nothing about where the values come from.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from twinbus import limits
from twinbus.errors import ArgumentError, ArgumentOutOfRange


@dataclass(frozen=True, slots=True)
class Facts:
    """What a filter can ask about an entity. Counting is work, so it is done late."""

    path: str
    created_ms: int
    updated_ms: int
    accessed_ms: Callable[[], int]
    message_count: Callable[[], int]


Filter = Callable[[Facts], bool]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
_TIMES: dict[str, Callable[[Facts], int]] = {
    "createdat": lambda facts: facts.created_ms,
    "updatedat": lambda facts: facts.updated_ms,
    "modifiedat": lambda facts: facts.updated_ms,
    "accessedat": lambda facts: facts.accessed_ms(),
}
_WORDS = "path, messageCount, createdAt, updatedAt (or modifiedAt) and accessedAt"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT = r"'((?:[^']|'')*)'"
_STARTS = re.compile(
    rf"\s*startswith\s*\(\s*path\s*,\s*{_TEXT}\s*\)(?:\s+eq\s+(true|false)\b)?",
    re.IGNORECASE,
)
_COMPARE = re.compile(
    rf"\s*([a-z]+)\s+(eq|ne|gt|ge|lt|le)\s+(?:(?:datetime)?{_TEXT}|([0-9TZ:.+-]+))",
    re.IGNORECASE,
)
_AND = re.compile(r"\s+and\b", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,18}")


def parse_filter(text: str, *, has_path: bool) -> Filter:
    """Read a filter; `has_path` is False where entities are not listed by paths."""
    if len(text) > limits.FILTER_CHARS_MAX:
        raise ArgumentOutOfRange(
            f"$filter has {len(text)} characters; at most {limits.FILTER_CHARS_MAX} "
            "are allowed."
        )
    conditions: list[Filter] = []
    at = 0
    while True:
        condition, at = _condition(text, at, has_path)
        conditions.append(condition)
        if not text[at:].strip():
            break
        joined = _AND.match(text, at)
        if joined is None:
            raise _stopped(text, at, "Join conditions with 'and'.")
        at = joined.end()
    if len(conditions) > limits.FILTER_EXPRESSIONS_MAX:
        raise ArgumentOutOfRange(
            f"$filter has {len(conditions)} conditions; at most "
            f"{limits.FILTER_EXPRESSIONS_MAX} are allowed."
        )
    return lambda facts: all(condition(facts) for condition in conditions)


def _condition(text: str, at: int, has_path: bool) -> tuple[Filter, int]:
    starts = _STARTS.match(text, at)
    if starts is not None:
        if not has_path:
            raise _stopped(text, at, "startswith is for queues and topics.")
        return _prefix(starts), starts.end()
    compare = _COMPARE.match(text, at)
    if compare is None:
        raise _stopped(
            text, at, "Use startswith(path, 'text') eq true, or a comparison."
        )
    name = compare[1].lower()
    compares = _OPERATORS[compare[2].lower()]
    quoted, plain = compare[3], compare[4]
    given = plain if quoted is None else quoted.replace("''", "'")
    if name in _TIMES:
        return _time(_TIMES[name], compares, given), compare.end()
    if name == "messagecount":
        if quoted is not None or not _DIGITS.fullmatch(given):
            raise _stopped(text, at, "messageCount is compared with a whole number.")
        count = int(given)
        return lambda facts: compares(facts.message_count(), count), compare.end()
    if name != "path" or not has_path:
        raise _stopped(text, at, f"'{compare[1]}' is not known; {_WORDS} are.")
    if quoted is None or compares not in (operator.eq, operator.ne):
        raise _stopped(text, at, "path is compared by eq or ne with a 'text'.")
    wanted = _path(given)
    return lambda facts: compares(_path(facts.path), wanted), compare.end()


def _prefix(found: re.Match[str]) -> Filter:
    prefix = _path(found[1].replace("''", "'"))
    wanted = (found[2] or "true").lower() == "true"
    return lambda facts: _path(facts.path).startswith(prefix) is wanted


def _path(text: str) -> str:
    return text.removeprefix("/").lower()


def _time(
    read: Callable[[Facts], int], compares: Callable[[Any, Any], bool], given: str
) -> Filter:
    try:
        moment = datetime.fromisoformat(given)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        value_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        raise ArgumentError(
            f"$filter: '{given}' is no time. Write it as 2024-05-01T12:00:00Z."
        ) from None
    return lambda facts: compares(read(facts), value_ms)


def _stopped(text: str, at: int, hint: str) -> ArgumentError:
    rest = text[at:].strip()
    where = f"at '{rest[:40]}'" if rest else "at its end"
    return ArgumentError(f"$filter cannot be read {where}. {hint}")
