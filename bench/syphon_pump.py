"""The syphon's pumps without Spark: one process, one backlog queue after the other.

Run as `python -m bench.syphon_pump JOURNAL`. Reads one line of JSON for each drain,
with the connection strings of `primary` and `secondary`, and answers with one line when
all queues are empty. It writes the same receipts as a task on Spark, so what differs is
Spark.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid

from bench.syphon_backlog import QUEUES
from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.pairing.pump.destinations import Senders
from twinbus.pairing.pump.pump import Pump
from twinbus.spark.syphon_job.journal import QueueJournal
from twinbus.spark.syphon_job.storage import Storage, storage_at


async def drain(home: Connection, source: Connection, storage: Storage) -> None:
    """Empty all queues."""
    senders = Senders(home)
    for index, path in enumerate(QUEUES):
        journal = QueueJournal(storage, f"pump/{index}", uuid.uuid4().hex)
        pump = Pump(source, senders, path, journal=journal)
        while await pump.step(limits.SYPHON_NEXT_SECONDS):
            pass
        await pump.settled()
        await pump.stop()
        journal.close()


async def _serve() -> None:
    storage = storage_at(sys.argv[1])
    print(json.dumps({"ready": True}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        async with (
            Connection.from_connection_string(command["primary"]) as home,
            Connection.from_connection_string(command["secondary"]) as source,
        ):
            await drain(home, source, storage)
        print(json.dumps({"drained": True}), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve())
