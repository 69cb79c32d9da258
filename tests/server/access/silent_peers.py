"""Peers that connect and say little or nothing, as a process of their own.

    python -m tests.server.access.silent_peers PORT COUNT

Prints one line when all are connected and answered. Those that the server hangs up on
come back, as long as standard input is open. A process, so that they cost an honest
client nothing but what they cost the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys

from tests.server.strangers import WAYS, Stranger, until

_CONNECTS_AT_A_TIME = 100
_BACK_SECONDS = 1


def allow_files() -> None:
    """Take as many open files as the system lets us."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _stay(peer: Stranger, port: int, way: bytes) -> None:
    """Say what little there is to say, and come back a second after each end."""
    never = asyncio.Event()
    while True:
        peer.transport.write(way)
        await peer.lost.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(never.wait(), _BACK_SECONDS)
        peer = await Stranger.connect(port)


async def run(port: int, count: int) -> None:
    """Keep so many peers connected until standard input ends."""
    ways = list(WAYS.values())
    peers: list[Stranger] = []
    while len(peers) < count:
        some = min(_CONNECTS_AT_A_TIME, count - len(peers))
        peers += await asyncio.gather(*(Stranger.connect(port) for _ in range(some)))
    tasks = [
        asyncio.create_task(_stay(peer, port, ways[number % len(ways)]))
        for number, peer in enumerate(peers)
    ]
    talking = [p for number, p in enumerate(peers) if ways[number % len(ways)]]
    # Until each has the answer to what it said: from now on nothing happens.
    await until(lambda: all(p.received or p.lost.is_set() for p in talking))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    allow_files()
    asyncio.run(run(int(sys.argv[1]), int(sys.argv[2])))
