"""Descriptions of rules and their form in the store."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from twinbus import errors
from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    SqlFilter,
    SqlRuleAction,
    TrueFilter,
)
from twinbus.core.rule import RuleDescription, default_rule

VALUES: dict[str, object] = {
    "text": "é",
    "true": True,
    "whole": 5,
    "real": 0.5,
    "bytes": b"\x00\xff",
    "uuid": UUID(int=7),
    "time": datetime(2024, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    "span": timedelta(days=-1, microseconds=5),
    "null": None,
}


@pytest.mark.parametrize(
    "rule",
    [
        default_rule(),
        RuleDescription("none", FalseFilter()),
        RuleDescription("sql", SqlFilter("a > @a", VALUES)),
        RuleDescription("all", CorrelationFilter(label="x", properties=VALUES)),
        RuleDescription(
            "act", TrueFilter(), SqlRuleAction("SET a = @a", {"@a": UUID(int=1)})
        ),
    ],
)
def test_rules_survive_the_store(rule: RuleDescription) -> None:
    restored = RuleDescription.from_json(json.loads(json.dumps(rule.to_json())))

    assert restored == rule


def test_a_boolean_stays_a_boolean_and_a_subclass_becomes_plain() -> None:
    class Symbol(str):
        """Stands for a typed value of the wire."""

        __slots__ = ()

    rule = RuleDescription(
        "r", CorrelationFilter(properties={"a": True, "b": Symbol()})
    )

    data = rule.to_json()["filter"]["properties"]

    assert data["a"] is True
    assert type(data["b"]) is str


def test_a_filter_value_that_json_lacks_is_refused() -> None:
    rule = RuleDescription("r", CorrelationFilter(properties={"a": object()}))

    with pytest.raises(errors.ArgumentError, match="'a' has the type object"):
        rule.to_json()


def test_the_default_rule_lets_everything_through() -> None:
    rule = default_rule(created_at_ms=9)

    assert (rule.name, rule.filter, rule.action) == ("$Default", TrueFilter(), None)
    assert rule.created_at_ms == 9
    assert rule == default_rule()
    assert rule.key == "$default"


def test_fields_of_a_later_version_are_ignored() -> None:
    data = RuleDescription("r", CorrelationFilter(label="x")).to_json()
    data["colour"] = "red"
    data["filter"]["colour"] = "red"

    assert RuleDescription.from_json(data) == RuleDescription(
        "r", CorrelationFilter(label="x")
    )


def test_a_filter_of_a_later_version_is_not_skipped() -> None:
    with pytest.raises(errors.StoreFault, match="kind 'regex'"):
        RuleDescription.from_json({"name": "r", "filter": {"kind": "regex"}})


@pytest.mark.parametrize(
    "rule",
    [
        RuleDescription("a/b"),
        RuleDescription("r", SqlFilter("a >")),
        RuleDescription("r", CorrelationFilter(properties={"a": object()})),
        RuleDescription("r", TrueFilter(), SqlRuleAction("SET")),
    ],
)
def test_a_rule_that_cannot_run_is_refused(rule: RuleDescription) -> None:
    with pytest.raises(errors.CallerError):
        rule.validate()


def test_a_rule_that_can_run_is_taken() -> None:
    RuleDescription("r", SqlFilter("a > 1"), SqlRuleAction("SET b = 2")).validate()
