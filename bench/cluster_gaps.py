"""The longest time without an accepted send when a node or the primary dies.

One client of ours sends one message after the other, each awaited, and has a list of
nodes: when a send fails it connects to the next. Sends are not repeated by themselves,
so what counts is the time between two that were accepted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from bench.cluster_site import Site
from bench.messages import messages
from bench.target import QUEUE, Target
from twinbus.client.connection import Connection
from twinbus.errors import TwinbusError

# A send that takes longer is given up, and the next node tried.
_SEND_SECONDS = 10.0
# After a refusal, so that a node that answers at once is not asked all the time.
_PAUSE_SECONDS = 0.01


def gap_of_a_killed_node(site: Site, seconds: float) -> float:
    """The client is at the last node, which is killed."""
    nodes = site.targets[::-1]
    kill = site.targets[-1].pid
    return asyncio.run(_gap(nodes, seconds, lambda: os.kill(kill, signal.SIGKILL)))


def gap_of_a_promotion(site: Site, seconds: float) -> float:
    """The primary is killed, and the standby told at once that it is the primary."""

    def promote() -> None:
        site.primary.kill()
        site.standby.query("SELECT pg_promote()")

    return asyncio.run(_gap(site.targets[:-1], seconds, promote))


async def _gap(
    nodes: Sequence[Target], seconds: float, disturb: Callable[[], None]
) -> float:
    """Send for so long before and after the disturbance; the longest gap."""
    sending = asyncio.create_task(_send(nodes, 2 * seconds))
    await asyncio.sleep(seconds)
    await asyncio.to_thread(disturb)
    return await sending


async def _send(nodes: Sequence[Target], seconds: float) -> float:
    [message] = messages(1)
    longest, node = 0.0, 0
    connection = _connect(nodes[node])
    sender = connection.sender(QUEUE)
    await sender.send(message)
    accepted = time.monotonic()
    end = accepted + seconds
    while time.monotonic() < end:
        try:
            await sender.send(message)
        except (TwinbusError, OSError):
            await asyncio.sleep(_PAUSE_SECONDS)
            with suppress(TwinbusError, OSError):
                await connection.close()
            node = (node + 1) % len(nodes)
            connection = _connect(nodes[node])
            sender = connection.sender(QUEUE)
            continue
        now = time.monotonic()
        longest, accepted = max(longest, now - accepted), now
    await connection.close()
    return longest


def _connect(target: Target) -> Connection:
    assert target.connection_string is not None
    text, seconds = target.connection_string, _SEND_SECONDS
    return Connection.from_connection_string(text, timeout_seconds=seconds)
