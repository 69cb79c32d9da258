"""The disk of the primary fails: what a pair does depends on the shards beside it.

With one shard a full disk refuses sends, and they go to the backlog. With two, another
shard keeps them, and the pair notices no outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from tests.faults.sick_shard import connect, take_all
from tests.faults.small_disk import fill, mounted
from tests.faults.traced_disk import FAIL, sick_disk
from tests.pairing.real.site import RealPair, message
from twinbus.aio import EventKind

SENDS = 20
# More than the log of the database can take on a full disk without growing.
BODY = b"x" * 20_000
# Longer than the answers of a shard that falls sick.
INTERVAL_SECONDS = 10


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[RealPair]:
    pair = RealPair(folder, *options)
    try:
        yield pair
    finally:
        pair.close()


async def test_a_pair_diverts_when_the_only_shard_is_full(tmp_path: Path) -> None:
    with mounted(tmp_path / "primary", "64m") as disk, serving(tmp_path) as pair:
        queue = pair.queue()
        async with pair.pair() as paired:
            sender = paired.sender(queue)
            await sender.send_messages(message("before"))
            await asyncio.to_thread(fill, disk)
            for number in range(SENDS):
                large = ServiceBusMessage(BODY, message_id=f"{number}")
                await sender.send_messages(large)

            assert EventKind.FAILED_OVER in paired.kinds(queue)
        names = {"before", *map(str, range(SENDS))}
        assert set(pair.backlog()) <= names
        assert str(SENDS - 1) in pair.backlog()


async def test_a_pair_stays_while_another_shard_keeps_sends(tmp_path: Path) -> None:
    with serving(tmp_path, "--shards", "2") as pair:
        server = pair.primary.server
        # The second of them is in the second shard.
        queue = [pair.queue(), pair.queue()][1]
        folder = server.folder / "data" / server.name / "shard-1"
        async with pair.pair(failover_interval=INTERVAL_SECONDS) as paired:
            sender = paired.sender(queue)
            with sick_disk(server.pid, "fdatasync", FAIL, folder) as disk:
                for number in range(SENDS):
                    await sender.send_messages(message(f"{number}"))
                await asyncio.to_thread(disk.wait_for_call)

            assert EventKind.FAILED_OVER not in paired.kinds(queue)
        names = [str(number) for number in range(SENDS)]
        with connect(server) as client:
            found = await asyncio.to_thread(take_all, client, queue, set(names))
        # The first one was refused, and may be there all the same.
        assert list(dict.fromkeys(found)) == names
        assert pair.backlog() == []
