"""Filters from strangers: any text compiles or is refused, and every run ends.

The oracle is the header of `filters.py`: nothing but `FilterError` leaves it. Random
filters that are valid must also stay under the step budget on ordinary messages.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.plain_view import PlainView
from twinbus import limits
from twinbus.core.filters import (
    SqlFilter,
    SqlRuleAction,
    compile_action,
    compile_filter,
)
from twinbus.errors import FilterError

PARAMETERS = {
    "@n": 3,
    "@d": 2.5,
    "@s": "a%",
    "@t": datetime(2024, 1, 1, tzinfo=UTC),
    "@p": timedelta(minutes=1),
}
WORDS = [
    *"abcnp",
    *"()=<>+-*/%,.;[]'\"@!_\\ \n",
    *("0", "1", "12.5", "1e3", "'a'", "'%a_'", "[a b]", '"c"', "@n", "@s", "@t"),
    *("AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS", "TRUE"),
    *(
        "SET",
        "REMOVE",
        "sys",
        "user",
        "Label",
        "newid",
        "property",
        "é",
        "\x00",
        "\ud800",
    ),
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=4),
    st.uuids(),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
    st.timedeltas(),
    st.lists(st.none(), max_size=1),
)
MESSAGES = st.builds(
    PlainView,
    st.dictionaries(st.sampled_from("abcnp"), VALUES),
    st.dictionaries(st.sampled_from(["Label", "MessageId", "SequenceNumber"]), VALUES),
)


def run(text: str, view: PlainView) -> None:
    """Compile and run a text both ways; a refusal or a failure is an answer too."""
    tries: list[Callable[[], object]] = [
        lambda: compile_filter(SqlFilter(text, PARAMETERS)).matches(view),
        lambda: compile_action(SqlRuleAction(text, PARAMETERS)).apply(view),
    ]
    for attempt in tries:
        try:
            attempt()
        except FilterError as error:
            assert error.text  # noqa: PT017


@given(st.text(max_size=60), MESSAGES)
def test_any_text_compiles_or_is_refused(text: str, view: PlainView) -> None:
    run(text, view)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(WORDS), max_size=25), MESSAGES, st.booleans())
@example(["("] * 25, PlainView(), True)
def test_any_words_compile_or_are_refused(
    words: list[str], view: PlainView, spaced: bool
) -> None:
    run((" " if spaced else "").join(words), view)


# -- valid filters -----------------------------------------------------------------


COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")


class Writer:
    """Writes random filters that the grammar allows."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tests = 0

    def filter(self) -> str:
        """Write a filter within the bounds."""
        while True:
            self._tests = 0
            text = self._condition(0)
            if len(text) <= limits.FILTER_CHARS_MAX and self._tests <= 32:
                return text

    def message(self) -> PlainView:
        """Make a message with texts up to 4 KiB, some of them nasty to search."""
        choose = self._random.choice
        texts = [choose("abc%_") * self._random.randrange(4096) for _ in range(3)]
        values = [*texts, 0, 7, -1.5, True, None, UUID(int=3), PARAMETERS["@t"]]
        return PlainView(
            {name: choose(values) for name in "abcnp" if choose((True, False))},
            {"Label": choose(texts), "MessageId": "m", "SequenceNumber": 5},
        )

    def _condition(self, depth: int) -> str:
        kind = self._random.randrange(10 if depth < 6 else 6)
        if kind >= 6:
            left, right = self._condition(depth + 1), self._condition(depth + 1)
            word = self._random.choice(("AND", "OR"))
            return f"({left} {word} {right})" if kind < 9 else f"NOT ({left})"
        self._tests += 1
        negation = self._random.choice(("", "NOT "))
        value, other = self._value(depth), self._value(depth)
        return (
            f"{value} {self._random.choice(COMPARISONS)} {other}",
            f"{value} {negation}LIKE '{self._pattern()}'",
            f"{value} {negation}LIKE '{self._pattern()}' ESCAPE '!'",
            f"{value} {negation}IN ({other}, {self._value(depth)})",
            f"{self._property()} IS {negation}NULL",
            f"EXISTS ({self._property()})",
        )[kind]

    def _value(self, depth: int) -> str:
        kind = self._random.randrange(8 if depth < 8 else 3)
        if kind >= 5:
            sign = self._random.choice("+-*/%")
            return f"({self._value(depth + 2)} {sign} {self._value(depth + 2)})"
        return (
            self._property(),
            self._random.choice(("1", "0", "2.5", "'a'", "'it''s'", "TRUE", "NULL")),
            self._random.choice(list(PARAMETERS)),
            f"-{self._property()}",
            self._random.choice(("newid()", "p('a')", f"p({self._property()})")),
        )[kind]

    def _property(self) -> str:
        names = ("a", "user.b", "[c]", '"n"', "missing", "sys.Label", "SYS.MessageId")
        return self._random.choice(names)

    def _pattern(self) -> str:
        length = self._random.randrange(20)
        return "".join(self._random.choice("%%__abc") for _ in range(length))


def check_valid_filters(seed: int, count: int) -> None:
    """Write filters and run each on some messages; print the seed that fails."""
    for number in range(seed, seed + count):
        writer = Writer(number)
        text = writer.filter()
        condition = compile_filter(SqlFilter(text, PARAMETERS))
        for _ in range(5):
            try:
                condition.matches(writer.message())
            except FilterError as error:
                assert "steps" not in error.text, (number, text)  # noqa: PT017


def test_valid_filters_compile_and_stay_under_the_step_budget() -> None:
    check_valid_filters(0, 300)


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_many_valid_filters_stay_under_the_step_budget() -> None:
    count = int(os.environ.get("TWINBUS_FILTER_COUNT", "50000"))

    check_valid_filters(1_000_000, count)
