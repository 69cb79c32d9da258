"""The guide's table of failures is the code's."""

from __future__ import annotations

from tests.pairing.rules.classification_table import END, PAGE, START, page


def test_the_guide_has_the_table_of_the_code() -> None:
    text = PAGE.read_text()

    assert text.count(START) == text.count(END) == 1
    assert text == page(text), "Run: python -m tests.pairing.rules.classification_table"
