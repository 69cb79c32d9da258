"""A server in a process of its own, whose clock a test moves through its input.

Each line is a number of milliseconds. It answers when the clock is there and all that
was counted before is written; the first line of its output has the connection string.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from twinbus.clock import ManualClock
from twinbus.core.entity import QueueDescription
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.server import Server, ServerOptions


async def serve(folder: Path, start_ms: int) -> None:
    clock = ManualClock(start_ms)
    queue = QueueDescription("orders")
    server = Server(
        ServerOptions(
            [NamespaceConfig("contoso", (queue,))],
            folder / "data",
            ListenOptions("127.0.0.1", {"amqp": 0}),
            dev=True,
            ledger=folder / "ledger",
        ),
        clock,
    )
    ready = await server.start()
    ledger = server.ports["contoso"].ledger
    assert ledger is not None
    await ledger.written()
    print(ready["namespaces"]["contoso"]["connection_string"], flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        clock.advance(int(line))
        ledger.tick()
        await ledger.written()
        print("written", flush=True)
    await server.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
