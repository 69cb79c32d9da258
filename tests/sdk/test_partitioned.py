"""Partitioned queues and topics with the official Python client, in four shards."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.sdk.servers import Server, serving

SHARDS = 4
WAIT_SECONDS = 5.0
COUNT = 40

PARTED: dict[str, Any] = {"enable_partitioning": True}
CONFIG = {
    "namespaces": [
        {
            "name": "parted",
            "shards": SHARDS,
            "queues": [
                *({"name": f"q{k}", **PARTED} for k in range(12)),
                {"name": "sessions", **PARTED, "requires_session": True},
                {"name": "once", **PARTED, "requires_duplicate_detection": True},
                {"name": "home"},
                {"name": "in", **PARTED, "forward_to": "home"},
            ],
            "topics": [
                {"name": "t", **PARTED, "subscriptions": [{"name": "s"}]},
            ],
        }
    ]
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("parted")
    with serving(folder, CONFIG) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[ServiceBusClient]:
    connection = server.namespaces["parted"].connection_string
    # What is refused is not tried again.
    with ServiceBusClient.from_connection_string(connection, retry_total=0) as made:
        yield made


def fragment(message: ServiceBusReceivedMessage) -> int:
    assert message.sequence_number is not None
    return message.sequence_number >> 48


def send(client: ServiceBusClient, entity: str, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(entity) as sender:
        for message in messages:
            sender.send_messages(message)


def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        some = receiver.receive_messages(count - len(found), WAIT_SECONDS)
        assert some, f"{len(found)} of {count}"
        found += some
    return found


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


def test_messages_without_a_key_are_spread_and_each_comes_once(
    client: ServiceBusClient,
) -> None:
    send(client, "q0", *(ServiceBusMessage(f"m{k}") for k in range(COUNT)))
    with client.get_queue_receiver("q0", prefetch_count=7) as receiver:
        found = take(receiver, COUNT)
        for message in found:
            receiver.complete_message(message)
        assert receiver.receive_messages(1, 1) == []

    assert sorted(bodies(found)) == sorted(f"m{k}" for k in range(COUNT))
    assert {fragment(message) for message in found} == set(range(SHARDS))
    assert len({message.sequence_number for message in found}) == COUNT


def test_a_key_keeps_its_order_and_its_fragment(client: ServiceBusClient) -> None:
    keys = [f"key {k % 5}" for k in range(COUNT)]
    messages = [
        ServiceBusMessage(f"{k}", partition_key=key) for k, key in enumerate(keys)
    ]
    send(client, "q1", *messages)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("q1", receive_mode=mode) as receiver:
        found = take(receiver, COUNT)

    for key in set(keys):
        of_key = [each for each in found if each.partition_key == key]
        assert bodies(of_key) == sorted(bodies(of_key), key=int)
        assert len({fragment(each) for each in of_key}) == 1


def test_a_batch_with_two_keys_is_refused(client: ServiceBusClient) -> None:
    with client.get_queue_sender("q2") as sender:
        same = [ServiceBusMessage("x", partition_key="one") for _ in range(3)]
        sender.send_messages(same)
        other = ServiceBusMessage("y", partition_key="two")
        with pytest.raises(ServiceBusError, match="same session id or partition key"):
            sender.send_messages([*same, other])


def test_settlements_reach_their_fragments(client: ServiceBusClient) -> None:
    send(client, "q3", *(ServiceBusMessage(f"m{k}") for k in range(8)))
    with client.get_queue_receiver("q3") as receiver:
        found = take(receiver, 8)
        for message in found[:4]:
            receiver.dead_letter_message(message, reason="bad")
        numbers = []
        for message in found[4:]:
            receiver.defer_message(message)
            assert message.sequence_number is not None
            numbers.append(message.sequence_number)
        deferred = receiver.receive_deferred_messages(numbers)
        assert [each.sequence_number for each in deferred] == numbers
        for message in deferred:
            receiver.renew_message_lock(message)
            receiver.abandon_message(message)
        for message in receiver.receive_deferred_messages(numbers):
            receiver.complete_message(message)

    dead = ServiceBusSubQueue.DEAD_LETTER
    with client.get_queue_receiver("q3", sub_queue=dead) as receiver:
        buried = take(receiver, 4)
        assert {each.dead_letter_reason for each in buried} == {"bad"}
        for message in buried:
            receiver.complete_message(message)


def test_peek_pages_through_all_fragments(client: ServiceBusClient) -> None:
    send(client, "q4", *(ServiceBusMessage(f"m{k}") for k in range(COUNT)))
    with client.get_queue_receiver("q4") as receiver:
        found = receiver.peek_messages(COUNT)
        assert sorted(bodies(found)) == sorted(f"m{k}" for k in range(COUNT))
        paged: list[ServiceBusReceivedMessage] = []
        start = 1
        while page := receiver.peek_messages(7, sequence_number=start):
            paged += page
            assert page[-1].sequence_number is not None
            start = page[-1].sequence_number + 1
    assert bodies(paged) == bodies(found)
    numbers = [each.sequence_number or 0 for each in found]
    assert numbers == sorted(numbers)


def test_schedules_are_kept_cancelled_and_delivered(client: ServiceBusClient) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    with client.get_queue_sender("q5") as sender:
        numbers = [
            sender.schedule_messages(ServiceBusMessage(f"m{k}"), later)[0]
            for k in range(8)
        ]
        assert {number >> 48 for number in numbers} == set(range(SHARDS))
        sender.cancel_scheduled_messages(numbers[:6])
        with pytest.raises(ServiceBusError):
            sender.cancel_scheduled_messages(numbers[:1])
        soon = datetime.now(UTC) + timedelta(seconds=1)
        sender.schedule_messages(ServiceBusMessage("soon"), soon)
    with client.get_queue_receiver("q5") as receiver:
        (message,) = take(receiver, 1)
        assert str(message) == "soon"
        receiver.complete_message(message)
        # The client goes on behind the last one received, unless it is told.
        assert len(receiver.peek_messages(10, sequence_number=1)) == 2


def test_sessions_live_in_one_fragment_each(client: ServiceBusClient) -> None:
    names = [f"s{k}" for k in range(10)]
    messages = [ServiceBusMessage(f"{k}", session_id=names[k % 10]) for k in range(30)]
    send(client, "sessions", *messages)
    with client.get_queue_receiver("sessions", session_id="s3") as receiver:
        receiver.session.set_state(b"seen")
        found = take(receiver, 3)
        assert bodies(found) == ["3", "13", "23"]
        for message in found:
            receiver.complete_message(message)
        assert receiver.session.get_state() == b"seen"
        receiver.session.renew_lock()

    seen: set[str] = set()
    fragments: set[int] = set()
    while len(seen) < 9:
        options: dict[str, Any] = {"session_id": NEXT_AVAILABLE_SESSION}
        with client.get_queue_receiver("sessions", **options) as receiver:
            found = take(receiver, 3)
            assert bodies(found) == sorted(bodies(found), key=int)
            fragments |= {fragment(each) for each in found}
            for message in found:
                receiver.complete_message(message)
            seen.add(str(receiver.session.session_id))
    assert seen == set(names) - {"s3"}
    assert len(fragments) > 1


def test_a_duplicate_is_dropped_in_whichever_fragment(client: ServiceBusClient) -> None:
    ids = [f"id{k % 10}" for k in range(30)]
    send(client, "once", *(ServiceBusMessage("x", message_id=each) for each in ids))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("once", receive_mode=mode) as receiver:
        found = take(receiver, 10)
        assert receiver.receive_messages(1, 1) == []
    assert sorted(str(each.message_id) for each in found) == sorted(
        f"id{k}" for k in range(10)
    )
    assert len({fragment(each) for each in found}) > 1


def test_a_partitioned_topic_reaches_its_subscriptions(
    client: ServiceBusClient,
) -> None:
    with client.get_topic_sender("t") as sender:
        for k in range(COUNT):
            sender.send_messages(ServiceBusMessage(f"m{k}"))
    with client.get_subscription_receiver("t", "s") as receiver:
        found = take(receiver, COUNT)
        for message in found:
            receiver.complete_message(message)
    assert sorted(bodies(found)) == sorted(f"m{k}" for k in range(COUNT))
    assert {fragment(message) for message in found} == set(range(SHARDS))


def test_forwarding_from_all_fragments_arrives(client: ServiceBusClient) -> None:
    send(client, "in", *(ServiceBusMessage(f"m{k}") for k in range(COUNT)))
    with client.get_queue_receiver("home") as receiver:
        found = take(receiver, COUNT)
        for message in found:
            receiver.complete_message(message)
    assert sorted(bodies(found)) == sorted(f"m{k}" for k in range(COUNT))


def administration(server: Server) -> ServiceBusAdministrationClient:
    endpoint = server.namespaces["parted"]
    connection = endpoint.secured(f"localhost:{endpoint.https_port}")
    return ServiceBusAdministrationClient.from_connection_string(
        connection, connection_verify=server.ca_file
    )


def test_counts_and_size_are_of_all_fragments(
    client: ServiceBusClient, server: Server
) -> None:
    send(client, "q6", *(ServiceBusMessage("x" * 100) for _ in range(20)))
    with administration(server) as admin:
        found = admin.get_queue_runtime_properties("q6")
        assert found.active_message_count == 20
        assert found.size_in_bytes is not None
        assert found.size_in_bytes > 2000
        shown = admin.get_queue("q6")
        assert shown.enable_partitioning
        assert shown.max_size_in_megabytes == 1024 * SHARDS
        made = admin.create_queue("made", enable_partitioning=True)
        assert made.enable_partitioning
    send(client, "made", *(ServiceBusMessage(f"m{k}") for k in range(8)))
    with client.get_queue_receiver("made") as receiver:
        assert {fragment(each) for each in take(receiver, 8)} == set(range(SHARDS))
    with administration(server) as admin:
        admin.delete_queue("made")
        assert "made" not in {each.name for each in admin.list_queues()}
