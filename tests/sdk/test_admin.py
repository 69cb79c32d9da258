"""The official Python administration clients, over HTTPS with verification on.

Every test runs with the synchronous and with the asynchronous client. What a client
sets is read back, and then used: the official messaging client sees the effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus import (
    ServiceBusMessage,
)
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.sdk.admins import Admins, take
from tests.sdk.blocking import LoopThread
from tests.sdk.servers import Server, serving

CLIENTS = ("sync", "async")

BACKLOG = "contoso/x-servicebus-transfer/0"


@pytest.fixture(scope="module")
def admin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that holds nothing but what these tests make."""
    config = {"namespaces": [{"name": name} for name in CLIENTS]}
    with serving(tmp_path_factory.mktemp("admin"), config) as running:
        yield running


@pytest.fixture(scope="module")
def admin_loop() -> Iterator[LoopThread]:
    """Where the asynchronous clients live."""
    loop = LoopThread()
    yield loop
    loop.close()


@pytest.fixture(params=CLIENTS)
def admins(
    request: pytest.FixtureRequest, admin_server: Server, admin_loop: LoopThread
) -> Iterator[Admins]:
    """The synchronous clients, then the asynchronous ones."""
    loop = admin_loop if request.param == "async" else None
    endpoint = admin_server.namespaces[request.param]
    admins = Admins(endpoint, admin_server.ca_file, loop)
    yield admins
    admins.close()


