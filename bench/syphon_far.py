"""A long way to a server: passes everything on, each piece some time later.

Run as `python -m bench.syphon_far TARGET`, the target as JSON; each line that it reads
is answered with its own port. Owns the delay, which holds back no byte behind another:
any number may be on their way. Where each answer takes its time, one task of a syphon
waits, and neither the servers nor the processors are the limit.
"""

from __future__ import annotations

import asyncio
import json
import sys

from bench.target import Target

DELAY_SECONDS = 0.05
_READ_BYTES_MAX = 1 << 18


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on one direction until it ends."""
    loop = asyncio.get_running_loop()
    while data := await reader.read(_READ_BYTES_MAX):
        loop.call_later(DELAY_SECONDS, writer.write, data)
    loop.call_later(DELAY_SECONDS, writer.close)


async def _serve(target: Target) -> None:
    async def accept(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there = await asyncio.open_connection(
            target.host, target.port, limit=_READ_BYTES_MAX
        )
        await asyncio.gather(_carry(reader, there[1]), _carry(there[0], writer))

    server = await asyncio.start_server(
        accept, target.host, 0, limit=_READ_BYTES_MAX, backlog=16
    )
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"ready": True}), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps({"port": port}), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(Target(**json.loads(sys.argv[1]))))
