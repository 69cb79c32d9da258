"""A backlog that another program filled: the official JavaScript client, by hand.

It follows the documented aliases, in every type that they may have. Our syphon brings
the messages home, and the official Python client receives them there.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

from tests.sdk.servers import Server, serving
from twinbus.client.connection import Connection
from twinbus.pairing.pump.destinations import Senders
from twinbus.pairing.pump.pump import Pump
from twinbus.pairing.rules.naming import backlog_path

FOLDER = Path(__file__).parent / "js"
PRIMARY, SECONDARY = "contoso", "fabrikam"
BACKLOG = backlog_path(PRIMARY, 0)
QUEUE, SESSIONS = "orders", "baskets"
RUN_SECONDS_MAX = 60
COUNT = 10
# Whole seconds, as people write them into a text.
SCHEDULED = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
TTL = timedelta(minutes=10)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two namespaces, of which the secondary has a backlog that came home."""
    queues = [{"name": QUEUE}, {"name": SESSIONS, "requires_session": True}]
    config = {
        "namespaces": [
            {"name": PRIMARY, "queues": queues},
            {"name": SECONDARY, "queues": [{"name": BACKLOG}]},
        ]
    }
    with serving(tmp_path_factory.mktemp("interoperable"), config) as started:
        _divert_with_javascript(started.namespaces[SECONDARY].connection_string)
        yield started


def _divert_with_javascript(connection_string: str) -> None:
    wanted = {
        "connection_string": connection_string,
        "backlog": BACKLOG,
        "queue": QUEUE,
        "sessions": SESSIONS,
        "scheduledMs": int(SCHEDULED.timestamp() * 1000),
    }
    done = subprocess.run(
        ["node", "divert.mjs"],
        cwd=FOLDER,
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def arrived(server: Server) -> dict[str, ServiceBusReceivedMessage]:
    """What the official Python client finds at home, by message id."""
    asyncio.run(_bring_home(server))
    text = server.namespaces[PRIMARY].connection_string
    with (
        ServiceBusClient.from_connection_string(text) as client,
        client.get_queue_receiver(QUEUE) as receiver,
        client.get_queue_receiver(SESSIONS, session_id="basket") as basket,
    ):
        found = receiver.peek_messages(COUNT) + basket.peek_messages(COUNT)
    return {str(message.message_id): message for message in found}


async def _bring_home(server: Server) -> None:
    texts = server.namespaces
    async with (
        Connection.from_connection_string(texts[PRIMARY].connection_string) as home,
        Connection.from_connection_string(texts[SECONDARY].connection_string) as source,
    ):
        pump = Pump(source, Senders(home), BACKLOG)
        while pump.counts.received < COUNT:
            await pump.step(RUN_SECONDS_MAX)
        await pump.settled()
        await pump.stop()


@pytest.mark.parametrize(
    ("message_id", "expected"),
    [
        ("path alone", {}),
        ("session", {"session_id": "basket"}),
        ("ttl as time span", {"time_to_live": TTL}),
        ("ttl as long", {"time_to_live": TTL}),
        ("ttl as text", {"time_to_live": TTL}),
        ("scheduled as date", {"scheduled_enqueue_time_utc": SCHEDULED}),
        ("scheduled as text", {"scheduled_enqueue_time_utc": SCHEDULED}),
        ("scheduled in the past", {}),
        (
            "everything",
            {
                "session_id": "basket",
                "time_to_live": TTL,
                "scheduled_enqueue_time_utc": SCHEDULED,
            },
        ),
    ],
)
def test_a_message_that_was_diverted_by_hand_comes_home(
    arrived: dict[str, ServiceBusReceivedMessage],
    message_id: str,
    expected: dict[str, Any],
) -> None:
    message = arrived[message_id]

    assert b"".join(message.body) == f"body of {message_id}".encode()
    assert message.content_type == "text/plain"
    assert message.subject == "by hand"
    assert message.correlation_id == "c"
    assert message.application_properties == {b"mine": 7}
    assert message.session_id == expected.get("session_id")
    is_waiting = "scheduled_enqueue_time_utc" in expected
    assert message.state.name == ("SCHEDULED" if is_waiting else "ACTIVE")
    if is_waiting:
        assert message.scheduled_enqueue_time_utc == SCHEDULED
    if "time_to_live" not in expected:
        assert message.time_to_live is None
    elif is_waiting:
        # It begins with the scheduled time.
        assert message.time_to_live == TTL
    else:
        # The time in the backlog counts.
        assert message.time_to_live is not None
        assert TTL - timedelta(seconds=RUN_SECONDS_MAX) < message.time_to_live < TTL


def test_an_alias_that_cannot_be_read_is_dead_lettered(
    server: Server, arrived: dict[str, ServiceBusReceivedMessage]
) -> None:
    text = server.namespaces[SECONDARY].connection_string
    with (
        ServiceBusClient.from_connection_string(text) as client,
        client.get_queue_receiver(BACKLOG, sub_queue="deadletter") as receiver,
    ):
        (message,) = receiver.peek_messages(COUNT)

    assert message.message_id == "bad ttl"
    assert "bad ttl" not in arrived
    assert message.dead_letter_reason == "AliasInvalid"
    assert "x-ms-timetolive" in str(message.dead_letter_error_description)
