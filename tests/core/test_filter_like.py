"""LIKE: the same answers as the obvious slow matcher, in linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.plain_view import truth
from twinbus.core.filter_like import LikePattern


def slow_like(pattern: str, text: str) -> bool:
    """Match by the definition: a table of which prefixes match which."""
    row = [True] + [False] * len(text)
    for character in pattern:
        above, row = row, [row[0] and character == "%"] + [False] * len(text)
        for place in range(1, len(text) + 1):
            if character == "%":
                row[place] = row[place - 1] or above[place]
            elif character in ("_", text[place - 1]):
                row[place] = above[place - 1]
    return row[-1]


def steps(pattern: str, text: str) -> tuple[bool, int]:
    spent: list[int] = []
    answer = LikePattern(pattern).matches(text, spent.append)
    return answer, sum(spent)


@given(st.text("ab_%", max_size=12), st.text("ab", max_size=24))
def test_like_agrees_with_its_definition(pattern: str, text: str) -> None:
    assert steps(pattern, text)[0] is slow_like(pattern, text)


@given(st.data())
def test_a_pattern_made_from_a_text_matches_it(data: st.DataObject) -> None:
    text = data.draw(st.text(max_size=30))
    kinds = data.draw(
        st.lists(st.sampled_from("=_%"), min_size=len(text), max_size=len(text))
    )
    pattern = "".join(
        {"=": f"!{character}", "_": "_", "%": "%"}[kind]
        for kind, character in zip(kinds, text, strict=True)
    )

    assert LikePattern(pattern, "!").matches(text, lambda _: None)


@pytest.mark.parametrize(
    ("pattern", "text", "answer"),
    [
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("%%", "anything", True),
        ("_", "", False),
        ("_", "é", True),
        ("a%", "a", True),
        ("a%a", "a", False),
        ("%_a_%", "xay", True),
        ("%_a_%", "ay", False),
        ("%a_c%", "xxabcxx", True),
        ("%a_c%", "a", False),
        ("%__%", "a", False),
        ("a.c", "abc", False),
        ("%\n%", "line\nline", True),
    ],
)
def test_like_by_example(pattern: str, text: str, *, answer: bool) -> None:
    assert steps(pattern, text)[0] is answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        (r"text LIKE 'ABC\%' ESCAPE '\'", True),
        (r"text LIKE 'ABC\_' ESCAPE '\'", False),
        ("text LIKE '!A!B!C!%' ESCAPE '!'", True),
        ("text LIKE 'ABC%%' ESCAPE '%'", True),
        ("text NOT LIKE 'ABC_'", False),
        ("text LIKE pattern ESCAPE '!'", True),
        ("text LIKE @p", True),
    ],
)
def test_an_escaped_character_is_plain(expression: str, *, answer: bool) -> None:
    properties = {"text": "ABC%", "pattern": "%!%"}

    assert truth(expression, properties, {"@p": "A%"}) is answer


@pytest.mark.parametrize(
    "pattern",
    [
        "%" * 1024,
        "%a" * 511 + "b",
        "%" + "a" * 1000 + "b",
        "%" + "a_" * 500 + "b%",
        "%" + "_" * 1000 + "b%",
        "%a_a%" * 170 + "b%",
        "_%" * 500 + "b%",
    ],
)
def test_no_pattern_costs_more_than_the_text_is_long(pattern: str) -> None:
    text = "a" * 30_000

    _, spent = steps(pattern, text)

    assert spent <= len(text) + 4 * len(pattern)
