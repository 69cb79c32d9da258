"""An honest client beside an attack: the official SDK, one message at a time.

Answers `{"seconds": S}` with `{"milliseconds": [...]}`: how long each round trip took,
from the send over the receive to the completion. A round trip that is longer than the
rest of the time is waited for. Run as `python -m bench.honest_worker TARGET`.
"""

from __future__ import annotations

import json
import sys
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bench.target import QUEUE, Target

_WARM_UP = 20
# Some attacks stop a server for a minute.
_WAIT_SECONDS = 120
# The SDK reads for so long with a lock that its writes wait for: with its own 0.2 s, a
# round trip takes 200 ms now and then, whatever the server does.
_SOCKET_SECONDS = 0.01


class HonestWorker:
    """The client with its links."""

    def __init__(self, target: Target) -> None:
        assert target.connection_string is not None
        client = ServiceBusClient.from_connection_string(target.connection_string)
        self._sender = client.get_queue_sender(QUEUE, socket_timeout=_SOCKET_SECONDS)
        self._receiver = client.get_queue_receiver(
            QUEUE, socket_timeout=_SOCKET_SECONDS
        )

    def round_trip(self) -> float:
        """Send, receive and complete one message; returns its milliseconds."""
        started = time.perf_counter()
        self._sender.send_messages(ServiceBusMessage(b"x" * 100))
        (message,) = self._receiver.receive_messages(1, max_wait_time=_WAIT_SECONDS)
        self._receiver.complete_message(message)
        return (time.perf_counter() - started) * 1000

    def run(self, seconds: float) -> list[float]:
        """Go on for so long."""
        end_at = time.monotonic() + seconds
        taken = []
        while time.monotonic() < end_at:
            taken.append(self.round_trip())
        return taken


def main() -> None:
    worker = HonestWorker(Target(**json.loads(sys.argv[1])))
    for _ in range(_WARM_UP):
        worker.round_trip()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        taken = worker.run(float(json.loads(line)["seconds"]))
        print(json.dumps({"milliseconds": taken}), flush=True)


if __name__ == "__main__":
    main()
