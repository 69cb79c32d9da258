"""The primary has too much to do: sends wait and are accepted, and nothing fails over.

The disk of the primary is slow by a rehearsed fault, and another client floods a queue
until it is denied. The paired send to the same queue is denied, waits ten seconds, and
goes to the primary.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.pairing.real.site import Leftovers, RealPair, message
from twinbus.client.sync.connection import Connection
from twinbus.errors import RemoteError
from twinbus.wire.message.sections import encode_message

# Between the two levels of the commit latency, which are 0.25 and 1 s.
SLOW_SECONDS = 0.5
BUSY = "com.microsoft:server-busy"
BUSY_SECONDS = 10
LARGE = encode_message(b"x" * 200_000, {0: "flood"})
# So many in a row make sure that the next one is denied, too.
DENIED = 30


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[RealPair]:
    """A primary that is throttled by its commits, which is off for development."""
    pair = RealPair(tmp_path, "--throttle-commit", "0.25")
    yield pair
    pair.close()


def flood(pair: RealPair, queue: str) -> int:
    """Send without a pause until sends are denied; returns how many were."""
    text = pair.primary.server.connection_string
    with Connection.from_connection_string(text, timeout_seconds=60) as connection:
        sender = connection.sender(queue)
        denied = in_a_row = 0
        while in_a_row < DENIED:
            try:
                sender.send(LARGE)
            except RemoteError as error:
                condition = error.condition
                denied, in_a_row = denied + 1, in_a_row + 1
            else:
                in_a_row, condition = 0, BUSY
            assert condition == BUSY
    return denied


def denials(pair: RealPair, queue: str) -> float:
    """How many sends to a queue the primary has denied because of its disk."""
    port = pair.primary.server.ports["http"]
    text = ""
    # An address that asks too often is told so (429), and asks again.
    with (
        suppress(HTTPError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    wanted = {"entity": queue, "facet": "commit_latency"}
    return sum(
        sample.value
        for family in families
        if family.name == "twinbus_messages_denied"
        for sample in family.samples
        if wanted.items() <= sample.labels.items()
    )


async def until_denied_again(pair: RealPair, queue: str, before: int) -> None:
    """The test's own timeout ends what never happens."""
    while await asyncio.to_thread(denials, pair, queue) <= before:
        pass


async def test_a_throttled_primary_is_waited_for(pair: RealPair) -> None:
    queue = pair.queue()
    async with Leftovers(), pair.pair() as paired:
        pair.primary.fault("storage-slow", delay_seconds=SLOW_SECONDS)
        before = await asyncio.to_thread(flood, pair, queue)

        began = monotonic()
        sender = paired.sender(queue)
        sending = asyncio.create_task(sender.send_messages(message("patient")))
        await until_denied_again(pair, queue, before)
        await asyncio.to_thread(pair.primary.mend)
        await sending

        assert monotonic() - began >= BUSY_SECONDS
        assert paired.kinds(queue) == []
        assert paired.state(queue) == "healthy"
        assert pair.backlog() == []
    assert pair.primary.ids(queue)[-1] == "patient"
