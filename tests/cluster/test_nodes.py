"""Clients of different nodes see one namespace."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
)

from tests.cli.run import Run
from tests.cluster.site import Cluster, cluster
from tests.postgres import shared_server

ENTITIES: dict[str, Any] = {
    "queues": [
        {"name": name}
        for name in ("orders", "order", "planned", "held", "renewed", "given-back")
    ]
    + [
        {"name": "short", "lock_duration": "PT5S"},
        {"name": "grouped", "requires_session": True},
        {"name": "grouped-short", "requires_session": True, "lock_duration": "PT5S"},
        {"name": "unique", "requires_duplicate_detection": True},
    ]
}

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    url = shared_server().new_database()
    with cluster(tmp_path_factory.mktemp("nodes"), url, ENTITIES, 2) as running:
        yield running


def send(site: Cluster, node: int, queue: str, *texts: str, **given: Any) -> None:
    with site.client(node).get_queue_sender(queue) as sender:
        for text in texts:
            sender.send_messages(ServiceBusMessage(text, **given))


def taken(receiver: ServiceBusReceiver, count: int, seconds: float = 10) -> list[str]:
    """Receive and complete so many messages, or as many as come in that time."""
    found: list[str] = []
    while len(found) < count:
        messages = receiver.receive_messages(count - len(found), max_wait_time=seconds)
        if not messages:
            break
        for message in messages:
            receiver.complete_message(message)
            found.append(str(message))
    return found


def test_a_receiver_that_waits_gets_what_another_node_was_sent(site: Cluster) -> None:
    found: list[str] = []
    with site.client(1).get_queue_receiver("orders") as receiver:
        # The link is there, and waits.
        assert receiver.receive_messages(1, max_wait_time=0.1) == []
        waits = threading.Thread(target=lambda: found.extend(taken(receiver, 1)))
        waits.start()
        started = time.monotonic()
        send(site, 0, "orders", "a")
        waits.join()
        seconds = time.monotonic() - started

    assert found == ["a"]
    # Far below what a look at the log without a hint would take several times.
    assert seconds < 5


def test_messages_of_two_nodes_have_one_order(site: Cluster) -> None:
    with (
        site.client(0).get_queue_sender("order") as first,
        site.client(1).get_queue_sender("order") as second,
    ):
        for number in range(10):
            sender = second if number % 2 else first
            sender.send_messages(ServiceBusMessage(str(number)))

    with site.client(1).get_queue_receiver("order") as receiver:
        assert taken(receiver, 10) == [str(number) for number in range(10)]


def test_a_message_that_one_node_holds_is_not_given_to_another(site: Cluster) -> None:
    send(site, 0, "held", "a", "b")
    with (
        site.client(0).get_queue_receiver("held", prefetch_count=0) as first,
        site.client(1).get_queue_receiver("held", prefetch_count=0) as second,
    ):
        [one] = first.receive_messages(1, max_wait_time=10)
        [two] = second.receive_messages(1, max_wait_time=10)
        assert {str(one), str(two)} == {"a", "b"}
        first.complete_message(one)
        second.complete_message(two)


def test_a_lock_that_ends_gives_the_message_to_the_other_node(site: Cluster) -> None:
    send(site, 0, "short", "a")
    with (
        site.client(0).get_queue_receiver("short") as first,
        site.client(1).get_queue_receiver("short") as second,
    ):
        [held] = first.receive_messages(1, max_wait_time=10)
        [again] = second.receive_messages(1, max_wait_time=20)

        assert (str(again), again.delivery_count) == ("a", 1)
        with pytest.raises(MessageLockLostError):
            first.complete_message(held)
        second.complete_message(again)


def test_an_abandoned_message_comes_to_a_receiver_of_the_other_node(
    site: Cluster,
) -> None:
    send(site, 0, "given-back", "a")
    with (
        site.client(0).get_queue_receiver("given-back") as first,
        site.client(1).get_queue_receiver("given-back") as second,
    ):
        [held] = first.receive_messages(1, max_wait_time=10)
        assert second.receive_messages(1, max_wait_time=0.1) == []

        first.abandon_message(held)
        first.close()

        assert taken(second, 1) == ["a"]


def test_a_session_is_held_by_one_receiver_of_all_nodes(site: Cluster) -> None:
    send(site, 0, "grouped", "a", "b", session_id="s")
    first = site.client(0).get_queue_receiver("grouped", session_id="s")
    with first:
        other = site.client(1).get_queue_receiver("grouped", session_id="s")
        with pytest.raises(SessionCannotBeLockedError), other:
            pytest.fail("The session was given twice.")
        assert taken(first, 1) == ["a"]
    with site.client(1).get_queue_receiver("grouped", session_id="s") as second:
        assert taken(second, 1) == ["b"]


def test_a_receiver_is_told_when_another_node_ends_its_session(site: Cluster) -> None:
    send(site, 0, "grouped-short", "a", session_id="s")
    first = site.client(0).get_queue_receiver("grouped-short", session_id="s")
    with first:
        [held] = first.receive_messages(1, max_wait_time=10)
        second = site.client(1).get_queue_receiver(
            "grouped-short", session_id="s", max_wait_time=30
        )
        for _ in range(60):
            try:
                with second:
                    assert taken(second, 1) == ["a"]
                break
            except (SessionCannotBeLockedError, OperationTimeoutError):
                threading.Event().wait(0.5)
        with pytest.raises(ServiceBusError):
            first.complete_message(held)


def test_a_message_id_is_unique_over_all_nodes(site: Cluster) -> None:
    send(site, 0, "unique", "a", message_id="same")
    send(site, 1, "unique", "b", message_id="same")
    send(site, 1, "unique", "c", message_id="other")

    with site.client(0).get_queue_receiver("unique") as receiver:
        assert taken(receiver, 3, seconds=1) == ["a", "c"]


def test_a_scheduled_message_can_be_cancelled_at_another_node(site: Cluster) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    soon = datetime.now(UTC) + timedelta(seconds=1)
    with site.client(0).get_queue_sender("planned") as sender:
        number = sender.schedule_messages(ServiceBusMessage("late"), later)
        sender.schedule_messages(ServiceBusMessage("soon"), soon)
    with site.client(1).get_queue_sender("planned") as sender:
        sender.cancel_scheduled_messages(number)

    with site.client(1).get_queue_receiver("planned") as receiver:
        assert taken(receiver, 1) == ["soon"]
        assert receiver.peek_messages(10) == []


def send_until_refused(sender: ServiceBusSender) -> None:
    for _ in range(100):
        sender.send_messages(ServiceBusMessage("b"))
        threading.Event().wait(0.05)


# -- entities ------------------------------------------------------------------------


def test_a_queue_of_one_node_is_there_on_the_other(site: Cluster) -> None:
    site.admin(0).create_queue("made")

    assert site.admin(1).get_queue("made").name == "made"
    send(site, 1, "made", "a")
    counts = site.admin(0).get_queue_runtime_properties("made")
    assert counts.active_message_count == 1


def test_a_queue_can_be_used_at_once_at_another_node(site: Cluster) -> None:
    admin = site.admin(0)
    connection = site.client(1)
    for number in range(8):
        name = f"at-once-{number}"
        admin.create_queue(name)

        # Without the time that a connection takes.
        assert site.post(1, name, b"a") == 201
    with connection.get_queue_receiver("at-once-0") as receiver:
        assert taken(receiver, 1) == ["a"]


def test_a_deleted_queue_ends_the_links_of_the_other_node(site: Cluster) -> None:
    site.admin(0).create_queue("gone")
    sender = site.client(1).get_queue_sender("gone")
    sender.send_messages(ServiceBusMessage("a"))

    site.admin(0).delete_queue("gone")

    with pytest.raises(ServiceBusError):
        send_until_refused(sender)
    with pytest.raises(ResourceNotFoundError):
        site.admin(1).get_queue("gone")


def test_a_rule_of_one_node_filters_on_the_other(site: Cluster) -> None:
    admin = site.admin(0)
    admin.create_topic("events")
    admin.create_subscription("events", "some")
    admin.delete_rule("events", "some", "$Default")
    from azure.servicebus.management import SqlRuleFilter

    admin.create_rule("events", "some", "wanted", filter=SqlRuleFilter("kind = 'x'"))
    with site.client(1).get_topic_sender("events") as sender:
        for kind in "xy":
            sender.send_messages(
                ServiceBusMessage(kind, application_properties={"kind": kind})
            )

    with site.client(0).get_subscription_receiver("events", "some") as receiver:
        assert taken(receiver, 2, seconds=1) == ["x"]


def test_the_keys_are_in_the_database(site: Cluster, run: Run) -> None:
    options = ("--namespace", site.nodes[0].name, "--host", "bus.example.org", "--json")

    result = run("keys", "show", "--database", site.url, *options)

    assert result.code == 0
    assert "bus.example.org" in json.loads(result.out)["connection_string"]


def test_a_node_tells_of_the_database_and_of_the_other_node(site: Cluster) -> None:
    wanted = f":{site.nodes[1].ready['pid']}"
    deadline = time.monotonic() + 20
    while True:
        health = site.health(0)
        names = [each["name"] for each in health["other_nodes"]]
        if any(name.endswith(wanted) for name in names):
            break
        assert time.monotonic() < deadline, health
        threading.Event().wait(0.1)

    assert health["status"] == "healthy"
    assert health["durability"] == "local"
    assert health["database"].startswith("the PostgreSQL database test_")
