"""Entities: one path in, the store as the truth, objects that links can hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinbus.clock import Now
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.filters import SqlFilter
from twinbus.core.names import parse_address
from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.rule import RuleDescription
from twinbus.core.sas import Secret
from twinbus.errors import CallerError, EntityExists, EntityNotFound
from twinbus.server.broker.directory.entities import Entities
from twinbus.server.broker.directory.entity import Entity
from twinbus.server.broker.turn import Turn
from twinbus.store.opening import open_store


@pytest.fixture
def entities() -> Entities:
    store = open_store(None)
    store.begin()
    return Entities(store)


def test_a_name_is_taken_once_by_queue_or_topic(entities: Entities) -> None:
    entities.create(QueueDescription("Orders"), 1)

    for description in (QueueDescription("orders"), TopicDescription("ORDERS")):
        with pytest.raises(EntityExists):
            entities.create(description, 2)


def test_a_subscription_is_born_with_the_default_rule(entities: Entities) -> None:
    entities.create(TopicDescription("t"), 1)

    subscription = entities.create(SubscriptionDescription("t", "s"), 1)

    assert list(subscription.rules) == ["$default"]


def test_a_subscription_needs_its_topic(entities: Entities) -> None:
    with pytest.raises(EntityNotFound):
        entities.create(SubscriptionDescription("t", "s"), 1)


def test_a_topic_goes_with_its_subscriptions(entities: Entities) -> None:
    entities.create(TopicDescription("t"), 1)
    entities.create(SubscriptionDescription("t", "s"), 1)

    entities.delete(parse_address("t"), Turn(Now.at(0)))

    assert len(entities) == 0


def test_forwarding_leads_to_an_entity_that_exists(entities: Entities) -> None:
    with pytest.raises(EntityNotFound):
        entities.create(QueueDescription("q", forward_to="nowhere"), 1)
    own = "sb://host/Q"
    q = QueueDescription("q", forward_to=own, forward_dead_lettered_messages_to=own)
    assert entities.create(q, 1).forward_key == "q"


def test_settings_fixed_at_creation_cannot_be_changed(entities: Entities) -> None:
    queue = entities.create(QueueDescription("q"), 1)
    assert isinstance(queue.description, QueueDescription)

    with pytest.raises(CallerError):
        entities.update(
            replace(queue.description, requires_session=True), Turn(Now.at(2))
        )


def test_a_reload_keeps_objects_and_reads_their_descriptions(
    entities: Entities,
) -> None:
    entities.create(TopicDescription("t"), 1)
    subscription = entities.create(SubscriptionDescription("t", "s"), 1)
    entities.add_rule(subscription, RuleDescription("r", SqlFilter("a = 1")), 2)
    queue = entities.create(QueueDescription("q", max_delivery_count=3), 1)
    queue.description = QueueDescription("q", max_delivery_count=9)

    entities.reload()

    assert entities.find("q") is queue
    assert getattr(queue.description, "max_delivery_count", 0) == 3
    assert entities.find("t/subscriptions/s") is subscription
    assert sorted(subscription.rules) == ["$default", "r"]
    topic = entities.find("t")
    assert topic is not None
    assert topic.subscriptions == {"s": subscription}


def test_a_reload_drops_rolled_back_entities() -> None:
    store = open_store(None)
    store.begin()
    entities = Entities(store)
    entities.create(QueueDescription("kept"), 1)
    store.commit()
    store.begin()
    entities.create(QueueDescription("undone"), 1)

    store.rollback()
    entities.reload()

    assert [entity.key for entity in entities] == ["kept"]


def test_rules_come_and_go(entities: Entities) -> None:
    entities.create(TopicDescription("t"), 1)
    subscription = entities.create(SubscriptionDescription("t", "s"), 1)
    entities.add_rule(subscription, RuleDescription("Mine", SqlFilter("a = 1")), 2)

    with pytest.raises(EntityExists):
        entities.add_rule(subscription, RuleDescription("MINE"), 2)
    entities.replace_rule(subscription, RuleDescription("mine"), 3)
    entities.remove_rule(subscription, "MINE", 4)
    with pytest.raises(EntityNotFound):
        entities.remove_rule(subscription, "mine", 5)
    with pytest.raises(EntityNotFound):
        entities.replace_rule(subscription, RuleDescription("mine"), 5)


def test_rules_have_times_wherever_they_come_from(entities: Entities) -> None:
    rule = AuthorizationRule("r", Right.SEND, Secret("k"))
    queue = entities.create(QueueDescription("q", authorization_rules=(rule,)), 1000)
    assert isinstance(queue.description, QueueDescription)

    turn = Turn(Now.at(2000))
    entities.update(replace(queue.description, max_delivery_count=3), turn)
    unchanged, same = turn.rules_changed, times(queue)
    wider = replace(rule, rights=Right.MANAGE)
    other = replace(rule, name="other")
    turn = Turn(Now.at(3000))
    entities.update(
        replace(queue.description, authorization_rules=(wider, other)), turn
    )

    assert (unchanged, same) == (False, [(1000, 1000)])
    assert times(queue) == [(1000, 3000), (3000, 3000)]
    assert turn.rules_changed
    entities.reload()
    assert times(queue) == [(1000, 3000), (3000, 3000)]


def times(queue: Entity) -> list[tuple[int, int]]:
    assert isinstance(queue.description, QueueDescription)
    rules = queue.description.authorization_rules
    return [(rule.created_at_ms, rule.modified_at_ms) for rule in rules]
