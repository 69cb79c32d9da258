"""Several clients at once in one process, each with a connection and a queue.

Answers as `worker.py` does: the count of a command is for each client, and the clock
runs until the last one is done. The clients are threads, since eight processes would
take the two cores of a small machine from the server.
Run as `python -m bench.shards_worker QUEUE,QUEUE TARGET`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.target import Target
from bench.worker import Worker


class Clients:
    """Clients that start together."""

    def __init__(self, target: Target, queues: Sequence[str]) -> None:
        self._workers = [Worker(target, queue) for queue in queues]
        self._pool = ThreadPoolExecutor(len(queues))

    def do(self, command: dict[str, Any]) -> dict[str, float]:
        """Let all clients carry out one command."""
        started = time.perf_counter()
        done = [self._pool.submit(each.do, command) for each in self._workers]
        for each in done:
            each.result()
        return {"seconds": time.perf_counter() - started}


def main() -> None:
    clients = Clients(Target(**json.loads(sys.argv[2])), sys.argv[1].split(","))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(clients.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
