"""A folder served in a thread: the queues that it is asked for, and what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.client.sync.connection import Connection
from twinbus.clock import SystemClock
from twinbus.core.entity import QueueDescription
from twinbus.errors import ConfigError
from twinbus.hosting import HostingOptions, QueueFigures, ServerThread
from twinbus.wire.message.sections import encode_message

OPTIONS = HostingOptions(
    kinds=("amqp",), queues=(QueueDescription("Orders"),), parameter="outbox"
)


def test_the_queues_exist_and_are_counted(tmp_path: Path) -> None:
    server = ServerThread(tmp_path, OPTIONS)
    before_ms = SystemClock().now_ms()
    try:
        assert server.queues() == {"orders": QueueFigures(0, 0, None)}
        with Connection.from_connection_string(server.connection_string()) as client:
            client.sender("orders").send([encode_message(b"a"), encode_message(b"b")])
            receiver = client.receiver("orders")
            (locked,) = receiver.receive(1, 5)

            held = server.queues()["orders"]
            receiver.dead_letter([locked], "reason", "description")
            after = server.queues()["orders"]
    finally:
        server.stop()

    assert (held.messages, held.dead_lettered) == (2, 0)
    assert (after.messages, after.dead_lettered) == (1, 1)
    assert held.oldest_ms is not None
    assert before_ms <= held.oldest_ms <= SystemClock().now_ms()


def test_an_error_names_the_parameter_of_the_caller(tmp_path: Path) -> None:
    server = ServerThread(tmp_path, OPTIONS)
    try:
        with pytest.raises(ConfigError, match="choose another outbox"):
            ServerThread(tmp_path, OPTIONS)
    finally:
        server.stop()
