"""A namespace inside the process: durable, private, one process at a time."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError

import twinbus
import twinbus.aio
from tests.pairing.edge_service import PRIMARY_NAME, QUEUE
from twinbus import hosting
from twinbus.core.sas import DEV_KEY_TEXT, parse_connection_string
from twinbus.errors import ClientUnusable, ConfigError
from twinbus.testing.server_process import ServerProcess

ROOT = Path(__file__).parent.parent.parent


def take(namespace: twinbus.EmbeddedNamespace, queue: str) -> list[str]:
    factory = namespace.messaging_factory
    with factory.get_queue_receiver(queue, max_wait_time=1) as receiver:
        found: list[ServiceBusReceivedMessage] = []
        for message in receiver:
            receiver.complete_message(message)
            found.append(message)
    return [str(message) for message in found]


def test_it_has_what_a_pair_needs_of_a_secondary(tmp_path: Path) -> None:
    with twinbus.embedded(tmp_path / "outbox") as outbox:
        outbox.manager.create_queue("orders")
        with outbox.messaging_factory.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello"))

        assert take(outbox, "orders") == ["hello"]


def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    with twinbus.embedded(tmp_path) as outbox:
        outbox.manager.create_queue("orders")
        with outbox.messaging_factory.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        before = parse_connection_string(outbox.connection_string)

    with twinbus.embedded(tmp_path) as outbox:
        after = parse_connection_string(outbox.connection_string)

        assert take(outbox, "orders") == ["a", "b"]
        assert after.key == before.key


def test_a_second_process_is_told_who_has_the_folder(tmp_path: Path) -> None:
    script = f"import twinbus; twinbus.embedded({str(tmp_path)!r})"
    with twinbus.embedded(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )

    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert f"is in use by process {os.getpid()}" in said
    assert said.endswith("stop it or choose another path.")


def test_the_same_process_cannot_have_it_twice(tmp_path: Path) -> None:
    with (
        twinbus.embedded(tmp_path),
        pytest.raises(ConfigError, match="in use by process"),
    ):
        twinbus.embedded(tmp_path)

    twinbus.embedded(tmp_path).close()


def test_only_the_owner_can_read_the_folder_and_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "outbox"
    with twinbus.embedded(folder) as outbox:
        key = parse_connection_string(outbox.connection_string).key
        assert key is not None
        files = [path for path in folder.rglob("*") if path.is_file()]
        with_key = [
            path for path in files if key.reveal().encode() in path.read_bytes()
        ]

        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert with_key
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in with_key)
        assert key.reveal() not in repr(vars(outbox.messaging_factory))


def test_the_documented_key_does_not_open_it(tmp_path: Path) -> None:
    with twinbus.embedded(tmp_path) as outbox:
        outbox.manager.create_queue("orders")
        given = parse_connection_string(outbox.connection_string)
        assert given.key is not None
        text = outbox.connection_string.replace(given.key.reveal(), DEV_KEY_TEXT)
        with (
            twinbus.MessagingFactory.from_connection_string(text) as stranger,
            stranger.get_queue_sender("orders") as sender,
            pytest.raises(ServiceBusAuthenticationError),
        ):
            sender.send_messages(ServiceBusMessage("let me in"))


def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    listening = "0A"
    with twinbus.embedded(tmp_path) as outbox:
        port = parse_connection_string(outbox.connection_string).port
        assert port is not None
        found = {
            fields[1].partition(":")[0]
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
            if (fields := line.split())[3] == listening
            and int(fields[1].partition(":")[2], 16) == port
        }

    assert found == {socket.inet_aton("127.0.0.1")[::-1].hex().upper()}


def test_an_embedded_namespace_serves_until_closed_without_references(
    tmp_path: Path,
) -> None:
    def factory() -> twinbus.MessagingFactory:
        outbox = twinbus.embedded(tmp_path)
        outbox.manager.create_queue("orders")
        outbox.manager.close()
        return outbox.messaging_factory

    with factory() as kept:
        gc.collect()
        with kept.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("still here"), timeout=10)

    for server in list(hosting.serving):
        server.stop()


def test_a_process_may_end_without_closing_it(tmp_path: Path) -> None:
    script = f"""
