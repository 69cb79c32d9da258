"""A server process keeps its data and its ports through whatever is done to it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.testing.server_process import ServerDied, ServerProcess


def _left(server: ServerProcess) -> int:
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        return len(client.get_queue_receiver("orders").peek_messages(10))


def test_a_killed_server_comes_back_with_its_data_on_its_ports(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {"queues": ["orders"]}) as server:
        text = server.connection_string
        with ServiceBusClient.from_connection_string(text) as client:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("a"))

        server.kill()

        assert not server.running
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.ports["amqp"]))
        server.start()
        assert server.connection_string == text
        assert _left(server) == 1
        assert server.stop() == 0


def test_a_paused_server_accepts_and_says_nothing_until_it_goes_on(
    tmp_path: Path,
) -> None:
    with ServerProcess(tmp_path) as server:
        server.pause()
        address = ("127.0.0.1", server.ports["amqp"])
        with socket.create_connection(address, 10) as client:
            client.sendall(b"AMQP\x03\x01\x00\x00")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)

            server.resume()

            client.settimeout(10)
            assert client.recv(4) == b"AMQP"
        server.pause()
        # Death comes to those who stand still, too.
        server.kill()
        assert not server.running


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerDied, match=r"(?i)no such option"),
        ServerProcess(tmp_path, options=["--nonsense"]),
    ):
        pass
