"""Listening sockets that come from another process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.setup.test_server import Echo, options, say
from twinbus.clock import ManualClock
from twinbus.errors import ConfigError
from twinbus.server.setup import handover
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.server import Server

# Takes the sockets over and lets one client in on each, in the order of their names.
_NEXT_PROGRAM = """
from twinbus.server.setup.handover import received
for name, listening in sorted(received().items()):
    listening.setblocking(True)
    client, _ = listening.accept()
    client.sendall(name.encode())
    client.close()
assert received() == {}
"""


def listening(host: str = "127.0.0.1") -> socket.socket:
    bound = socket.socket()
    bound.bind((host, 0))
    bound.listen()
    return bound


def heard(server: socket.socket) -> bytes:
    with socket.create_connection(server.getsockname(), timeout=10) as client:
        return client.recv(100)


def start_next(sockets: dict[str, socket.socket]) -> int:
    """Run the next program with these sockets, as the supervisor does."""
    pid = os.fork()
    if pid == 0:
        try:
            variables, _ = handover.hand_over(sockets, [])
            command = [sys.executable, "-c", _NEXT_PROGRAM]
            environment = {**os.environ, **variables}
            os.execve(sys.executable, command, environment)  # noqa: S606
        finally:
            os._exit(99)
    return pid


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_sockets_keep_their_names_across_exec() -> None:
    with listening() as first, listening() as second:
        pid = start_next({"contoso.amqp": first, "contoso.http": second})

        said = [heard(first), heard(second)]
        _, status = os.waitpid(pid, 0)

    assert said == [b"contoso.amqp", b"contoso.http"]
    assert status == 0


def test_variables_for_another_process_are_not_for_this_one() -> None:
    script = "from twinbus.server.setup.handover import received; print(received())"
    variables = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "a.amqp"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "{}\n"


async def test_a_server_listens_on_the_sockets_it_was_handed(tmp_path: Path) -> None:
    handed = listening()
    asked = options(tmp_path, "Contoso", sockets={"contoso.amqp": handed})
    server = Server(asked, ManualClock(), Echo)
    ready = await server.start()
    try:
        port = ready["namespaces"]["Contoso"]["amqp_port"]
        assert port == handed.getsockname()[1]
        assert await say(port, b"hello") == b"Contoso hello"
        assert server.sockets == {"contoso.amqp": handed}
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("name", "host", "changes", "text"),
    [
        ("contoso.https", "127.0.0.1", {}, "contoso.https in LISTEN_FDNAMES is not"),
        ("other.amqp", "127.0.0.1", {}, "other.amqp in LISTEN_FDNAMES is not served"),
        ("contoso.amqp", "0.0.0.0", {}, "--dev uses a key that is public"),
        ("contoso.amqp", "0.0.0.0", {"dev": False}, "in clear text"),
    ],
)
async def test_a_socket_that_cannot_be_served_is_refused(
    tmp_path: Path, name: str, host: str, changes: dict[str, object], text: str
) -> None:
    with listening(host) as handed:
        listen = ListenOptions("127.0.0.1", {"amqp": 0})
        asked = options(tmp_path, listen=listen, sockets={name: handed}, **changes)
        server = Server(asked, ManualClock(), Echo)

        with pytest.raises(ConfigError, match=text):
            await server.start()
