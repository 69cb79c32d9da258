"""A program with the official client, told what to do line by line.

Owns one client and the message that it holds. Each line of standard input is a
command, each line of standard output its result. It runs under a clock that a test sets
for the server too. Knows only a connection string.
"""

from __future__ import annotations

import select
import sys
import time
from datetime import UTC, datetime, timedelta

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
)
from azure.servicebus.exceptions import ServiceBusError

QUEUE = "orders"
_WAIT_SECONDS = 20


class Program:
    """What the commands do."""

    def __init__(self, connection_string: str) -> None:
        self._text = connection_string
        self._held: ServiceBusReceivedMessage | None = None
        self._connect()

    def _connect(self) -> None:
        self._client = ServiceBusClient.from_connection_string(self._text)
        self._sender = self._client.get_queue_sender(QUEUE)
        self._receiver = self._client.get_queue_receiver(QUEUE)

    def do_reconnect(self) -> str:
        """Start anew, with a new token."""
        self._client.close()
        self._connect()
        return "ok"

    def do_send(self, body: str) -> str:
        """Send a message."""
        self._sender.send_messages(ServiceBusMessage(body))
        return "ok"

    def do_schedule(self, body: str, seconds: str) -> str:
        """Send a message that is due later."""
        due = datetime.now(UTC) + timedelta(seconds=int(seconds))
        self._sender.schedule_messages(ServiceBusMessage(body), due)
        return "ok"

    def do_receive(self) -> str:
        """Lock a message; says how long it is locked, to the second above."""
        found = self._receiver.receive_messages(1, max_wait_time=_WAIT_SECONDS)
        if not found:
            return "nothing"
        [self._held] = found
        assert self._held.locked_until_utc is not None
        left = self._held.locked_until_utc - datetime.now(UTC)
        seconds = -(-left // timedelta(seconds=1))
        return f"{self._held} {seconds} {self._held.delivery_count}"

    def do_complete(self) -> str:
        """Complete what is held."""
        assert self._held is not None
        self._receiver.complete_message(self._held)
        return "ok"


def _sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


def main() -> None:
    """Obey until the input ends."""
    # The sleep of Python 3.11 fails under libfaketime 0.9.10: it waits until a time of
    # the monotonic clock, which is not faked.
    vars(time)["sleep"] = _sleep
    program = Program(sys.argv[1])
    for line in sys.stdin:
        name, *words = line.split()
        try:
            said: str = getattr(program, f"do_{name}")(*words)
        except ServiceBusError as error:
            said = type(error).__name__
        print(said, flush=True)


if __name__ == "__main__":
    main()
