"""A key is replaced while the official client is at work with it.

Who has the old key is refused, who has the other one notices nothing, and what was
accepted is there. The keys are changed as a user does it, with `twinbus keys`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from tests.sdk.servers import Endpoint, serving

QUEUE = "orders"
CONFIG = {"namespaces": [{"name": "contoso", "queues": [{"name": QUEUE}]}]}
WAIT_SECONDS = 30
# A detach of a link says the second, the refusal of a token the first.
REFUSED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)


def twinbus(endpoint: Endpoint, *args: str) -> Any:
    """Run `twinbus keys` against the running server."""
    command = [sys.executable, "-m", "twinbus.cli.main", "keys", *args, "--json"]
    command += ["--connection-string", endpoint.connection_string]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


class Worker(threading.Thread):
    """Sends until it is told to stop, or refused."""

    def __init__(self, connection_string: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._client = ServiceBusClient.from_connection_string(
            connection_string, retry_total=1, retry_backoff_factor=0.01
        )
        self.sent: list[str] = []
        self.error: ServiceBusError | None = None
        self.begun = threading.Event()
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            with self._client, self._client.get_queue_sender(QUEUE) as sender:
                while not self.stopped.is_set():
                    body = f"{self.name}-{len(self.sent)}"
                    sender.send_messages(ServiceBusMessage(body))
                    self.sent.append(body)
                    self.begun.set()
        except ServiceBusError as error:
            self.error = error

    def end(self) -> None:
        self.stopped.set()
        self.join(WAIT_SECONDS)


def drained(connection_string: str) -> list[str]:
    """The bodies of all messages."""
    found: list[str] = []
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(QUEUE, receive_mode="receiveanddelete") as receiver,
    ):
        while part := receiver.receive_messages(1000, max_wait_time=2):
            found += [str(message) for message in part]
    return found


@pytest.mark.timeout(180)
def test_keys_change_under_load_and_nothing_accepted_is_lost(tmp_path: Path) -> None:
    with serving(tmp_path, CONFIG) as server:
        endpoint = server.namespaces["contoso"]
        keys = twinbus(endpoint, "create", "app", "--right", "Send")
        stays = Worker(endpoint.signed("app", keys["secondary_key"]), "stays")
        stays.start()
        senders = [stays]
        for turn in range(5):
            loses = Worker(endpoint.signed("app", keys["primary_key"]), f"loses-{turn}")
            senders.append(loses)
            loses.start()
            assert loses.begun.wait(WAIT_SECONDS), loses.error
            keys = twinbus(endpoint, "regenerate", "app", "--yes")
            # The server alone stops it.
            loses.join(WAIT_SECONDS)
            assert not loses.is_alive()
            assert isinstance(loses.error, REFUSED), loses.error
        sent_before = len(stays.sent)
        stays.begun.clear()
        assert stays.begun.wait(WAIT_SECONDS)
        stays.end()
        assert stays.error is None
        assert len(stays.sent) > sent_before

        found = drained(endpoint.connection_string)

    accepted = [body for sender in senders for body in sender.sent]
    assert len(found) >= len(accepted)
    assert set(accepted) <= set(found)
    log = server.log.read_text()
    for key in (keys["primary_key"], keys["secondary_key"]):
        assert key not in log
