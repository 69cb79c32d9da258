"""What a factory counts for namespaces that are not ours, and what its pair tells."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusServerBusyError,
)

import twinbus
import twinbus.aio
from tests.ledger.reading import events, rows, totals
from tests.pairing.pair_site import wait_for
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.pairing.events import EventKind
from twinbus.testing.namespace import ServedNamespace, serve_namespace
from twinbus.testing.proxy import FaultyProxy

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

ENTITIES: dict[str, Any] = {
    "queues": ["orders", {"name": "slow", "message_rate_per_second": 1}],
    "topics": [{"name": "events", "subscriptions": ["audit"]}],
}
COLUMNS = ("entity", "operation", "outcome")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServedNamespace]:
    settings = {**ENTITIES, "ledger": str(tmp_path / "server")}
    with serve_namespace(settings, manual_clock=True) as namespace:
        yield namespace


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "client"


def message(size_bytes: int = 10) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * size_bytes)


def test_a_blocking_factory_counts_what_it_does(
    server: ServedNamespace, ledger: Path
) -> None:
    made = twinbus.MessagingFactory.from_connection_string(
        server.connection_string, ledger=ledger, retry_total=0
    )
    with made as factory:
        with factory.get_queue_sender("orders") as sender:
            sender.send_messages(message())
            sender.send_messages([message(), message(), message(70_000)])
            with pytest.raises(MessageSizeExceededError):
                sender.send_messages(message(300_000))
            later = datetime.now(UTC) + timedelta(days=30)
            numbers = sender.schedule_messages([message(), message()], later)
            sender.cancel_scheduled_messages([each for each in numbers if each])
        with factory.get_queue_sender("slow") as sender:
            sender.send_messages(message())
            with pytest.raises(ServiceBusServerBusyError):
                sender.send_messages(message())
        with factory.get_queue_receiver("orders") as receiver:
            received = receiver.receive_messages(4, max_wait_time=5)
            while len(received) < 4:
                received += receiver.receive_messages(4, max_wait_time=5)
            receiver.renew_message_lock(received[0])
            for each in received:
                receiver.complete_message(each)
            assert receiver.receive_messages(1, max_wait_time=0.1) == []
        with factory.get_subscription_receiver(
            "events", "audit", max_wait_time=0.1
        ) as receiver:
            assert receiver.peek_messages(1) == []
            assert list(receiver) == []

    # What is too large is refused before it is sent.
    assert totals(ledger, *COLUMNS, "size_class") == {
        ("orders", "send", "accepted", 1): 3,
        ("orders", "send", "accepted", 2): 2,
        ("orders", "schedule", "accepted", 1): 2,
        ("orders", "cancel", "accepted", 0): 2,
        ("slow", "send", "accepted", 1): 1,
        ("slow", "send", "busy", 1): 1,
        ("orders", "receive", "accepted", 1): 3,
        ("orders", "receive", "accepted", 2): 2,
        ("orders", "renew", "accepted", 0): 1,
        ("orders", "settle", "accepted", 0): 4,
        ("orders", "poll", "accepted", 0): 1,
        ("events/subscriptions/audit", "peek", "accepted", 0): 1,
        ("events/subscriptions/audit", "poll", "accepted", 0): 1,
    }
    # As the server calls itself, not by its address.
    assert set(totals(ledger, "namespace", "source", "key", "connection")) == {
        (server.name, "client", DEV_KEY_NAME, "amqp")
    }


async def test_an_async_factory_counts_what_it_does(
    server: ServedNamespace, ledger: Path
) -> None:
    made = twinbus.aio.MessagingFactory.from_connection_string(
        server.connection_string, ledger=ledger
    )
    async with made as factory:
        async with factory.get_topic_sender("events") as sender:
            await sender.send_messages([message(), message()])
        async with factory.get_subscription_receiver(
            "events", "audit", max_wait_time=0.5
        ) as receiver:
            async for each in receiver:
                await receiver.complete_message(each)

    assert totals(ledger, *COLUMNS) == {
        ("events", "send", "accepted"): 2,
        ("events/subscriptions/audit", "receive", "accepted"): 2,
        ("events/subscriptions/audit", "settle", "accepted"): 2,
        ("events/subscriptions/audit", "poll", "accepted"): 1,
    }


def test_a_factory_that_does_nothing_leaves_nothing(
    server: ServedNamespace, ledger: Path
) -> None:
    with twinbus.MessagingFactory.from_connection_string(
        server.connection_string, ledger=ledger
    ):
        pass

    assert not ledger.exists()


@asynccontextmanager
async def paired(
    text: str, away: ServedNamespace, ledger: Path, *, syphon: bool
) -> AsyncIterator[twinbus.aio.MessagingFactory]:
    """A factory with a ledger, paired."""
    factory_of = twinbus.aio.MessagingFactory.from_connection_string
    async with (
        factory_of(text, ledger=ledger, try_timeout=5) as primary,
        factory_of(away.connection_string) as secondary,
        away.async_admin_client() as manager,
    ):
        options = twinbus.aio.SendAvailabilityPairedNamespaceOptions(
            manager,
            secondary,
            backlog_queue_count=1,
            failover_interval=0,
            ping_primary_interval=1,
            primary_name="home",
            enable_syphon=syphon,
        )
        await primary.pair_namespace(options)
        yield primary


async def outage(home: ServedNamespace, away: ServedNamespace, ledger: Path) -> None:
    """Send before, in and after an outage of the primary."""
    with FaultyProxy("127.0.0.1", home.amqp_port) as proxy:
        text = home.connection_string.replace(f":{home.amqp_port}", f":{proxy.port}")
        async with paired(text, away, ledger, syphon=False) as primary:
            told = primary.pairing.events()
            sender = primary.get_queue_sender("orders")
            await sender.send_messages([message() for _ in range(3)])
            proxy.refuse()
            proxy.cut()
            for _ in range(5):
                await sender.send_messages(message())
            proxy.heal()
            await wait_for(told, EventKind.FAILED_BACK)
            await sender.send_messages(message())


async def bring_home(
    home: ServedNamespace, away: ServedNamespace, ledger: Path
) -> None:
    """Let a syphon bring home what waits."""
    async with paired(home.connection_string, away, ledger, syphon=True) as primary:
        await asyncio.to_thread(take, home, 9)
        assert primary._syphon is not None
        for queue in primary._syphon._queues.values():
            assert queue.pump is not None
            await queue.pump.settled()


def take(namespace: ServedNamespace, count: int) -> None:
    """Wait for so many messages of the queue."""
    client = namespace.client()
    with client.get_queue_receiver("orders") as receiver:
        while count > 0:
            count -= len(receiver.receive_messages(count, max_wait_time=10))


async def test_an_outage_is_in_the_ledger_of_the_application(tmp_path: Path) -> None:
    ledger = tmp_path / "client"
    tables = {name: str(tmp_path / name) for name in ("home", "away")}
    with (
        serve_namespace({**ENTITIES, "ledger": tables["home"]}, name="home") as home,
        serve_namespace({"ledger": tables["away"]}, name="away") as away,
    ):
        await outage(home, away, ledger)
        await bring_home(home, away, ledger)

    backlog = "home/x-servicebus-transfer/0"
    counted = totals(ledger, "source", *COLUMNS)
    pings = counted.pop(("client", "orders", "ping", "accepted"))
    assert pings >= 1
    # A send that was cut off may have arrived.
    unknown = counted.pop(("client", "orders", "send", "failed"), 0)
    counted = {key: n for key, n in counted.items() if key[2] not in ("poll", "renew")}
    assert counted == {
        ("client", "orders", "send", "accepted"): 4,
        ("client", backlog, "send", "accepted"): 5,
        ("syphon", backlog, "receive", "accepted"): 5,
        ("syphon", "orders", "send", "accepted"): 5,
        ("syphon", backlog, "settle", "accepted"): 5,
    }
    # The servers have seen the same.
    at_home = totals(tmp_path / "home", *COLUMNS)
    assert at_home["orders", "send", "accepted"] in (9, 9 + unknown)
    assert at_home["orders", "ping", "accepted"] == pings
    at_away = totals(tmp_path / "away", *COLUMNS)
    assert at_away[backlog, "send", "accepted"] == 5
    assert at_away[backlog, "receive", "accepted"] == 5

    names = [event["event"] for event in events(ledger)]
    assert names[0] == "paired"
    for name in ("failed over", "failed back", "syphon progress"):
        assert name in names
    diverted = [event for event in events(ledger) if event["event"] == "diverted"]
    assert sum(event["messages"] for event in diverted) == 5
    assert {event["entity"] for event in diverted} == {"orders"}
    moved = [event for event in events(ledger) if event["event"] == "syphon progress"]
    assert sum(event["messages"] for event in moved) == 5

    said = json.dumps([rows(ledger), events(ledger)], default=str)
    assert DEV_KEY_TEXT not in said
    assert "SharedAccess" not in said.replace(DEV_KEY_NAME, "")
