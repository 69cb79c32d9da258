"""What a server counts equals what the official clients did, to the operation."""

from __future__ import annotations

import datetime as dt
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    TransportType,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusServerBusyError,
)

from tests.console.site import ConsoleClient
from tests.ledger.reading import rows, totals
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, make_token
from twinbus.testing.namespace import ServedNamespace, serve_namespace

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)
Totals = dict[tuple[Any, ...], int]


class Site:
    """A namespace with a ledger; what it has counted is known when it has stopped."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self._settings: dict[str, Any] = {
            "queues": [
                "orders",
                {"name": "slow", "message_rate_per_second": 1},
                {"name": "chat", "requires_session": True},
            ],
            "topics": [{"name": "events", "subscriptions": [{"name": "audit"}]}],
            "ledger": str(folder),
            **settings,
        }

    @contextmanager
    def run(self) -> Iterator[ServedNamespace]:
        with serve_namespace(self._settings, manual_clock=True) as namespace:
            yield namespace

    def totals(self, *columns: str) -> Totals:
        return totals(self.folder, *columns)

    def counted(self) -> Totals:
        return self.totals("entity", "operation", "outcome", "size_class")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "ledger")


def message(size_bytes: int = 10) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * size_bytes)


def test_sends_count_per_message_and_64_kb(site: Site) -> None:
    with site.run() as namespace, namespace.client() as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(message())
            sender.send_messages([message(), message()])
            sender.send_messages(message(70_000))
            sender.send_messages([message(90_000), message(70_000), message()])
            with pytest.raises(MessageSizeExceededError):
                sender.send_messages(message(300_000))
        with client.get_topic_sender("events") as sender:
            sender.send_messages(message())

    assert site.counted() == {
        ("orders", "send", "accepted", 1): 4,
        ("orders", "send", "accepted", 2): 6,
        ("orders", "send", "refused", 1): 1,
        ("events", "send", "accepted", 1): 1,
    }
    sizes = {row["size_class"]: row["bytes_in"] for row in rows(site.folder)[:3]}
    assert sizes[2] > 230_000
    assert site.totals("namespace", "source", "key", "connection") == {
        ("testing", "server", DEV_KEY_NAME, "amqp"): 12
    }


def test_a_send_that_is_denied_counts_as_busy(site: Site) -> None:
    with (
        site.run() as namespace,
        namespace.client(retry_total=0) as client,
        client.get_queue_sender("slow") as sender,
    ):
        sender.send_messages(message())
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(message())

    assert site.counted() == {
        ("slow", "send", "accepted", 1): 1,
        ("slow", "send", "busy", 1): 1,
    }


def test_receives_settlements_and_renewals(site: Site) -> None:
    with site.run() as namespace, namespace.client() as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([message() for _ in range(4)])
            sender.send_messages(message(70_000))
        with client.get_queue_receiver("orders") as receiver:
            first, *others = receiver.receive_messages(5, max_wait_time=5)
            while len(others) < 4:
                others += receiver.receive_messages(5, max_wait_time=5)
            receiver.renew_message_lock(first)
            receiver.complete_message(first)
            receiver.abandon_message(others[0])
            receiver.defer_message(others[1])
            receiver.dead_letter_message(others[2])
            namespace.advance(600)
            with pytest.raises(MessageLockLostError):
                receiver.complete_message(others[3])
            number = others[1].sequence_number
            assert number is not None
            (deferred,) = receiver.receive_deferred_messages([number])
            receiver.complete_message(deferred)
        dead = client.get_queue_receiver(
            "orders",
            sub_queue="deadletter",
            receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
        )
        with dead:
            assert len(dead.receive_messages(1, max_wait_time=5)) == 1

    assert site.counted() == {
        ("orders", "send", "accepted", 1): 4,
        ("orders", "send", "accepted", 2): 2,
        # One of them is the deferred message.
        ("orders", "receive", "accepted", 1): 5,
        ("orders", "receive", "accepted", 2): 2,
        ("orders", "renew", "accepted", 0): 1,
        ("orders", "settle", "accepted", 0): 5,
        ("orders", "settle", "refused", 0): 1,
        ("orders/$deadletterqueue", "receive", "accepted", 1): 1,
    }


def test_an_empty_poll_counts_once(site: Site) -> None:
    with site.run() as namespace, namespace.client() as client:
        with client.get_queue_receiver("orders") as receiver:
            for _ in range(3):
                assert receiver.receive_messages(2, max_wait_time=0.1) == []
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(message())
        with client.get_subscription_receiver("events", "audit") as receiver:
            assert receiver.receive_messages(1, max_wait_time=0.1) == []
        # More credit than messages is no empty poll.
        with client.get_queue_receiver("orders") as receiver:
            assert len(receiver.receive_messages(10, max_wait_time=5)) == 1

    assert site.counted() == {
        ("orders", "poll", "accepted", 0): 3,
        ("orders", "send", "accepted", 1): 1,
        ("orders", "receive", "accepted", 1): 1,
        ("events/subscriptions/audit", "poll", "accepted", 0): 1,
    }


def test_a_session_that_does_not_come_is_an_empty_poll(site: Site) -> None:
    with site.run() as namespace, namespace.client(retry_total=0) as client:
        waiting = client.get_queue_receiver(
            "chat", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.1
        )
        with pytest.raises(OperationTimeoutError), waiting:
            pass
        with client.get_queue_sender("chat") as sender:
            sender.send_messages(ServiceBusMessage("hello", session_id="one"))
        with client.get_queue_receiver("chat", session_id="one") as receiver:
            (received,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.session.renew_lock()
            receiver.session.set_state(b"state")
            receiver.complete_message(received)

    assert site.counted() == {
        ("chat", "poll", "accepted", 0): 1,
        ("chat", "send", "accepted", 1): 1,
        ("chat", "receive", "accepted", 1): 1,
        ("chat", "renew", "accepted", 0): 1,
        ("chat", "manage", "accepted", 0): 1,
        ("chat", "settle", "accepted", 0): 1,
    }


def test_schedule_cancel_and_peek_count_per_message(site: Site) -> None:
    with site.run() as namespace, namespace.client() as client:
        with client.get_queue_sender("orders") as sender:
            batch = [message(), message(70_000), message()]
            numbers = sender.schedule_messages(batch, LATER)
            sender.cancel_scheduled_messages(numbers[:2])
            sender.send_messages(message())
        with client.get_queue_receiver("orders") as receiver:
            assert len(receiver.peek_messages(10)) == 2
            assert receiver.peek_messages(10, sequence_number=1000) == []

    assert site.counted() == {
        ("orders", "schedule", "accepted", 1): 2,
        ("orders", "schedule", "accepted", 2): 2,
        ("orders", "cancel", "accepted", 0): 2,
        ("orders", "send", "accepted", 1): 1,
        ("orders", "peek", "accepted", 1): 2,
        ("orders", "peek", "accepted", 0): 1,
    }
    empty = [row for row in rows(site.folder) if row["size_class"] == 0]
    assert [row["messages"] for row in empty] == [0, 0]


def test_administration_calls_count_with_their_entity(site: Site) -> None:
    with site.run() as namespace, namespace.admin_client() as manager:
        manager.create_queue("new")
        manager.get_queue("new")
        with pytest.raises(ResourceExistsError):
            manager.create_queue("new")
        manager.delete_queue("new")
        assert len(list(manager.list_queues())) == 3
        manager.get_rule("events", "audit", "$Default")

    assert site.totals("entity", "operation", "outcome", "connection") == {
        ("new", "manage", "accepted", "http"): 3,
        ("new", "manage", "refused", "http"): 1,
        ("", "manage", "accepted", "http"): 1,
        ("events/subscriptions/audit", "manage", "accepted", "http"): 1,
    }


def test_messages_over_http(site: Site) -> None:
    token = make_token("http://localhost/", DEV_KEY_NAME, Secret(DEV_KEY_TEXT), 1 << 33)

    def ask(method: str, path: str, body: bytes = b"") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", namespace.http_port)
        headers = {"Authorization": token, "Host": "localhost"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        return response

    with site.run() as namespace:
        assert ask("POST", "/orders/messages", b"x" * 70_000).status == 201
        assert ask("POST", "/none/messages", b"x").status == 410
        locked = ask("POST", "/orders/messages/head?timeout=5")
        place = locked.headers["Location"].partition("localhost")[2]
        assert ask("POST", place).status == 200
        assert ask("DELETE", place).status == 200
        assert ask("DELETE", "/orders/messages/head?timeout=0").status == 204
        token = ""
        assert ask("POST", "/orders/messages", b"x").status == 401

    assert site.counted() == {
        ("orders", "send", "accepted", 2): 2,
        ("none", "send", "refused", 1): 1,
        ("orders", "receive", "accepted", 2): 2,
        ("orders", "renew", "accepted", 0): 1,
        ("orders", "settle", "accepted", 0): 1,
        ("orders", "poll", "accepted", 0): 1,
    }
    assert {row["connection"] for row in rows(site.folder)} == {"http"}


def test_websockets_are_a_connection_of_their_own(site: Site) -> None:
    with site.run() as namespace:
        plain = namespace.connection_string
        client = ServiceBusClient.from_connection_string(
            plain.replace("UseDevelopmentEmulator=true;", ""),
            custom_endpoint_address=f"sb://localhost:{namespace.https_port}",
            transport_type=TransportType.AmqpOverWebsocket,
            connection_verify=namespace.ca_file,
        )
        with client, client.get_queue_sender("orders") as sender:
            sender.send_messages(message())

    assert site.totals("operation", "connection") == {("send", "amqp-ws"): 1}


def test_two_shards_count_as_one_namespace(tmp_path: Path) -> None:
    queues: list[Any] = [f"queue-{number}" for number in range(6)]
    queues += [{"name": "wide", "enable_partitioning": True}]
    site = Site(tmp_path / "ledger", queues=queues, topics=[], shards=2)
    with site.run() as namespace, namespace.client() as client:
        for number in range(6):
            with client.get_queue_sender(f"queue-{number}") as sender:
                sender.send_messages([message() for _ in range(number + 1)])
        with client.get_queue_sender("wide") as sender:
            for _ in range(10):
                sender.send_messages(message())
        with client.get_queue_receiver("wide") as receiver:
            left = 10
            while left:
                received = receiver.receive_messages(left, max_wait_time=5)
                for each in received:
                    receiver.complete_message(each)
                left -= len(received)
            assert len(receiver.peek_messages(5)) == 0
            assert receiver.receive_messages(1, max_wait_time=0.1) == []

    assert site.counted() == {
        **{(f"queue-{n}", "send", "accepted", 1): n + 1 for n in range(6)},
        ("wide", "send", "accepted", 1): 10,
        ("wide", "receive", "accepted", 1): 10,
        ("wide", "settle", "accepted", 0): 10,
        ("wide", "peek", "accepted", 0): 1,
        ("wide", "poll", "accepted", 0): 1,
    }


def test_requests_to_the_console_count_as_those_of_the_http_api(site: Site) -> None:
    with site.run() as namespace:
        client = ConsoleClient(namespace.http_port).sign_in()
        client.get()
        client.get("static/console.css")
        client.post("send?path=orders", {"body": "x", "copies": "3"})
        client.post("send?path=orders", {"body": "x" * 70_000})
        client.get("entity", path="orders")
        client.get("message", path="orders", sequence=1)
        client.post("message/delete?path=orders&sequence=1", {})
        client.get("entity", path="missing")

    assert site.counted() == {
        ("", "manage", "accepted", 0): 1,
        ("orders", "send", "accepted", 1): 3,
        ("orders", "send", "accepted", 2): 2,
        ("orders", "peek", "accepted", 0): 2,
        ("orders", "manage", "accepted", 0): 1,
        ("missing", "peek", "refused", 0): 1,
    }
    assert set(site.totals("connection")) == {("http",)}


def test_metrics_have_the_rows_of_the_ledger(site: Site) -> None:
    with site.run() as namespace:
        connection = http.client.HTTPConnection("127.0.0.1", namespace.http_port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()

    assert 'twinbus_ledger_rows_written_total{namespace="testing"} 0.0' in text
    assert 'twinbus_ledger_rows_dropped_total{namespace="testing"} 0.0' in text


def test_no_secret_and_nothing_of_a_message_is_in_a_ledger(site: Site) -> None:
    planted = "planted-5af1c0"
    with site.run() as namespace, namespace.client() as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(
                ServiceBusMessage(
                    f"{planted}-body",
                    message_id=f"{planted}-id",
                    subject=f"{planted}-subject",
                    content_type=f"{planted}-type",
                    correlation_id=f"{planted}-correlation",
                    application_properties={f"{planted}-name": f"{planted}-value"},
                )
            )
        with client.get_queue_receiver("orders") as receiver:
            (received,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.dead_letter_message(
                received, f"{planted}-reason", f"{planted}-description"
            )
        with namespace.admin_client() as manager:
            manager.get_queue("orders")
        signed = make_token("http://localhost/", DEV_KEY_NAME, Secret(DEV_KEY_TEXT), 1)
        connection = http.client.HTTPConnection("127.0.0.1", namespace.http_port)
        connection.request(
            "POST", "/orders/messages", planted, {"Authorization": signed}
        )
        connection.getresponse().read()
        connection.close()

    said = json.dumps(rows(site.folder), default=str)
    raw = b"".join(p.read_bytes() for p in site.folder.rglob("*") if p.is_file())
    assert "orders" in said
    for secret in (planted, DEV_KEY_TEXT, signed, "sig=", "SharedAccessSignature"):
        assert secret not in said
        assert secret.encode() not in raw
