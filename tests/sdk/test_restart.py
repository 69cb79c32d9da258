"""A server that stops and starts again, seen by an official client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from tests.sdk.buses import Bus, nothing_comes, number, take, take_one
from tests.sdk.declared import rule, subscription
from tests.sdk.servers import serving

CONFIG = {
    "namespaces": [
        {
            "name": "kept",
            "queues": [
                {"name": "plain"},
                {"name": "ordered", "requires_session": True},
            ],
            "topics": [
                {
                    "name": "news",
                    "subscriptions": [subscription("some", rule("red", sql="red = 1"))],
                }
            ],
        }
    ]
}
STATE = ServiceBusMessageState


@contextmanager
def connected(folder: Path) -> Iterator[Bus]:
    """A bus to a server that keeps its data in a folder."""
    with serving(folder, CONFIG) as server, ThreadPoolExecutor() as threads:
        bus = Bus(server.namespaces["kept"], server.ca_file)
        try:
            yield bus
        finally:
            bus.close(threads)


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    with connected(tmp_path) as bus:
        bus.send("plain", "locked", "deferred", "buried", "abandoned", "active")
        later = datetime.now(UTC) + timedelta(hours=1)
        bus.sender("plain").schedule_messages(ServiceBusMessage("scheduled"), later)
        receiver = bus.receiver("plain")
        _, deferred, buried, abandoned = take(receiver, 4)
        receiver.defer_message(deferred)
        receiver.dead_letter_message(buried, reason="test")
        receiver.abandon_message(abandoned)
        bus.receiver("ordered", session_id="s").session.set_state(b"state")
        red = ServiceBusMessage("red", application_properties={"red": 1})
        bus.publish("news", red, "other")

    with connected(tmp_path) as bus:
        receiver = bus.receiver("plain")
        peeked = receiver.peek_messages(10)
        assert [(str(message), message.state) for message in peeked] == [
            ("locked", STATE.ACTIVE),
            ("deferred", STATE.DEFERRED),
            ("abandoned", STATE.ACTIVE),
            ("active", STATE.ACTIVE),
            ("scheduled", STATE.SCHEDULED),
        ]
        received = take(receiver, 2)
        assert [(str(message), message.delivery_count) for message in received] == [
            ("abandoned", 1),
            ("active", 0),
        ]
        # The lock is still held, though its holder is gone.
        assert nothing_comes(receiver)
        (again,) = receiver.receive_deferred_messages(number(deferred))
        assert str(again) == "deferred"
        dead = take_one(bus.receiver("plain", sub_queue="deadletter"))
        assert (str(dead), dead.dead_letter_reason) == ("buried", "test")
        session = bus.receiver("ordered", session_id="s").session
        assert session.get_state() == b"state"
        assert bus.collected("news", "some", 1) == ["red"]