@pytest.fixture
def admin(admins: Admins) -> ServiceBusAdministrationClient:
    return admins.make()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for what the test makes; nothing else has it."""
    return f"admin-{request.function.__name__}"


def rule(key_name: str, *rights: AccessRights) -> AuthorizationRule:
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=list(rights),
        key_name=key_name,
        primary_key="p" * 44,
        secondary_key="s" * 44,
        created_at_utc=datetime.now(UTC),
        modified_at_utc=datetime.now(UTC),
    )


# -- every property --------------------------------------------------------------------


def test_every_property_of_a_queue_comes_back(
    admin: ServiceBusAdministrationClient, admins: Admins, name: str
) -> None:
    admin.create_queue(f"{name}-to")
    settings: dict[str, Any] = {
        "auto_delete_on_idle": timedelta(minutes=7),
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": timedelta(minutes=11),
        "duplicate_detection_history_time_window": timedelta(minutes=12),
        "enable_batched_operations": False,
        "enable_express": True,
        "lock_duration": timedelta(seconds=13),
        "max_delivery_count": 14,
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "requires_session": False,
        "user_metadata": "a <b> & 'c' \"d\" é",
        "max_message_size_in_kilobytes": 2048,
    }

    made = admin.create_queue(
        name,
        forward_to=f"{name}-to",
        forward_dead_lettered_messages_to=f"{name}-to",
        **settings,
    )

    target = f"sb://{admins.authority}/{name}-to"
    for shown in (made, admin.get_queue(name)):
        assert {key: shown[key] for key in settings} == settings
        assert shown.forward_to == shown.forward_dead_lettered_messages_to == target
        assert (shown.name, shown.status) == (name, "Active")
        assert shown.availability_status == "Available"


def test_every_property_of_a_topic_comes_back(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    settings: dict[str, Any] = {
        "auto_delete_on_idle": timedelta(minutes=7),
        "default_message_time_to_live": timedelta(minutes=11),
        "duplicate_detection_history_time_window": timedelta(minutes=12),
        "enable_batched_operations": False,
        "enable_express": True,
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "support_ordering": False,
        "user_metadata": "metadata",
        "max_message_size_in_kilobytes": 102_400,
    }

    made = admin.create_topic(name, **settings)

    for shown in (made, admin.get_topic(name)):
        assert {key: shown[key] for key in settings} == settings


def test_every_property_of_a_subscription_comes_back(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    admin.create_topic(name)
    settings: dict[str, Any] = {
        "auto_delete_on_idle": timedelta(minutes=7),
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": timedelta(minutes=11),
        "enable_batched_operations": False,
        "lock_duration": timedelta(seconds=13),
        "max_delivery_count": 14,
        "requires_session": True,
        "user_metadata": "metadata",
    }

    made = admin.create_subscription(name, "s", **settings)

    for shown in (made, admin.get_subscription(name, "s")):
        assert {key: shown[key] for key in settings} == settings


def test_what_was_read_can_be_changed_and_sent_back(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    queue = admin.create_queue(name)
    topic = admin.create_topic(f"{name}-t")
    subscription = admin.create_subscription(f"{name}-t", "s")
    queue.max_delivery_count = 3
    queue.default_message_time_to_live = timedelta(days=2)
    topic.user_metadata = "changed"
    subscription.lock_duration = timedelta(seconds=20)

    admin.update_queue(queue)
    admin.update_topic(topic)
    admin.update_subscription(f"{name}-t", subscription)
    admin.update_queue(queue, status="SendDisabled")

    changed = admin.get_queue(name)
    assert changed.max_delivery_count == 3
    assert changed.default_message_time_to_live == timedelta(days=2)
    assert changed.auto_delete_on_idle == queue.auto_delete_on_idle
    assert changed.status == "SendDisabled"
    assert admin.get_topic(f"{name}-t").user_metadata == "changed"
    shown = admin.get_subscription(f"{name}-t", "s")
    assert shown.lock_duration == timedelta(seconds=20)


def test_rules_come_back_with_all_types_of_values(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    admin.create_topic(name)
    admin.create_subscription(name, "s")
    properties: dict[str, Any] = {
        "text": "x",
        "int": 1,
        "long": 2**40,
        "bool": True,
        "float": 1.5,
        "time": datetime(2020, 7, 5, 11, 12, 13),  # noqa: DTZ001 - as users write it
        "span": timedelta(days=1, hours=2, microseconds=7),
    }
    correlation = CorrelationRuleFilter(
        correlation_id="c",
        message_id="m",
        to="t",
        reply_to="r",
        label="l",
        session_id="s",
        reply_to_session_id="rs",
        content_type="ct",
        properties=properties,
    )
    sql = SqlRuleFilter("a = @p", parameters={"@p": 5})
    action = SqlRuleAction("SET b = @q", parameters={"@q": "x"})

    admin.create_rule(name, "s", "correlation", filter=correlation, action=action)
    admin.create_rule(name, "s", "sql", filter=sql)
    admin.create_rule(name, "s", "never", filter=FalseRuleFilter())

    found: dict[str, Any] = {rule.name: rule for rule in admin.list_rules(name, "s")}
    assert set(found) == {"$Default", "correlation", "sql", "never"}
    assert isinstance(found["$Default"].filter, TrueRuleFilter)
    assert isinstance(found["never"].filter, FalseRuleFilter)
    assert vars(found["correlation"].filter) == vars(correlation)
    assert found["correlation"].action.sql_expression == "SET b = @q"
    assert found["correlation"].action.parameters == {"@q": "x"}
    assert found["sql"].filter.sql_expression == "a = @p"
    assert found["sql"].filter.parameters == {"@p": 5}
    shown: Any = admin.get_rule(name, "s", "correlation")
    shown.filter.label = "other"
    admin.update_rule(name, "s", shown)
    changed: Any = admin.get_rule(name, "s", "correlation")
    assert changed.filter.label == "other"
    assert changed.filter.properties == properties
    assert changed.created_at_utc == shown.created_at_utc


# -- the properties work ---------------------------------------------------------------


def test_a_queue_with_slashes_in_its_name_takes_messages(
    admin: ServiceBusAdministrationClient, admins: Admins
) -> None:
    admin.create_queue(BACKLOG)

    admins.send(BACKLOG, "x")

    assert admin.get_queue_runtime_properties(BACKLOG).active_message_count == 1
    assert admins.drained(BACKLOG, 1) == ["x"]
    assert BACKLOG in [queue.name for queue in admin.list_queues()]
    admin.delete_queue(BACKLOG)
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue(BACKLOG)


def test_settings_take_effect(
    admin: ServiceBusAdministrationClient, admins: Admins, name: str
) -> None:
    admin.create_queue(f"{name}-to")
    queue = admin.create_queue(
        name, max_delivery_count=1, lock_duration=timedelta(seconds=30)
    )
    admins.send(name, "worn")
    with admins.messages.get_queue_receiver(name) as receiver:
        (message,) = take(receiver, 1)
        assert message.locked_until_utc is not None
        remaining = message.locked_until_utc - datetime.now(UTC)
        receiver.abandon_message(message)
    queue.forward_to = f"{name}-to"

    admin.update_queue(queue)
    admins.send(name, "forwarded")

    assert timedelta(seconds=20) < remaining <= timedelta(seconds=31)
    assert admins.drained(f"{name}-to", 1) == ["forwarded"]
    runtime = admin.get_queue_runtime_properties(name)
    assert (runtime.active_message_count, runtime.dead_letter_message_count) == (0, 1)


def test_a_disabled_queue_is_disabled_at_once(
    admin: ServiceBusAdministrationClient, admins: Admins, name: str
) -> None:
    queue = admin.create_queue(name)

    admin.update_queue(queue, status="SendDisabled")

    with pytest.raises(ServiceBusError):
        admins.send(name, "refused")
    admin.update_queue(queue, status="Active")
    admins.send(name, "taken")
    assert admins.drained(name, 1) == ["taken"]


def test_a_rule_works_from_the_next_message_on(
    admin: ServiceBusAdministrationClient, admins: Admins, name: str
) -> None:
    admin.create_topic(name)
    admin.create_subscription(name, "s")
    admin.create_rule(
        name, "s", "big", filter=SqlRuleFilter("n > @n", parameters={"@n": 5})
    )
    admin.delete_rule(name, "s", "$Default")

    admins.publish(
        name,
        ServiceBusMessage("small", application_properties={"n": 1}),
        ServiceBusMessage("big", application_properties={"n": 9}),
    )

    with admins.messages.get_subscription_receiver(name, "s") as receiver:
        assert [str(message) for message in take(receiver, 1)] == ["big"]
    counts = admin.get_subscription_runtime_properties(name, "s")
    assert counts.total_message_count == 1


def test_counts_are_exact_in_every_state(
    admin: ServiceBusAdministrationClient, admins: Admins, name: str
) -> None:
    admin.create_queue(name)
    admins.send(name, "active", "locked", "deferred", "dead")
    later = datetime.now(UTC) + timedelta(hours=1)
    with admins.messages.get_queue_sender(name) as sender:
        sender.schedule_messages(ServiceBusMessage("scheduled"), later)
    with admins.messages.get_queue_receiver(name) as receiver:
        messages = {str(message): message for message in take(receiver, 4)}
        receiver.defer_message(messages["deferred"])
        receiver.dead_letter_message(messages["dead"])

        runtime = admin.get_queue_runtime_properties(name)

    assert runtime.active_message_count == 3
    assert runtime.dead_letter_message_count == 1
    assert runtime.scheduled_message_count == 1
    assert runtime.transfer_message_count == 0
    assert runtime.transfer_dead_letter_message_count == 0
    assert runtime.total_message_count == 5
    assert (runtime.size_in_bytes or 0) > 0
    times = (runtime.created_at_utc, runtime.updated_at_utc, runtime.accessed_at_utc)
    for moment in times:
        assert moment is not None
        assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)
    listed = {q.name: q for q in admin.list_queues_runtime_properties()}
    assert listed[name].total_message_count == 5


def test_a_topic_counts_what_is_below_it(
    admin: ServiceBusAdministrationClient, admins: Admins, name: str
) -> None:
    admin.create_topic(name)
    admin.create_subscription(name, "one")
    admin.create_subscription(name, "two")
    admins.publish(name, ServiceBusMessage("x"))

    topic = admin.get_topic_runtime_properties(name)
    subscriptions = list(admin.list_subscriptions_runtime_properties(name))

    assert topic.subscription_count == 2
    assert (topic.size_in_bytes or 0) > 0
    assert [s.active_message_count for s in subscriptions] == [1, 1]
    assert name in [t.name for t in admin.list_topics_runtime_properties()]


def test_keys_of_a_queue_work_at_once(
    admin: ServiceBusAdministrationClient, admins: Admins, name: str
) -> None:
    given = rule("owner", AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN)
    queue = admin.create_queue(name, authorization_rules=[given])
    owner = admins.signed("owner", "p" * 44)

    (shown,) = queue.authorization_rules or []

    assert (shown.key_name, shown.claim_type) == ("owner", "SharedAccessKey")
    assert (shown.primary_key, shown.secondary_key) == ("p" * 44, "s" * 44)
    assert set(shown.rights or []) == {"Manage", "Send", "Listen"}
    assert shown.created_at_utc == shown.modified_at_utc
    assert owner.get_queue(name).name == name
    assert admins.signed("owner", "s" * 44).get_queue(name).name == name
    with pytest.raises(ClientAuthenticationError):
        list(owner.list_queues())
    client = admins.connect(admins.endpoint.signed("owner", "p" * 44))
    with client.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("x"))
    admin.update_queue(queue, authorization_rules=[])
    with pytest.raises(ClientAuthenticationError):
        owner.get_queue(name)


# -- lists, names and errors -----------------------------------------------------------


def test_lists_are_read_page_by_page(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    wanted = [f"{name}-{number}" for number in range(5)]
    for queue in wanted:
        admin.create_queue(queue)
    admin.create_topic(name)
    for number in range(3):
        admin.create_subscription(name, f"s{number}")

    listed = [queue.name for queue in admin.list_queues(max_page_size=2)]
    subscriptions = admin.list_subscriptions(name, max_page_size=1)

    assert [queue for queue in listed if queue in wanted] == wanted
    assert len(listed) == len(set(listed))
    assert [s.name for s in subscriptions] == ["s0", "s1", "s2"]
    assert name in [topic.name for topic in admin.list_topics()]
    assert list(admin.list_rules(name, "s0", start_index=1)) == []


def test_the_namespace_is_described(
    admin: ServiceBusAdministrationClient, admins: Admins
) -> None:
    shown = admin.get_namespace_properties()

    assert shown.name in CLIENTS
    assert (shown.messaging_sku, shown.namespace_type) == ("Premium", "Messaging")


def test_errors_are_the_ones_the_client_knows(
    admin: ServiceBusAdministrationClient, name: str
) -> None:
    queue = admin.create_queue(name)
    admin.create_topic(f"{name}-t")
    admin.create_subscription(f"{name}-t", "s")
    conflicts: list[Callable[[], object]] = [
        lambda: admin.create_queue(name),
        lambda: admin.create_topic(f"{name}-t"),
        lambda: admin.create_subscription(f"{name}-t", "s"),
        lambda: admin.create_rule(f"{name}-t", "s", "$Default"),
    ]
    for conflict in conflicts:
        with pytest.raises(ResourceExistsError):
            conflict()
    queue.name = f"{name}-no"
    missing: list[Callable[[], object]] = [
        lambda: admin.get_queue(f"{name}-no"),
        lambda: admin.get_subscription(f"{name}-t", "no"),
        lambda: admin.get_rule(f"{name}-t", "s", "no"),
        lambda: admin.delete_topic(f"{name}-no"),
        lambda: admin.delete_subscription(f"{name}-t", "no"),
        lambda: admin.delete_rule(f"{name}-t", "s", "no"),
    ]
    for call in missing:
        with pytest.raises(ResourceNotFoundError):
            call()
    with pytest.raises(HttpResponseError, match="40400"):
        admin.update_queue(queue)
    with pytest.raises(HttpResponseError, match="SubCode=40000"):
        admin.create_queue(f"{name}-no", lock_duration=timedelta(minutes=6))


def test_the_oldest_version_has_no_large_messages(admins: Admins, name: str) -> None:
    old = admins.make(api_version=ApiVersion.V2017_04)

    made = old.create_queue(name)

    assert made.max_message_size_in_kilobytes is None
    with pytest.raises(HttpResponseError, match="MaxMessageSizeInKilobytes"):
        old.create_queue(f"{name}-large", max_message_size_in_kilobytes=1024)


def test_a_wrong_key_is_refused(admins: Admins) -> None:
    stranger = admins.signed("RootManageSharedAccessKey", "guess")

    with pytest.raises(ClientAuthenticationError, match="token is invalid"):
        stranger.get_namespace_properties()


def test_the_certificate_is_verified(admins: Admins) -> None:
    trusting_public_issuers = admins.make(connection_verify=True)

    with pytest.raises(ServiceRequestError):
        trusting_public_issuers.get_namespace_properties()
