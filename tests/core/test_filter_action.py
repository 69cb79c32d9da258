"""What SQL actions change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.core.plain_view import PlainView
from twinbus import limits
from twinbus.core.filters import Changes, SqlRuleAction, compile_action
from twinbus.errors import FilterError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def act(
    expression: str,
    properties: Mapping[str, object] | None = None,
    system: Mapping[str, object] | None = None,
    parameters: Mapping[str, object] | None = None,
) -> Changes:
    action = compile_action(
        SqlRuleAction(expression, parameters or {}), lambda: UUID(int=7)
    )
    return action.apply(PlainView(properties, system))


def test_the_example_of_the_documentation() -> None:
    text = "SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';"

    changes = act(text, {"quantity": 5, "priority": "high"})

    assert changes == Changes(
        {"CorrelationId": "low"}, {"quantity": 2}, frozenset({"priority"})
    )


@pytest.mark.parametrize(
    "expression",
    [
        "SET a = 1; SET b = 2",
        "SET a = 1 SET b = 2",
        "; set a=1 ;; Set b=2 ;",
        'SET [a] = 1\nSET "b" = 2',
        "SET user.a = 1; SET USER.b = 2",
    ],
)
def test_statements_may_be_written_in_many_ways(expression: str) -> None:
    assert act(expression).properties == {"a": 1, "b": 2}


def test_a_statement_sees_the_ones_before_it() -> None:
    text = "SET a = 1; SET a = a + 1; SET b = a; SET sys.To = 'x'; SET c = sys.To + 'y'"

    changes = act(text, {"a": 5}, {"To": "z"})

    assert changes.properties == {"a": 2, "b": 2, "c": "xy"}
    assert changes.system == {"To": "x"}


def test_an_action_does_not_change_the_message() -> None:
    view = PlainView({"a": 1})
    action = compile_action(SqlRuleAction("SET a = a + 1"))

    first, second = action.apply(view), action.apply(view)

    assert first == second == Changes(properties={"a": 2})


def test_names_ignore_case_and_the_first_spelling_stays() -> None:
    changes = act("SET Priority = 1; SET PRIORITY = priority + 1; REMOVE A; REMOVE a")

    assert changes.properties == {"Priority": 2}
    assert changes.removed == {"A"}


def test_the_last_of_set_and_remove_counts() -> None:
    assert act("SET a = 1; REMOVE A") == Changes(removed=frozenset({"a"}))
    assert act("REMOVE a; SET A = 1; SET b = a") == Changes(properties={"a": 1, "b": 1})
    assert act("REMOVE a; SET b = a", {"a": 1}).properties == {"b": None}


def test_an_unknown_value_is_stored_as_null() -> None:
    assert act("SET a = missing; SET sys.Label = missing") == Changes(
        {"Label": None}, {"a": None}
    )


def test_a_double_stays_a_double() -> None:
    changes = act("SET a = 2; SET b = 2; SET c = 'x'", {"a": 1.5, "b": 1, "c": 1.5})

    assert repr(changes.properties) == "{'a': 2.0, 'b': 2, 'c': 'x'}"


def test_values_of_any_type_can_be_copied() -> None:
    opaque = object()

    changes = act("SET a = b; SET c = @when", {"b": opaque}, None, {"@when": NOON})

    assert changes.properties == {"a": opaque, "c": NOON}


def test_system_properties_are_set_by_any_of_their_names() -> None:
    text = (
        "SET sys.Subject = 'a'; SET sys.messageid = newid(); SET sys.SessionId = 12;"
        "SET sys.TimeToLive = @ttl; SET sys.ScheduledEnqueueTime = @when;"
        "REMOVE sys.ReplyTo"
    )
    parameters = {"@ttl": timedelta(1), "@when": NOON.replace(tzinfo=None)}

    assert act(text, parameters=parameters).system == {
        "Label": "a",
        "MessageId": "00000000-0000-0000-0000-000000000007",
        "SessionId": "12",
        "TimeToLive": timedelta(1),
        "ScheduledEnqueueTimeUtc": NOON,
        "ReplyTo": None,
    }


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("SET sys.MessageId = missing", "cannot be set to null"),
        ("SET sys.Label = 1.5", "cannot be set to this type"),
        ("SET sys.Label = TRUE", "cannot be set to this type"),
        ("SET sys.TimeToLive = 5", "cannot be set to this type"),
        ("SET sys.SessionId = long", "longer than 128 characters"),
        ("SET a = 1 / zero", "divided by zero"),
        ("SET long = long + long;" * 32, "longer than a property"),
        ("SET a = @forever", "does not fit in 64 bits"),
        ("SET sys.TimeToLive = @forever", "does not fit in 64 bits"),
    ],
)
def test_a_wrong_value_fails_the_action(expression: str, reason: str) -> None:
    parameters = {"@forever": timedelta(days=999_999_999)}

    with pytest.raises(FilterError, match=reason):
        act(expression, {"zero": 0, "long": "x" * 129}, parameters=parameters)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "line 1, column 1: found the end, expected ';', REMOVE, SET"),
        ("DROP a", "found 'DROP', expected ';', REMOVE, SET"),
        ("SET a", "column 6: found the end, expected .*'='"),
        ("SET a = b = c", "column 11: found '=', expected .*SET"),
        ("SET a = (b = 1)", "column 10: expected a value"),
        ("SET 1 = 2", "found '1', expected a property"),
        ("REMOVE sys.MessageId", "column 8: 'sys.MessageId' cannot be removed"),
        ("SET sys.SequenceNumber = 1", "column 5: 'sys.SequenceNumber' can only be"),
        ("REMOVE sys.Size", "can only be read"),
        ("SET sys.Nothing = 1", "no system property"),
        ("SET a.b = 1", "no scope"),
        ("REMOVE a;" * (limits.FILTER_EXPRESSIONS_MAX + 1), "more than 32 statements"),
    ],
)
def test_a_bad_text_is_refused_with_its_place(expression: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason):
        compile_action(SqlRuleAction(expression))
