"""A server under its supervisor, both real processes, and ways to hurt them."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.client.sync.connection import Connection
from twinbus.errors import TwinbusError
from twinbus.wire.message.sections import encode_message

ROOT = Path(__file__).resolve().parents[3]
_SICK = "tests.server.setup.sick_server"
_WAIT_SECONDS_MAX = 60
# Short, so that tests need not wait for five seconds.
QUICK = {"HEARTBEAT_SECONDS": 0.1, "HEARTBEAT_SILENCE_SECONDS_MAX": 1.0}


class SupervisedSite:
    """A running supervisor with its server."""

    def __init__(self, process: subprocess.Popen[str], data: Path) -> None:
        self.process = process
        self.data = data
        # All that was logged so far.
        self.log = ""
        line = process.stdout.readline() if process.stdout else ""
        assert line, process.stderr.read() if process.stderr else ""
        self.ready: dict[str, Any] = json.loads(line)
        # The server's process id, which changes.
        self.pid: int = self.ready["pid"]

    @property
    def amqp_port(self) -> int:
        ((_, described),) = self.ready["namespaces"].items()
        return int(described["amqp_port"])

    @property
    def connection_string(self) -> str:
        ((_, described),) = self.ready["namespaces"].items()
        return str(described["connection_string"])

    def hurt(self, number: int) -> None:
        """Send a signal to the server, not to its supervisor."""
        os.kill(self.pid, number)

    def stall(self) -> None:
        """Let the event loop stand still; returns when it does."""
        self.hurt(signal.SIGUSR1)
        self.wait_for_log("the loop stalls")

    def crash(self) -> None:
        """Kill the server; returns when it is gone."""
        pidfd = os.pidfd_open(self.pid)
        self.hurt(signal.SIGKILL)
        wait_for_end(pidfd)
        os.close(pidfd)

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        """Read the log until a line has it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern!r} in\n{self.log}")

    def wait_for_restart(self) -> None:
        """Wait until the server is back."""
        found = self.wait_for_log(r"the server is back as process (\d+)")
        self.pid = int(found[1])

    def wait_for_bundle(self) -> dict[str, Any]:
        """Wait for the next diagnostics bundle, and read it."""
        found = self.wait_for_log(r"twinbus diagnostics show (\S+) ")
        file = self.data / "diagnostics" / f"{found[1]}.json"
        bundle: dict[str, Any] = json.loads(file.read_text())
        return bundle

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the supervisor; returns its exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end of the supervisor; returns its exit code."""
        out, err = self.process.communicate(timeout=_WAIT_SECONDS_MAX)
        self.log += err
        assert out == "", "there is one line on standard output"
        return self.process.returncode


@contextmanager
def supervised(
    folder: Path,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    limits: Mapping[str, float] | None = None,
) -> Iterator[SupervisedSite]:
    """Run `twinbus serve` with its supervisor until the block ends."""
    data = folder / "data"
    command = [sys.executable, "-m", _SICK, "serve", "--dev", "--namespace", "contoso"]
    command += ["--data", str(data), "--amqp-port", "0", "--http-port", "0", *options]
    sick = json.dumps({**QUICK, **(limits or {})})
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SICK_LIMITS": sick, **(environment or {})},
    )
    with process:
        try:
            yield SupervisedSite(process, data)
        finally:
            process.kill()
            for stream in (process.stdout, process.stderr):
                # They end with the server, which notices that it is alone.
                if stream is not None and not stream.closed:
                    stream.read()


def wait_for_end(pidfd: int) -> None:
    """Wait for the end of a process that is not a child of this one."""
    found, _, _ = select.select([pidfd], [], [], _WAIT_SECONDS_MAX)
    assert found


def answer_to_header(client: socket.socket) -> bytes:
    """What a server says to the first bytes of an AMQP client."""
    header = b"AMQP\x03\x01\x00\x00"
    client.sendall(header)
    return client.recv(8)


def configured(folder: Path, *queues: str, key: str = "") -> list[str]:
    """Options of a server with these queues, and with a rule that has this key."""
    namespace: dict[str, Any] = {"name": "contoso"}
    # What a server held for a client when it was killed comes back soon.
    namespace["queues"] = [{"name": name, "lock_duration": "PT5S"} for name in queues]
    if key:
        rule = {"name": "all", "rights": ["Manage"], "primary_key": key}
        namespace["authorization_rules"] = [rule]
    file = folder / "config.json"
    file.write_text(json.dumps({"namespaces": [namespace]}))
    return ["--config", str(file)]


def send(site: SupervisedSite, queue: str, *messages: ServiceBusMessage) -> None:
    text = site.connection_string
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(list(messages))


def send_in_vain(site: SupervisedSite, queue: str, body: str) -> None:
    """Send what must fail, with a client that leaves no socket open then."""
    connect = Connection.from_connection_string
    with (
        connect(site.connection_string) as connection,
        pytest.raises(TwinbusError),
    ):
        connection.sender(queue).send(encode_message(body.encode()))
