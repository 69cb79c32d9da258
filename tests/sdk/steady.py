"""A plain program of the official client, as people write it, with its own retries.

python -m tests.sdk.steady CONNECTION QUEUE

Sends a message, receives and completes until it has that one, and again, until standard
input ends. Each message that was sent or completed is a line of JSON. A lock that is
lost is no failure: the message was completed, or it comes again.
"""

from __future__ import annotations

import json
import sys
import threading

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import MessageLockLostError

_stopped = threading.Event()


def say(**said: str) -> None:
    print(json.dumps(said), flush=True)


def complete(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    try:
        receiver.complete_message(message)
        say(completed=str(message))
    except MessageLockLostError:
        say(lost=str(message))


def read_to_end() -> None:
    sys.stdin.read()
    _stopped.set()


def main(connection_string: str, queue: str) -> None:
    threading.Thread(target=read_to_end, daemon=True).start()
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        number = 0
        while not _stopped.is_set():
            sender.send_messages(ServiceBusMessage(str(number)))
            say(sent=str(number))
            seen: set[str] = set()
            while str(number) not in seen:
                for message in receiver.receive_messages(10, max_wait_time=30):
                    seen.add(str(message))
                    complete(receiver, message)
            number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
