"""The page about the state machine is the table's."""

from __future__ import annotations

from tests.pairing.rules.policy_chart import PAGE, page


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text() == page(), "Run: python -m tests.pairing.rules.policy_chart"
