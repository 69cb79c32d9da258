"""Thousands of peers that say nothing do not slow an honest one.

The server is a process, and so are the silent peers; this process is the honest client.
Rounds with and without them alternate, since other work on the machine comes and goes.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sdk.servers import serving
from tests.server.cbs import wait_for
from tests.server.raw import RawClient
from twinbus import limits
from twinbus.wire.events import Disposed
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import Accepted

CONFIG = {"namespaces": [{"name": "contoso", "queues": [{"name": "q"}]}]}
MESSAGES_PER_ROUND = 10_000
IN_FLIGHT = 500
ROUNDS = 5


@contextmanager
def silent(port: int, count: int) -> Iterator[None]:
    """Keep silent peers connected while the block runs."""
    command = [
        sys.executable,
        "-m",
        "tests.server.access.silent_peers",
        str(port),
        str(count),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.stdin.close()
            process.wait(30)


async def rate(client: RawClient, sender: Link) -> float:
    """Messages of 1 KiB per second, accepted."""
    loop = asyncio.get_running_loop()
    message = sections.encode_message(bytes(1024))
    start = loop.time()
    sent = accepted = 0
    while accepted < MESSAGES_PER_ROUND:
        while sent < MESSAGES_PER_ROUND and sent - accepted < IN_FLIGHT:
            sender.send(message, b"%d" % sent)
            sent += 1
        client.flush()
        answers = [await wait_for(client, lambda e: isinstance(e, Disposed))]
        answers += [event for event in client.events if isinstance(event, Disposed)]
        client.events.clear()
        for answer in answers:
            assert isinstance(answer.state, Accepted)
            accepted += len(answer.deliveries)
    return MESSAGES_PER_ROUND / (loop.time() - start)


async def rates(client: RawClient, sender: Link) -> list[float]:
    """Some rates; the first is left out, for it has to do with what came before.

    They take some seconds, so that the server has not hung up on silent peers yet.
    """
    return [await rate(client, sender) for _ in range(5)][1:]


async def honest(port: int) -> tuple[RawClient, Link]:
    """A client that has connected just now and may send."""
    client = await RawClient.connect(port)
    session = await client.session()
    assert await client.authorize(session) == 202
    return client, await client.sender(session, "q")


@pytest.mark.campaign
@pytest.mark.timeout(600)
async def test_five_thousand_silent_connections_do_not_slow_a_client(
    tmp_path: Path,
) -> None:
    alone: list[float] = []
    crowded: list[float] = []
    with serving(tmp_path, CONFIG) as server:
        port = server.namespaces["contoso"].amqp_port
        client, sender = await honest(port)
        for _ in range(ROUNDS):
            alone += await rates(client, sender)
            with silent(port, limits.CONNECTIONS_MAX):
                crowded += await rates(client, sender)
                # There is room for one who comes late, too.
                late, late_sender = await honest(port)
                await rate(late, late_sender)
                late.abort()
        client.abort()
    ratio = statistics.median(crowded) / statistics.median(alone)
    print(
        f"\n{limits.CONNECTIONS_MAX} silent peers: {statistics.median(crowded):,.0f} "
        f"messages/s beside {statistics.median(alone):,.0f} without, {ratio:.2f}x"
    )

    assert ratio >= 0.9
