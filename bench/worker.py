"""The client under measurement, in a process of its own.

Reads one command per line from standard input and answers each with one line of JSON:
`{"do": "send" | "receive", "count": N}` gives `{"seconds": S}`. The clock runs from the
first byte until the last message is accepted, or completed and confirmed; log-in and
the making of messages are not counted. Run as `python -m bench.worker TARGET`.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import Any

from bench.blocking import BlockingConnection, BlockingSender
from bench.messages import messages
from bench.target import QUEUE, Target
from twinbus.core import sas

_TOKEN_SECONDS = 24 * 3600
_RECEIVE_MAX = 1000


def make_token(target: Target, queue: str = QUEUE) -> tuple[str, str]:
    """The queue's address, and a token for it that the target's key has signed."""
    assert target.connection_string is not None
    given = sas.parse_connection_string(target.connection_string)
    assert given.key is not None
    assert given.key_name is not None
    uri = f"sb://{target.host}/{queue}"
    ends_at_s = int(time.time()) + _TOKEN_SECONDS
    return uri, sas.make_token(uri, given.key_name, given.key, ends_at_s)


def connect(target: Target, queue: str = QUEUE) -> BlockingConnection:
    """Log in as the target wants it."""
    connection = BlockingConnection(target.host, target.port)
    connection.open(target.user, target.password)
    if target.connection_string is not None:
        connection.put_token(*make_token(target, queue))
    return connection


class Worker:
    """One client with its link to send on."""

    def __init__(self, target: Target, queue: str = QUEUE) -> None:
        self._target = target
        self._queue = queue
        self._connection = connect(target, queue)
        self._address = target.address.format(queue)
        self._sender: BlockingSender | None = None
        self._messages: list[bytes] = []

    def do(self, command: dict[str, Any]) -> dict[str, float]:
        """Carry out one command."""
        count = int(command["count"])
        if command["do"] == "send":
            return {"seconds": self.send(count)}
        return {"seconds": self.receive(count)}

    def send(self, count: int) -> float:
        """Send and wait until all are accepted."""
        if self._sender is None:
            self._sender = self._connection.sender(
                self._address, window=self._target.window
            )
        if len(self._messages) != count:
            self._messages = list(messages(count))
            # They live as long as the worker: never look at them again.
            gc.freeze()
        started = time.perf_counter()
        self._sender.send(self._messages)
        return time.perf_counter() - started

    def receive(self, count: int) -> float:
        """Receive, complete, and wait until all completions are confirmed."""
        # Nothing may come between the rounds, so each has a connection of its own.
        with connect(self._target, self._queue) as connection:
            started = time.perf_counter()
            # A deep queue would give more than is taken, for which nothing counts.
            receiver = connection.receiver(self._address, count=count)
            rest = count
            while rest:
                taken = receiver.receive(min(rest, _RECEIVE_MAX))
                assert taken, f"{rest} of {count} messages did not come"
                receiver.accept(taken)
                rest -= len(taken)
            receiver.confirm()
            return time.perf_counter() - started


def main() -> None:
    worker = Worker(Target(**json.loads(sys.argv[1])))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
