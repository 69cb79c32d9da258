"""The wall clock is set by two hours while a real server runs, and while clients do.

libfaketime gives the processes another wall clock, by what a file says; their steady
clocks are the machine's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.faults import clock_client
from tests.faults.clock_client import QUEUE
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, make_token
from twinbus.testing.server_process import ServerProcess

TWO_HOURS = 7200
# Long enough for a slow client, and short enough to wait for its end.
LONG_LOCK_SECONDS = 60
LOCK_SECONDS = 5


def entities(lock_seconds: int) -> dict[str, Any]:
    """A queue whose locks are so long."""
    return {"queues": [{"name": QUEUE, "lock_duration": f"PT{lock_seconds}S"}]}


class WallClock:
    """A wall clock for processes that run under it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        self.set(0)

    def set(self, seconds: int) -> None:
        """Let it be so far ahead of the machine's clock."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}")
        fresh.rename(self._file)

    @property
    def prefix(self) -> list[str]:
        """The words before the command of a process."""
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        assert found, "Install the Debian package faketime."
        return [
            "env",
            f"LD_PRELOAD={found[0]}",
            f"FAKETIME_TIMESTAMP_FILE={self._file}",
            "FAKETIME_NO_CACHE=1",
            "DONT_FAKE_MONOTONIC=1",
        ]


class Program:
    """`clock_client.py` as a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def say(self, command: str) -> str:
        """Give a command, and wait for its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(command, file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()


@contextmanager
def client_program(clock: WallClock, connection_string: str) -> Iterator[Program]:
    process = subprocess.Popen(
        [*clock.prefix, sys.executable, clock_client.__file__, connection_string],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Program(process)
        finally:
            process.kill()


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path)


def takes_token(server: ServerProcess, seconds: int) -> bool:
    """Whether a client may send with a token that ends so many seconds from now."""
    key = Secret(DEV_KEY_TEXT)
    end_s = int(time.time()) + seconds
    token = make_token("sb://127.0.0.1/", DEV_KEY_NAME, key, end_s)
    text = (
        f"Endpoint=sb://127.0.0.1:{server.ports['amqp']};"
        f"SharedAccessSignature={token};UseDevelopmentEmulator=true;"
    )
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        try:
            client.get_queue_sender(QUEUE).send_messages(ServiceBusMessage("token"))
        except ServiceBusError:
            return False
    return True


@pytest.mark.parametrize(
    "wrong_seconds",
    [pytest.param(-TWO_HOURS, marks=pytest.mark.campaign), TWO_HOURS],
)
def test_a_server_whose_clock_is_corrected_agrees_with_its_clients(
    tmp_path: Path, clock: WallClock, wrong_seconds: int
) -> None:
    clock.set(wrong_seconds)
    with ServerProcess(
        tmp_path / "server", entities(LONG_LOCK_SECONDS), prefix=clock.prefix
    ) as server:
        clock.set(0)

        with ServiceBusClient.from_connection_string(
            server.connection_string
        ) as client:
            client.get_queue_sender(QUEUE).send_messages(ServiceBusMessage("a"))
            receiver = client.get_queue_receiver(QUEUE)
            [message] = receiver.receive_messages(1, max_wait_time=20)
            receiver.renew_message_lock(message)
            receiver.complete_message(message)

        assert not takes_token(server, -60)
        assert takes_token(server, 60)
        log = server.log.read_text()
        assert log.count("the clock was set by") == 1
        assert f"set by {-wrong_seconds:+d}.0 seconds" in log


@pytest.mark.campaign
def test_clients_on_a_machine_whose_clock_is_set_back_go_on(
    tmp_path: Path, clock: WallClock
) -> None:
    with (
        ServerProcess(
            tmp_path / "server", entities(LONG_LOCK_SECONDS), prefix=clock.prefix
        ) as server,
        client_program(clock, server.connection_string) as client,
    ):
        assert client.say("send a") == "ok"
        assert client.say("receive") == f"a {LONG_LOCK_SECONDS} 0"
        clock.set(-TWO_HOURS)

        assert client.say("complete") == "ok"
        for _ in range(2):
            assert client.say("send b") == "ok"
            assert client.say("receive") == f"b {LONG_LOCK_SECONDS} 0"
            assert client.say("complete") == "ok"
            assert client.say("reconnect") == "ok"


def test_clients_on_a_machine_whose_clock_is_set_forward_go_on(
    tmp_path: Path, clock: WallClock
) -> None:
    with (
        ServerProcess(
            tmp_path / "server", entities(LOCK_SECONDS), prefix=clock.prefix
        ) as server,
        client_program(clock, server.connection_string) as client,
    ):
        assert client.say("schedule due 3600") == "ok"
        assert client.say("send a") == "ok"
        assert client.say("receive") == f"a {LOCK_SECONDS} 0"
        clock.set(TWO_HOURS)

        # The official client takes the lock for lost, by its own clock. So the message
        # comes again, when the lock has really ended.
        assert client.say("complete") == "MessageLockLostError"
        assert client.say("receive") == f"due {LOCK_SECONDS} 0"
        assert client.say("complete") == "ok"
        assert client.say("receive") == f"a {LOCK_SECONDS} 1"
        assert client.say("complete") == "ok"
        assert client.say("reconnect") == "ok"
        assert client.say("send b") == "ok"
        assert client.say("receive") == f"b {LOCK_SECONDS} 0"
        assert client.say("complete") == "ok"
