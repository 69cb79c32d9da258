"""The official client, in a process of its own, for the rates that users see today.

Takes the commands of `bench.worker`, and `send_single`: one call per message. Sends are
batches of 100. Run as `python -m bench.sdk_worker TARGET`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bench.messages import BODY_BYTES
from bench.target import QUEUE, Target

_BATCH = 100
_WAIT_SECONDS = 30


def _messages(count: int) -> Iterator[ServiceBusMessage]:
    for number in range(count):
        yield ServiceBusMessage(b"x" * BODY_BYTES, message_id=f"{number:016x}")


class SdkWorker:
    """The client with its links."""

    def __init__(self, target: Target) -> None:
        assert target.connection_string is not None
        client = ServiceBusClient.from_connection_string(target.connection_string)
        self._sender = client.get_queue_sender(QUEUE)
        self._receiver = client.get_queue_receiver(QUEUE, prefetch_count=500)

    def do(self, command: str, count: int) -> float:
        """Carry out a command; returns its seconds."""
        batches = []
        if command != "receive":
            size = 1 if command == "send_single" else _BATCH
            made = list(_messages(count))
            batches = [made[at : at + size] for at in range(0, count, size)]
        started = time.perf_counter()
        for batch in batches:
            self._sender.send_messages(batch)
        if command == "receive":
            self._receive(count)
        return time.perf_counter() - started

    def _receive(self, count: int) -> None:
        rest = count
        while rest:
            taken = self._receiver.receive_messages(
                max_message_count=min(rest, _BATCH), max_wait_time=_WAIT_SECONDS
            )
            assert taken, f"{rest} of {count} messages did not come"
            for message in taken:
                self._receiver.complete_message(message)
            rest -= len(taken)


def main() -> None:
    worker = SdkWorker(Target(**json.loads(sys.argv[1])))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        seconds = worker.do(command["do"], int(command["count"]))
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
