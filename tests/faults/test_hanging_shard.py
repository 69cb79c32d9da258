"""While the disk of one shard hangs, clients of the other shards go on.

A real server has four shards in folders of their own. strace holds a system call on the
files of one shard for as long as the test wants, as a disk does that does not answer,
and official clients work on all of them. Work is counted, never time: the others finish
theirs while a send to the hanging shard has no answer. `make campaigns` does that with
every kind of call, and with the first shard too, which keeps the namespace's own rows.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from tests.faults.sdk_story import connect
from twinbus.testing.server_process import ServerProcess

SHARDS = 4
ROUND_TRIPS = 20
# Longer than any test: it ends when strace lets go.
_HANG_SECONDS = 3600
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


class HangingDisk:
    """strace on a running server: calls of one kind on some files do not return."""

    def __init__(self, pid: int, call: str, files: Sequence[Path]) -> None:
        self._call = call
        inject = f"inject={call}:delay_enter={_HANG_SECONDS}s"
        options = ["-f", "-p", str(pid), "-e", f"trace={call}", "-e", inject]
        options += ["-e", "signal=none"]
        options += [word for file in files for word in ("-P", str(file))]
        self._process = subprocess.Popen(["strace", *options], stderr=subprocess.PIPE)
        self._said = b""
        self._wait_for(b" attached")

    def wait_until_it_hangs(self) -> None:
        """Wait until the server has made a call that does not return."""
        self._wait_for(f"{self._call}(".encode())

    def _wait_for(self, text: bytes) -> None:
        assert self._process.stderr is not None
        while text not in self._said:
            piece = os.read(self._process.stderr.fileno(), 65536)
            assert piece, f"strace has ended: {self._said.decode(errors='replace')}"
            self._said += piece

    def release(self) -> None:
        """Let the calls return, and no longer look at the server."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.communicate()


@contextmanager
def hanging(pid: int, call: str, folder: Path) -> Iterator[HangingDisk]:
    """Let calls on the database of a shard hang until the block ends."""
    files = [folder / name for name in ("messages.db", "messages.db-wal")]
    disk = HangingDisk(pid, call, files)
    try:
        yield disk
    finally:
        disk.release()


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
    client = connect(connection_string)
    with client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(body), timeout=_HANG_SECONDS)


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
        with hanging(server.pid, call, folders[sick]) as disk:
            waiting = pool.submit(send_one, at, f"q{sick}", "held up")
            disk.wait_until_it_hangs()

            works = [pool.submit(make_round_trips, at, q, ROUND_TRIPS) for q in well]
            done = [work.result(_WAIT_SECONDS_MAX) for work in works]

            assert not waiting.done()
        assert done == [[f"{q} {n}" for n in range(ROUND_TRIPS)] for q in well]
        # The disk answers again: the message is accepted, and it is there once.
        waiting.result()
        assert make_round_trips(at, f"q{sick}", 2) == ["held up", f"q{sick} 0"]
