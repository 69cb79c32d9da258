"""Management requests about rules, and the form in which rules are listed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.server.amqp.management_desk import NOW, Desk
from twinbus.core.filters import (
    CorrelationFilter,
    FalseFilter,
    SqlFilter,
    SqlRuleAction,
)
from twinbus.core.rule import RuleDescription
from twinbus.server.amqp.management.rules import write_rule
from twinbus.wire.codec import decode, encode
from twinbus.wire.types import (
    Decimal,
    Described,
    Float32,
    Int,
    Symbol,
    Timestamp,
    ULong,
)

PATH = "events/Subscriptions/all"
ARGUMENT = "com.microsoft:argument-error"


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def adding(name: Any, **description: Any) -> dict[str, Any]:
    described = {key.replace("_", "-"): value for key, value in description.items()}
    return {"rule-name": name, "rule-description": described}


def listing(skip: int = 0, top: int = (1 << 31) - 1) -> dict[str, Any]:
    return {"skip": Int(skip), "top": Int(top)}


def rules_of(desk: Desk) -> dict[str, RuleDescription]:
    rules = desk.subscription.rules
    return {name: rule.description for name, rule in rules.items()}


def test_a_sql_rule_with_an_action_is_added(desk: Desk) -> None:
    body = adding(
        "Big",
        sql_filter={"expression": "amount > 10"},
        sql_rule_action={"expression": "SET seen = 1"},
    )

    assert desk.get("add-rule", body, PATH) == {}

    added = rules_of(desk)["big"]
    wanted = SqlFilter("amount > 10")
    assert added == RuleDescription("Big", wanted, SqlRuleAction("SET seen = 1"))
    assert added.created_at_ms == NOW


def test_a_correlation_rule_is_added_and_survives_a_restart(desk: Desk) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    properties = {
        "text": "x",
        Symbol("symbol"): Symbol("y"),
        "int": Int(5),
        "float": Float32(0.5),
        "flag": True,
        "moment": Timestamp(int(moment.timestamp() * 1000)),
        "uuid": UUID(int=9),
        "bytes": b"z",
    }
    keys = {
        "correlation-id": "c",
        "message-id": "m",
        "to": "t",
        "reply-to": "r",
        "label": "l",
        "session-id": "s",
        "reply-to-session-id": "rs",
        "content-type": "ct",
        "properties": properties,
    }

    body = adding("all-of-it", correlation_filter=keys, sql_rule_action=None)
    desk.get("add-rule", body, PATH)

    desk.namespace.entities.reload()
    subscription = desk.namespace.entities.find(PATH.lower())
    assert subscription is not None
    assert subscription.rules["all-of-it"].description.filter == CorrelationFilter(
        "c",
        "m",
        "t",
        "r",
        "l",
        "s",
        "rs",
        "ct",
        {
            "text": "x",
            "symbol": "y",
            "int": 5,
            "float": 0.5,
            "flag": True,
            "moment": moment,
            "uuid": UUID(int=9),
            "bytes": b"z",
        },
    )


def test_a_rule_that_exists_is_not_added_again(desk: Desk) -> None:
    body = adding("$default", sql_filter={"expression": "1=1"})

    reply = desk.ask("add-rule", body, PATH)

    condition = "com.microsoft:entity-already-exists"
    assert (reply.status, reply.condition) == (409, condition)


def _correlation(**properties: Any) -> dict[str, Any]:
    return adding("r", correlation_filter={"properties": properties})


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (adding(None, sql_filter={"expression": "1=1"}), "'rule-name'"),
        (adding(Int(1), sql_filter={"expression": "1=1"}), "'rule-name'"),
        (adding("a b", sql_filter={"expression": "1=1"}), "a b"),
        ({"rule-name": "r"}, "'rule-description'"),
        ({"rule-name": "r", "rule-description": "x"}, "'rule-description'"),
        (adding("r"), "'sql-filter'"),
        (
            adding("r", sql_filter={"expression": "1=1"}, correlation_filter={}),
            "'sql-filter'",
        ),
        (adding("r", sql_filter="1=1"), "'sql-filter'"),
        (adding("r", sql_filter={}), "'expression'"),
        (adding("r", sql_filter={"expression": Int(1)}), "'expression'"),
        (adding("r", sql_filter={"expression": "a >"}), ""),
        (
            adding("r", sql_filter={"expression": "1=1"}, sql_rule_action={}),
            "'expression'",
        ),
        (adding("r", correlation_filter={"label": Int(1)}), "'label'"),
        (adding("r", correlation_filter={"properties": "x"}), "'properties'"),
        (_correlation(a=[1]), "'properties'"),
        (_correlation(a=None), "'a'"),
        (_correlation(a=Decimal(b"1234")), "'a'"),
        (_correlation(a=Timestamp((1 << 63) - 1)), "'a'"),
        (_correlation(a=Described(Symbol("x"), 1)), "'a'"),
        (_correlation(a=ULong((1 << 64) - 1)), "'a'"),
    ],
)
def test_a_bad_rule_is_refused(desk: Desk, body: dict[str, Any], text: str) -> None:
    reply = desk.ask("add-rule", body, PATH)

    assert (reply.status, reply.condition) == (400, ARGUMENT)
    assert text in reply.description
    assert list(rules_of(desk)) == ["$default"]


def test_a_rule_that_exists_is_refused_in_the_words_of_the_service(desk: Desk) -> None:
    body = adding("$default", sql_filter={"expression": "1=1"})

    reply = desk.ask("add-rule", body, PATH)

    assert reply.status == 409
    assert reply.description.startswith("The messaging entity '")
    assert reply.description.endswith("/Rules/$default' already exists.")


def test_a_rule_is_removed(desk: Desk) -> None:
    assert desk.get("remove-rule", {"rule-name": "$DEFAULT"}, PATH) == {}

    assert rules_of(desk) == {}
    reply = desk.ask("remove-rule", {"rule-name": "$Default"}, PATH)
    assert (reply.status, reply.condition) == (404, "amqp:not-found")
    assert "could not be found" in reply.description
    assert desk.ask("remove-rule", {}, PATH).condition == ARGUMENT
    assert desk.ask("enumerate-rules", listing(), PATH).status == 204


def test_rules_are_listed_in_the_form_that_clients_know(desk: Desk) -> None:
    sql = adding(
        "sql",
        sql_filter={"expression": "a = 1"},
        sql_rule_action={"expression": "SET b = 2"},
    )
    keys = {"message-id": "m", "label": "l", "properties": {"n": Int(5)}}
    desk.get("add-rule", sql, PATH)
    desk.get("add-rule", adding("with-keys", correlation_filter=keys), PATH)

    body = desk.get("enumerate-rules", listing(), PATH)

    created = Timestamp(NOW)
    no_action = Described(0x13700000005, [])
    set_b = Described(0x13700000006, ["SET b = 2", 20])
    fields = [None, "m", None, None, "l", None, None, None, {"n": 5}]
    filters = (
        (Described(0x1370000007, []), no_action, "$Default"),
        (Described(0x1370000006, ["a = 1", 20]), set_b, "sql"),
        (Described(0x1370000009, fields), no_action, "with-keys"),
    )
    assert body == {
        "rules": [
            {"rule-description": Described(0x13700000004, [*parts, created])}
            for parts in filters
        ]
    }
    first = body["rules"][0]["rule-description"]
    assert type(first.descriptor) is ULong
    assert type(first.value[3]) is Timestamp
    second = body["rules"][1]["rule-description"].value[0].value
    assert type(second[1]) is Int


def test_rules_that_came_another_way_can_be_listed_too() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    values: dict[str, object] = {
        "moment": moment,
        "plain": moment.replace(tzinfo=None),
        "span": timedelta(seconds=1),
    }
    for description, wanted in (
        (FalseFilter(), Described(0x1370000008, [])),
        (
            CorrelationFilter(properties=values),
            Described(
                0x1370000009,
                [
                    *[None] * 8,
                    {
                        "moment": 1_767_323_045_678,
                        "plain": 1_767_323_045_678,
                        "span": Described("com.microsoft:timespan", 10_000_000),
                    },
                ],
            ),
        ),
    ):
        written = encode(write_rule(RuleDescription("r", description)))

        assert decode(written)[0].value[0] == wanted


def test_rules_are_listed_by_name_in_pages(desk: Desk) -> None:
    for name in ("d", "B", "a", "c"):
        body = adding(name, sql_filter={"expression": "1=1"})
        desk.get("add-rule", body, PATH)

    page = desk.get("enumerate-rules", listing(skip=1, top=2), PATH)

    found = [entry["rule-description"].value[2] for entry in page["rules"]]
    assert found == ["a", "B"]
    assert desk.ask("enumerate-rules", listing(skip=5), PATH).status == 204


@pytest.mark.parametrize("change", [{"skip": Int(-1)}, {"top": Int(0)}, {"top": "x"}])
def test_a_listing_names_the_key_that_is_wrong(
    desk: Desk, change: dict[str, Any]
) -> None:
    reply = desk.ask("enumerate-rules", listing() | change, PATH)

    assert reply.status == 400
    assert f"'{next(iter(change))}'" in reply.description


@pytest.mark.parametrize("path", ["orders", "events", f"{PATH}/$DeadLetterQueue"])
def test_only_subscriptions_have_rules(desk: Desk, path: str) -> None:
    for operation, body in (
        ("add-rule", adding("r", sql_filter={"expression": "1=1"})),
        ("remove-rule", {"rule-name": "$Default"}),
        ("enumerate-rules", listing()),
    ):
        reply = desk.ask(operation, body, path)
        assert (reply.status, reply.condition) == (400, "amqp:not-allowed")
