"""A configuration file and what exists: made, changed, left alone, refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from twinbus.clock import Now
from twinbus.core.names import EntityPath
from twinbus.errors import ConfigError
from twinbus.server.broker.directory import keys
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.directory.provision import provision
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.server.setup.config import parse_config
from twinbus.store.opening import open_store

NOW_MS = 1_700_000_000_000


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    namespace = Namespace("contoso", open_store(None))
    namespace.store.begin()
    yield namespace
    namespace.store.rollback()
    namespace.store.close()


def config(text: str) -> NamespaceConfig:
    (read,) = parse_config(f"namespaces: [{{name: contoso, {text}}}]", "test.yaml")
    return read


def entity_names(namespace: Namespace) -> set[str]:
    return {entity.name for entity in namespace.entities}


FULL = """
    queues: [{name: orders, forward_to: events}, {name: other}],
    topics: [{name: events, subscriptions: [
        {name: all},
        {name: big, forward_to: other, rules: [{name: r, filter: {sql: 'a > 1'}}]}]}],
    authorization_rules: [{name: reader, rights: [Listen], primary_key: abc}]
"""


def test_everything_in_the_file_is_made(namespace: Namespace) -> None:
    provision(namespace, config(FULL), Turn(Now.at(NOW_MS)))

    assert entity_names(namespace) == {
        "orders",
        "other",
        "events",
        "events/Subscriptions/all",
        "events/Subscriptions/big",
    }
    # Forwarding was set although its target stands further down.
    assert namespace.entities.get(EntityPath("orders")).forward_key == "events"
    rules = namespace.entities.get(EntityPath("events", "big")).rules
    assert list(rules) == ["r"]
    assert [rule.name for rule in keys.load_rules(namespace.store)] == ["reader"]


def test_applying_twice_changes_nothing(namespace: Namespace) -> None:
    provision(namespace, config(FULL), Turn(Now.at(NOW_MS)))
    before = namespace.store.entities()

    provision(namespace, config(FULL), Turn(Now.at(NOW_MS + 1000)))

    assert namespace.store.entities() == before


def test_only_settings_that_differ_are_changed(
    namespace: Namespace,
) -> None:
    provision(namespace, config(FULL), Turn(Now.at(NOW_MS)))
    provision(
        namespace,
        config("queues: [{name: other, lock_duration: PT7S}]"),
        Turn(Now.at(NOW_MS + 1)),
    )

    assert namespace.entities.get(EntityPath("other")).lock_ms == 7000
    assert len(namespace.entities) == 5


def test_rules_of_a_known_subscription_are_added_and_changed(
    namespace: Namespace,
) -> None:
    provision(namespace, config(FULL), Turn(Now.at(NOW_MS)))
    text = """topics: [{name: events, subscriptions: [{name: big, rules: [
        {name: r, filter: {sql: 'a > 2'}}, {name: s, filter: {'false': {}}}]}]}]"""

    provision(namespace, config(text), Turn(Now.at(NOW_MS + 1)))

    rules = namespace.entities.get(EntityPath("events", "big")).rules
    assert list(rules) == ["r", "s"]
    assert rules["r"].description.created_at_ms == NOW_MS
    assert getattr(rules["r"].description.filter, "expression", "") == "a > 2"


def test_a_rule_that_a_client_added_survives(namespace: Namespace) -> None:
    provision(namespace, config(FULL), Turn(Now.at(NOW_MS)))
    subscription = namespace.entities.get(EntityPath("events", "all"))
    (read,) = config(
        "topics: [{name: t, subscriptions: [{name: s, rules: [{name: mine}]}]}]"
    ).topics
    mine = read.subscriptions[0].rules[0]
    namespace.entities.add_rule(subscription, mine, NOW_MS)

    provision(namespace, config(FULL), Turn(Now.at(NOW_MS + 1)))

    assert sorted(subscription.rules) == ["$default", "mine"]


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            "queues: [{name: a}]",
            "queues: [{name: a, requires_session: true}]",
            "requires_session of 'a' cannot be changed",
        ),
        ("queues: [{name: a}]", "topics: [{name: a}]", "'a'"),
        (
            "queues: [{name: a}]",
            "topics: [{name: a, subscriptions: [{name: s}]}]",
            "is a queue",
        ),
        ("", "queues: [{name: a, forward_to: nowhere}]", "nowhere"),
    ],
)
def test_an_impossible_change_is_refused_with_the_name(
    namespace: Namespace, before: str, after: str, problem: str
) -> None:
    provision(namespace, config(before or "queues: []"), Turn(Now.at(NOW_MS)))

    with pytest.raises(ConfigError, match=problem):
        provision(namespace, config(after), Turn(Now.at(NOW_MS)))
