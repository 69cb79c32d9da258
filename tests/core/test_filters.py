"""The kinds of filter, and what an action's changes do to properties."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.core.plain_view import PlainView
from twinbus.core.filters import (
    Changes,
    CorrelationFilter,
    FalseFilter,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
    compile_filter,
)
from twinbus.errors import FilterError

ALL_FIELDS = CorrelationFilter(
    correlation_id="c",
    message_id="m",
    to="t",
    reply_to="r",
    label="l",
    session_id="s",
    reply_to_session_id="rs",
    content_type="ct",
    properties={"key": 1},
)
ALL_SYSTEM = {
    "CorrelationId": "c",
    "MessageId": "m",
    "To": "t",
    "ReplyTo": "r",
    "Label": "l",
    "SessionId": "s",
    "ReplyToSessionId": "rs",
    "ContentType": "ct",
}


def correlates(
    wanted: CorrelationFilter,
    properties: Mapping[str, object] | None = None,
    system: Mapping[str, object] | None = None,
) -> bool:
    return compile_filter(wanted).matches(PlainView(properties, system))


def test_a_true_filter_selects_and_a_false_filter_does_not() -> None:
    assert compile_filter(TrueFilter()).matches(PlainView())
    assert not compile_filter(FalseFilter()).matches(PlainView())


def test_descriptions_are_values() -> None:
    assert SqlFilter("a = @a", {"@a": 1}) == SqlFilter("a = @a", {"@a": 1})
    assert len({ALL_FIELDS, ALL_FIELDS, TrueFilter(), TrueFilter()}) == 2
    assert hash(SqlFilter("1=1", {"@a": 1})) == hash(SqlFilter("1=1", {"@a": 1}))
    assert hash(SqlRuleAction("REMOVE a")) == hash(SqlRuleAction("REMOVE a"))


def test_a_correlation_filter_wants_every_condition() -> None:
    assert correlates(ALL_FIELDS, {"key": 1}, ALL_SYSTEM)

    for name in ALL_SYSTEM:
        assert not correlates(ALL_FIELDS, {"key": 1}, ALL_SYSTEM | {name: "other"})
        assert not correlates(ALL_FIELDS, {"key": 1}, ALL_SYSTEM | {name: None})
    assert not correlates(ALL_FIELDS, {"key": 2}, ALL_SYSTEM)
    assert not correlates(ALL_FIELDS, {}, ALL_SYSTEM)


def test_a_correlation_filter_without_conditions_selects_everything() -> None:
    assert correlates(CorrelationFilter())


def test_correlation_names_ignore_case_and_values_do_not() -> None:
    wanted = CorrelationFilter(properties={"Color": "blue"})

    assert correlates(wanted, {"color": "blue"})
    assert not correlates(wanted, {"Color": "Blue"})
    assert not correlates(CorrelationFilter(label="Red"), system={"Label": "red"})


@pytest.mark.parametrize(
    ("wanted", "carried", "same"),
    [
        (2, 2, True),
        (2, 2.0, True),
        (2, "2", False),
        ("2", 2, False),
        (1, True, False),
        (True, True, True),
        (False, None, False),
        (b"\x01", b"\x01", True),
        (UUID(int=1), UUID(int=1), True),
        (timedelta(days=1), timedelta(hours=24), True),
        (datetime(2020, 7, 5), datetime(2020, 7, 5, tzinfo=UTC), True),  # noqa: DTZ001
        (datetime(2020, 7, 5, tzinfo=UTC), datetime(2020, 7, 6, tzinfo=UTC), False),
        ("a", ["a"], False),
    ],
)
def test_correlation_values_are_equal_within_a_type(
    wanted: object, carried: object, *, same: bool
) -> None:
    condition = CorrelationFilter(properties={"key": wanted})

    assert correlates(condition, {"key": carried}) is same


@pytest.mark.parametrize("value", [None, [], {}, object(), 2**63, -(2**63) - 1])
def test_a_correlation_value_that_cannot_be_compared_is_refused(value: object) -> None:
    with pytest.raises(FilterError, match="'key'"):
        compile_filter(CorrelationFilter(properties={"key": value}))


def test_a_correlation_filter_on_system_properties_asks_for_nothing_else() -> None:
    view = PlainView({"key": 1}, {"Label": "red"})
    wanted = CorrelationFilter(label="blue", properties={"key": 1})

    compile_filter(wanted).matches(view)

    assert view.asked == ["sys.Label"]


@pytest.mark.parametrize(
    ("carried", "text"),
    [
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (17, "17"),
        (b"\xab", "ab"),
    ],
)
def test_an_id_of_another_type_is_compared_as_text(carried: object, text: str) -> None:
    system = {"CorrelationId": carried}

    assert correlates(CorrelationFilter(correlation_id=text), system=system)


def test_an_id_that_is_no_id_matches_nothing() -> None:
    system: dict[str, object] = {"CorrelationId": True}

    assert not correlates(CorrelationFilter(correlation_id="True"), system=system)


def test_changes_keep_the_spelling_that_a_property_has() -> None:
    changes = Changes(properties={"Priority": "high", "New": 1}, removed=frozenset("X"))

    merged = changes.merged({"priority": "low", "x": 1, "other": 2})

    assert merged == {"priority": "high", "other": 2, "New": 1}


def test_an_empty_change_changes_nothing() -> None:
    assert Changes().merged({"a": 1}) == {"a": 1}


def test_importing_filters_does_not_load_the_parser() -> None:
    script = (
        "import sys, twinbus.core.filters as f\n"
        "f.compile_filter(f.CorrelationFilter(label='a'))\n"
        "assert 'lark' not in sys.modules\n"
        "f.compile_filter(f.SqlFilter('1=1'))\n"
        "assert 'lark' in sys.modules\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True)