import twinbus
from azure.servicebus import ServiceBusMessage
outbox = twinbus.embedded({str(tmp_path)!r})
outbox.manager.create_queue("orders")
sender = outbox.messaging_factory.get_queue_sender("orders")
sender.send_messages(ServiceBusMessage("accepted"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    with twinbus.embedded(tmp_path) as outbox:
        assert take(outbox, "orders") == ["accepted"]


def test_closing_twice_does_nothing(tmp_path: Path) -> None:
    outbox = twinbus.embedded(tmp_path)
    outbox.close()
    outbox.close()

    with pytest.raises(ValueError, match="closed"):
        outbox.messaging_factory.get_queue_sender("orders")


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(ConfigError, match="Choose another path"):
        twinbus.embedded(file)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_leaves_it_to_its_parent(tmp_path: Path) -> None:
    with twinbus.embedded(tmp_path) as outbox:
        outbox.manager.create_queue("orders")
        sender = outbox.messaging_factory.get_queue_sender("orders")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                sender.send_messages(ServiceBusMessage("from the child"))
            except ClientUnusable:
                outbox.close()
                code = 0
            os._exit(code)
        _, status = os.waitpid(child, 0)
        sender.send_messages(ServiceBusMessage("from the parent"))

        assert os.waitstatus_to_exitcode(status) == 0
        assert take(outbox, "orders") == ["from the parent"]


# -- asyncio ---------------------------------------------------------------------------


async def test_it_is_there_once_it_is_awaited(tmp_path: Path) -> None:
    outbox = await twinbus.aio.embedded(tmp_path)
    try:
        outbox.manager.create_queue("orders")
        async with outbox.messaging_factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("hello"))
        counts = outbox.manager.get_queue_runtime_properties("orders")

        assert counts.active_message_count == 1
    finally:
        await outbox.close()
        await outbox.close()


def test_it_needs_no_library_beyond_those_of_the_package(tmp_path: Path) -> None:
    script = f"""
import asyncio, sys
sys.modules["aiohttp"] = None
import twinbus.aio
async def main():
    async with twinbus.aio.embedded({str(tmp_path)!r}) as outbox:
        outbox.manager.create_queue("orders")
        print([queue.name for queue in outbox.manager.list_queues()])
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "['orders']\n", done.stderr


# -- the outbox of a service at the edge -----------------------------------------------


def test_messages_accepted_by_a_killed_service_reach_the_primary(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "outbox"
    primary = ServerProcess(tmp_path / "primary", {"queues": [QUEUE]})
    try:
        # The primary is away: nothing listens on its port.
        accepted = accepted_before_the_kill(folder, primary.connection_string, 200)
        primary.start()
        arrived = asyncio.run(brought_home(folder, primary.connection_string))
    finally:
        primary.close()

    assert set(accepted) <= set(arrived)
    # The last one may have been accepted without an answer.
    assert len(arrived) - len(accepted) in (0, 1)
    assert len(set(arrived)) == len(arrived)


def accepted_before_the_kill(folder: Path, primary: str, count: int) -> list[str]:
    """Let a service send, and kill it while it does; returns what it was promised."""
    command = [sys.executable, "-m", "tests.pairing.edge_service", str(folder), primary]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as service:
        assert service.stdout is not None
        accepted = [service.stdout.readline().strip() for _ in range(count)]
        service.send_signal(signal.SIGKILL)
        accepted += service.stdout.read().split()
    return accepted


async def brought_home(folder: Path, primary_text: str) -> list[str]:
    """Let the syphon empty the outbox; returns what the primary has then."""
    async with (
        twinbus.aio.embedded(folder) as outbox,
        twinbus.aio.MessagingFactory.from_connection_string(primary_text) as primary,
    ):
        queues = outbox.manager.list_queues_runtime_properties()
        waiting = sum(queue.active_message_count or 0 for queue in queues)
        await primary.pair_namespace(
            twinbus.SendAvailabilityPairedNamespaceOptions(
                outbox.manager,
                outbox.messaging_factory,
                enable_syphon=True,
                primary_name=PRIMARY_NAME,
            )
        )
        found: list[str] = []
        async with primary.get_queue_receiver(QUEUE) as receiver:
            while len(found) < waiting:
                chunk = await receiver.receive_messages(waiting, max_wait_time=10)
                assert chunk, f"only {len(found)} of {waiting} came home"
                for message in chunk:
                    await receiver.complete_message(message)
                found += [str(message) for message in chunk]
            twice = await receiver.peek_messages()
    return [*found, *(str(message) for message in twice)]
