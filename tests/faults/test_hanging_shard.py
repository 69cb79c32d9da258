"""While the disk of one shard hangs, clients of the other shards go on.

A real server has four shards in folders of their own. strace holds a system call on the
files of one shard for as long as the test wants, as a disk does that does not answer,
and official clients work on all of them. Work is counted, never time: the others finish
theirs, and a send to the hanging shard is accepted at a second attempt, since another
shard keeps it. `make campaigns` does that with every kind of call, and with the first
shard too, which keeps the namespace's own rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.faults.sdk_story import connect
from tests.faults.traced_disk import HANG, sick_disk
from twinbus.testing.server_process import ServerProcess

SHARDS = 4
ROUND_TRIPS = 20
# Clients that wait longer than this have noticed the hanging shard.
_WAIT_SECONDS_MAX = 60

CASES = [
    ("fdatasync", 2),
    *(
        pytest.param(call, shard, marks=pytest.mark.campaign)
        for call, shard in [
            ("fdatasync", 0),
            ("pwrite64", 0),
            ("pwrite64", 2),
            ("pread64", 0),
            ("pread64", 2),
        ]
    ),
]


@contextmanager
def serving(folder: Path) -> Iterator[tuple[ServerProcess, list[Path]]]:
    """A server with a queue in each shard, and nothing read from its files yet."""
    folders = [folder / f"disk-{number}" for number in range(SHARDS)]
    queues: dict[str, object] = {f"q{number}": {} for number in range(SHARDS)}
    config = {"queues": queues, "shards": [str(each) for each in folders]}
    with ServerProcess(folder / "server", config) as server:
        assert server.stop() == 0
        server.start()
        yield server, folders


def send_one(connection_string: str, queue: str, body: str) -> None:
    """Send a message with the client's own retries."""
    client = ServiceBusClient.from_connection_string(connection_string)
    with client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(body))


def make_round_trips(connection_string: str, queue: str, count: int) -> list[str]:
    """Send, receive and complete one message after the other; returns their bodies."""
    completed = []
    client = connect(connection_string)
    with (
        client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        for number in range(count):
            sender.send_messages(ServiceBusMessage(f"{queue} {number}"))
            (message,) = receiver.receive_messages(1, max_wait_time=_WAIT_SECONDS_MAX)
            receiver.complete_message(message)
            completed.append(str(message))
    return completed


@pytest.mark.parametrize(("call", "sick"), CASES)
def test_a_shard_that_hangs_holds_up_no_other(
    tmp_path: Path, call: str, sick: int
) -> None:
    well = [f"q{number}" for number in range(SHARDS) if number != sick]
    with serving(tmp_path) as (server, folders), ThreadPoolExecutor(SHARDS) as pool:
        at = server.connection_string
        with sick_disk(server.pid, call, HANG, folders[sick]) as disk:
            sent = pool.submit(send_one, at, f"q{sick}", "kept elsewhere")
            disk.wait_for_call()

            works = [pool.submit(make_round_trips, at, q, ROUND_TRIPS) for q in well]
            done = [work.result(_WAIT_SECONDS_MAX) for work in works]

            assert done == [[f"{q} {n}" for n in range(ROUND_TRIPS)] for q in well]
            sent.result(_WAIT_SECONDS_MAX)
