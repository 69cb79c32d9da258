"""Many clients in one process that send as fast as they are answered.

Answers `{"queues": {...}, "seconds": S}`, the number of clients of each queue, with
`{"accepted": {queue: [milliseconds, ...]}, "denied": {queue: count}}`. Each client has
a connection and a window of sends. One that is told that the server is busy waits, but
far less than the ten seconds that it is told. The first second is not counted: in it
the server finds out. Run as `python -m bench.flood_worker TARGET`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import uvloop

from bench.target import Target
from twinbus.client.connection import Connection
from twinbus.client.sender import Sender
from twinbus.errors import RemoteError
from twinbus.wire.message.sections import encode_message

_BUSY = "com.microsoft:server-busy"
_MESSAGE = encode_message(b"x" * 4096, {0: "flood"})
# Sends of one client that are on their way at a time.
_WINDOW = 16
_PAUSE_SECONDS = 0.5
WARM_UP_SECONDS = 1.0


class Flood:
    """The clients of one run, and what they were answered."""

    def __init__(self, target: Target, seconds: float) -> None:
        self._target = target
        self._seconds = seconds
        self._counted_from = self._end_at = 0.0
        self._accepted: dict[str, list[float]] = {}
        self._denied: Counter[str] = Counter()

    async def run(self, queues: dict[str, int]) -> dict[str, Any]:
        """Let the clients send until the time is over."""
        assert self._target.connection_string is not None
        make = Connection.from_connection_string
        async with AsyncExitStack() as stack:
            slots = []
            for queue, count in queues.items():
                self._accepted[queue] = []
                # A client that does not flood has one send on its way.
                window = 1 if count == 1 else _WINDOW
                for _ in range(count):
                    connecting = make(self._target.connection_string)
                    connection = await stack.enter_async_context(connecting)
                    sender = connection.sender(queue)
                    await sender.open()
                    slots += [self._send(sender, queue) for _ in range(window)]
            self._counted_from = time.monotonic() + WARM_UP_SECONDS
            self._end_at = self._counted_from + self._seconds
            await asyncio.gather(*slots)
        return {"accepted": self._accepted, "denied": self._denied}

    async def _send(self, sender: Sender, queue: str) -> None:
        while (began := time.monotonic()) < self._end_at:
            try:
                await sender.send(_MESSAGE)
            except RemoteError as error:
                if error.condition != _BUSY:
                    raise
                self._denied[queue] += 1
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                took = time.monotonic() - began
                if began >= self._counted_from:
                    self._accepted[queue].append(took * 1000)


def main() -> None:
    target = Target(**json.loads(sys.argv[1]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        flood = Flood(target, float(asked["seconds"]))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(flood.run(asked["queues"]))), flush=True)


if __name__ == "__main__":
    main()
