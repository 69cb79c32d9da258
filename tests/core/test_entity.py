"""Descriptions of queues, topics and subscriptions."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus import errors, limits
from twinbus.core.durations import DURATION_MAX_MS
from twinbus.core.entity import (
    ActiveStatus,
    AuthorizationRule,
    Description,
    QueueDescription,
    Right,
    SubscriptionDescription,
    TopicDescription,
    changed,
)
from twinbus.core.sas import Secret

QUEUE = QueueDescription("orders")
TOPIC = TopicDescription("events")
SUBSCRIPTION = SubscriptionDescription("events", "all")
ALL: list[Description] = [QUEUE, TOPIC, SUBSCRIPTION]

RULE = AuthorizationRule(
    "reader", Right.LISTEN, Secret("planted 1"), Secret("planted 2")
)


def with_fields(entity: Description, **values: Any) -> Description:
    return replace(entity, **values)


def has(entity: Description, name: str) -> bool:
    return any(item.name == name for item in dataclasses.fields(entity))


@pytest.mark.parametrize("entity", ALL)
def test_the_defaults_are_those_of_the_service_and_valid(entity: Description) -> None:
    entity.validate()

    defaults = {
        "lock_duration_ms": 60_000,
        "max_size_in_megabytes": 1024,
        "default_message_time_to_live_ms": DURATION_MAX_MS,
        "auto_delete_on_idle_ms": DURATION_MAX_MS,
        "duplicate_detection_history_time_window_ms": 600_000,
        "max_delivery_count": 10,
        "enable_batched_operations": True,
        "support_ordering": True,
        "status": ActiveStatus.ACTIVE,
        "dead_lettering_on_filter_evaluation_exceptions": True,
    }
    for item in dataclasses.fields(entity):
        value = getattr(entity, item.name)
        if item.name in defaults:
            assert value == defaults[item.name]
        elif item.name not in ("name", "topic_name"):
            assert not value


def test_entities_are_found_by_lower_case_keys() -> None:
    assert QueueDescription("A/B").key == "a/b"
    assert TopicDescription("T").path.key == TopicDescription("T").key == "t"
    assert SubscriptionDescription("T", "S").key == "t/subscriptions/s"
    assert QUEUE.path.text == "orders"


RANGES = [
    ("lock_duration_ms", 5_000, 300_000),
    ("duplicate_detection_history_time_window_ms", 20_000, 604_800_000),
    ("max_delivery_count", 1, 2_147_483_647),
    ("default_message_time_to_live_ms", 1_000, DURATION_MAX_MS),
    ("auto_delete_on_idle_ms", 300_000, DURATION_MAX_MS),
    ("max_message_size_in_kilobytes", 1024, 102_400),
    ("max_size_in_megabytes", 1, limits.ENTITY_MEGABYTES_MAX),
    ("message_rate_per_second", 1, limits.MESSAGE_RATE_MAX),
]


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
@pytest.mark.parametrize("entity", ALL)
def test_every_range_ends_where_it_says(
    entity: Description, name: str, low: int, high: int
) -> None:
    if not has(entity, name):
        return

    for inside in (low, low + 1, high - 1, high):
        with_fields(entity, **{name: inside}).validate()
    for outside in (low - 1, high + 1, -1):
        with pytest.raises(errors.ArgumentOutOfRange) as refusal:
            with_fields(entity, **{name: outside}).validate()
        assert name.removesuffix("_ms") in refusal.value.text
        assert "between" in refusal.value.text


def test_a_refused_duration_is_shown_as_text() -> None:
    with pytest.raises(errors.ArgumentOutOfRange) as refusal:
        replace(QUEUE, lock_duration_ms=360_000).validate()

    assert (
        refusal.value.text == "lock_duration must be between PT5S and PT5M, not PT6M."
    )


def test_the_default_message_size_may_be_written_back() -> None:
    replace(QUEUE, max_message_size_in_kilobytes=256).validate()
    wanted = "value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400"
    with pytest.raises(errors.ArgumentOutOfRange, match=wanted):
        replace(TOPIC, max_message_size_in_kilobytes=257).validate()


def test_the_message_size_is_told_in_bytes() -> None:
    assert QUEUE.message_bytes_max == 256 * 1024
    assert replace(TOPIC, max_message_size_in_kilobytes=1024).message_bytes_max == 2**20


@pytest.mark.parametrize("entity", ALL)
def test_metadata_has_a_length(entity: Description) -> None:
    for chars in (1023, 1024):
        with_fields(entity, user_metadata="x" * chars).validate()
    with pytest.raises(errors.ArgumentOutOfRange, match="user_metadata has 1025"):
        with_fields(entity, user_metadata="x" * 1025).validate()


@pytest.mark.parametrize(
    "entity",
    [
        QueueDescription(""),
        QueueDescription("a b"),
        TopicDescription("/t"),
        SubscriptionDescription("t", "s/s"),
        SubscriptionDescription("", "s"),
    ],
)
def test_names_are_checked(entity: Description) -> None:
    with pytest.raises(errors.ArgumentError, match="name"):
        entity.validate()


@pytest.mark.parametrize("entity", [QUEUE, TOPIC])
def test_authorization_rules_are_checked(entity: Description) -> None:
    with_fields(entity, authorization_rules=(RULE,)).validate()
    with pytest.raises(errors.ArgumentError, match="two authorization_rules"):
        with_fields(entity, authorization_rules=(RULE, RULE)).validate()


@pytest.mark.parametrize("name", ["forward_to", "forward_dead_lettered_messages_to"])
@pytest.mark.parametrize("entity", [QUEUE, SUBSCRIPTION])
def test_forwarding_leads_to_a_queue_or_topic(entity: Description, name: str) -> None:
    own = "Orders" if entity is QUEUE else "Events"

    for good in ("next", "sb://host/next", "a/b", "", None, own, f"sb://host/{own}"):
        with_fields(entity, **{name: good}).validate()
    for below in ("t/Subscriptions/s", "q/$DeadLetterQueue", "q/$management", "/"):
        with pytest.raises(errors.ArgumentError, match="must name a queue or a topic"):
            with_fields(entity, **{name: below}).validate()
    with pytest.raises(errors.ArgumentError, match="not allowed"):
        with_fields(entity, **{name: "a b"}).validate()


@pytest.mark.parametrize("entity", [QUEUE, SUBSCRIPTION])
def test_messages_and_dead_letters_of_sessions_are_forwarded(
    entity: Description,
) -> None:
    session = with_fields(entity, requires_session=True)

    with_fields(session, forward_dead_lettered_messages_to="next").validate()
    with_fields(session, forward_to="next").validate()


def test_forward_targets_are_found_by_key() -> None:
    queue = replace(
        QUEUE, forward_to="sb://h/Next", forward_dead_lettered_messages_to="Dead"
    )
    subscription = replace(SUBSCRIPTION, forward_to="Next")

    assert (queue.forward_key, queue.forward_dead_letter_key) == ("next", "dead")
    assert subscription.forward_key == "next"
    assert subscription.forward_dead_letter_key is None
    assert replace(QUEUE, forward_to="").forward_key is None


@pytest.mark.parametrize(
    ("status", "can_send", "can_receive"),
    [
        (ActiveStatus.ACTIVE, True, True),
        (ActiveStatus.DISABLED, False, False),
        (ActiveStatus.SEND_DISABLED, False, True),
        (ActiveStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_a_status_says_what_is_open(
    status: ActiveStatus, can_send: bool, can_receive: bool
) -> None:
    assert (status.can_send, status.can_receive) == (can_send, can_receive)


# -- changes -----------------------------------------------------------------------


@pytest.mark.parametrize("entity", ALL)
def test_a_change_is_seen_and_times_are_none(entity: Description) -> None:
    assert not changed(entity, entity)
    assert not changed(entity, with_fields(entity, created_at_ms=5, updated_at_ms=6))
    assert changed(entity, with_fields(entity, user_metadata="x"))


@pytest.mark.parametrize("entity", ALL)
@pytest.mark.parametrize(
    "name", ["requires_session", "requires_duplicate_detection", "enable_partitioning"]
)
def test_properties_fixed_at_creation_cannot_be_changed(
    entity: Description, name: str
) -> None:
    if has(entity, name):
        with pytest.raises(errors.ArgumentError, match=f"{name} .* cannot be changed"):
            changed(entity, with_fields(entity, **{name: True}))


@pytest.mark.parametrize("other", [TopicDescription("orders"), QueueDescription("o")])
def test_an_update_cannot_change_kind_or_name(other: Description) -> None:
    with pytest.raises(errors.ArgumentError, match="Create another entity"):
        changed(QUEUE, other)


# -- the form in the store ---------------------------------------------------------


@pytest.mark.parametrize(
    "entity",
    [
        *ALL,
        QueueDescription(
            "q",
            lock_duration_ms=5_000,
            status=ActiveStatus.SEND_DISABLED,
            authorization_rules=(RULE, replace(RULE, name="w", secondary_key=None)),
            forward_to="x",
            created_at_ms=7,
        ),
        replace(SUBSCRIPTION, status=ActiveStatus.DISABLED, updated_at_ms=9),
        replace(TOPIC, enable_subscription_partitioning=True, user_metadata="é"),
    ],
)
def test_descriptions_survive_the_store(entity: Description) -> None:
    data = json.loads(json.dumps(entity.to_json()))

    restored = type(entity).from_json(data)

    assert restored == entity
    assert restored.to_json() == entity.to_json()


@given(
    st.integers(0, DURATION_MAX_MS),
    st.booleans(),
    st.sampled_from(ActiveStatus),
    st.none() | st.text(),
)
def test_any_values_survive_the_store(
    lock_ms: int, session: bool, status: ActiveStatus, metadata: str | None
) -> None:
    queue = replace(
        QUEUE,
        lock_duration_ms=lock_ms,
        requires_session=session,
        status=status,
        user_metadata=metadata,
    )

    assert QueueDescription.from_json(json.loads(json.dumps(queue.to_json()))) == queue


def test_fields_of_a_later_version_are_ignored() -> None:
    data = {"name": "q", "max_delivery_count": 3, "colour": "red"}

    assert QueueDescription.from_json(data) == QueueDescription(
        "q", max_delivery_count=3
    )


def test_a_description_does_not_print_its_keys() -> None:
    queue = replace(QUEUE, authorization_rules=(RULE,))

    assert "planted" not in repr(queue)
    assert "planted 2" in json.dumps(queue.to_json())


def test_a_rule_keeps_its_times_and_an_old_one_has_none() -> None:
    dated = replace(RULE, created_at_ms=1000, modified_at_ms=2000)
    queue = replace(QUEUE, authorization_rules=(dated,))
    data = json.loads(json.dumps(queue.to_json()))

    (read,) = QueueDescription.from_json(data).authorization_rules
    # As the first version has stored it.
    for name in ("created_at_ms", "modified_at_ms"):
        del data["authorization_rules"][0][name]
    (old,) = QueueDescription.from_json(data).authorization_rules

    assert (read.created_at_ms, read.modified_at_ms) == (1000, 2000)
    assert (old.created_at_ms, old.modified_at_ms) == (0, 0)
    assert read == old == RULE
