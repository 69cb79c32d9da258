"""A disk full of messages: sends are refused in time, and consumers can empty it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.faults.small_disk import fill, mounted
from tests.server.raw import RawClient
from twinbus.clock import Now
from twinbus.errors import StoreFault
from twinbus.pairing.rules.classification import Verdict, verdict_of
from twinbus.pairing.rules.ping import ping_message
from twinbus.store.base import Lock
from twinbus.store.opening import open_store
from twinbus.store.records import Record
from twinbus.store.sqlite.reserve import FILE_NAME, FileSpace, Reserve
from twinbus.store.sqlite.store import SqliteStore
from twinbus.testing.server_process import ServerProcess
from twinbus.wire.performatives import Accepted, Rejected

NOW = Now.at(1000)
MIB = 1 << 20
DISK_BYTES = 64 * MIB
BODY = b"x" * 200_000
# As without --dev; a twentieth of the disk is less.
OPTIONS = ("--reserve", str(128 * MIB))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", f"{DISK_BYTES}") as folder:
        yield folder


def serve(disk: Path) -> ServerProcess:
    return ServerProcess(disk, {"queues": {"q": {}}}, options=OPTIONS)


def client_of(server: ServerProcess) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        server.connection_string, retry_total=0
    )


def send_until_refused(client: ServiceBusClient) -> tuple[list[str], Exception]:
    """Send until a message is refused: the ids of those accepted, and the error."""
    accepted: list[str] = []
    with client.get_queue_sender("q") as sender:
        for number in range(2 * DISK_BYTES // len(BODY)):
            try:
                sender.send_messages(ServiceBusMessage(BODY, message_id=f"{number}"))
            except ServiceBusError as error:
                return accepted, error
            accepted.append(f"{number}")
    raise AssertionError("the disk never filled")


def drain(client: ServiceBusClient, count: int) -> list[str]:
    """Receive and complete so many messages; their ids in order."""
    found: list[str] = []
    with client.get_queue_receiver("q") as receiver:
        while len(found) < count:
            messages = receiver.receive_messages(20, max_wait_time=30)
            assert messages, f"no more after {len(found)}"
            for message in messages:
                receiver.complete_message(message)
                found.append(str(message.message_id))
    return found


def health(server: ServerProcess) -> tuple[int, str]:
    url = f"http://127.0.0.1:{server.ports['http']}/health"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_consumers_empty_a_disk_that_is_full_of_messages(disk: Path) -> None:
    with serve(disk) as server, client_of(server) as client:
        accepted, error = send_until_refused(client)
        assert "nearly full" in str(error)
        assert not (disk / "data" / server.name / FILE_NAME).exists()

        found = drain(client, len(accepted))

        assert found == accepted
        again, _ = send_until_refused(client)
        assert len(again) > len(accepted) // 2
        assert drain(client, len(again)) == again


def test_a_disk_that_is_full_of_messages_can_be_purged(disk: Path) -> None:
    with serve(disk) as server, client_of(server) as client:
        accepted, _ = send_until_refused(client)

        command = [sys.executable, "-m", "twinbus.cli.main", "namespace", "purge", "q"]
        where = ["--connection-string", server.connection_string]
        purged = subprocess.run(
            [*command, "--yes", "--json", *where], check=True, capture_output=True
        )

        assert json.loads(purged.stdout) == {"purged": len(accepted)}
        again, _ = send_until_refused(client)
        assert len(again) > len(accepted) // 2


def test_a_full_disk_is_told_to_pairs_pings_and_monitors(disk: Path) -> None:
    with serve(disk) as server, client_of(server) as client:
        _, error = send_until_refused(client)
        status, text = health(server)

        assert verdict_of(error) is Verdict.COUNTED
        assert status == 503
        assert "nearly full" in text
        assert "sends are refused" in server.log.read_text()


async def test_a_ping_is_refused_like_a_send(disk: Path) -> None:
    """It promises that a send would be accepted."""
    with serve(disk) as server:
        client = await RawClient.connect(server.ports["amqp"])
        session = await client.session()
        assert await client.authorize(session) == 202
        sender = await client.sender(session, "q")
        assert isinstance(await client.send(sender, ping_message("s", "1")), Accepted)
        filler = fill(disk, leave_bytes=MIB)
        # The turn of this one finds out.
        await client.send(sender, ping_message("s", "2"))

        refused = await client.send(sender, ping_message("s", "3"))
        filler.unlink()
        await client.send(sender, ping_message("s", "4"))
        accepted = await client.send(sender, ping_message("s", "5"))

        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert "nearly full" in (refused.error.description or "")
        assert isinstance(accepted, Accepted)
        client.abort()


def test_a_server_killed_without_its_reserve_can_still_be_emptied(disk: Path) -> None:
    with serve(disk) as server:
        with client_of(server) as client:
            accepted, _ = send_until_refused(client)
        server.kill()
        server.start()

        with client_of(server) as client:
            _, error = send_until_refused(client)
            found = drain(client, len(accepted))
            again, _ = send_until_refused(client)

        assert "nearly full" in str(error)
        assert found == accepted
        assert again


# -- the file --------------------------------------------------------------------------


def nothing() -> FileSpace:
    return FileSpace(0, 0)


def held(disk: Path) -> int:
    """The bytes that the reserve has on disk, not those that it only claims."""
    file = disk / FILE_NAME
    return file.stat().st_blocks * 512 if file.exists() else 0


def test_the_reserve_is_really_allocated(disk: Path) -> None:
    reserve = Reserve(disk, 128 * MIB)
    reserve.look(nothing)

    assert reserve.size_bytes == DISK_BYTES // 20
    assert held(disk) >= reserve.size_bytes
    assert not reserve.is_given_up


def test_the_reserve_is_given_up_below_half_of_it_and_made_again(disk: Path) -> None:
    reserve = Reserve(disk, 2 * MIB)
    reserve.look(nothing)
    filler = fill(disk, leave_bytes=MIB + 8192)
    reserve.look(nothing)
    at_the_mark = (reserve.is_given_up, held(disk))
    filler.unlink()
    filler = fill(disk, leave_bytes=MIB - 8192)

    reserve.look(nothing)
    below = (reserve.is_given_up, held(disk))
    filler.unlink()
    reserve.look(nothing)

    assert at_the_mark == (False, 2 * MIB)
    assert below == (True, 0)
    assert (reserve.is_given_up, held(disk)) == (False, 2 * MIB)


def test_sends_resume_at_twice_the_reserve(disk: Path) -> None:
    reserve = Reserve(disk, 2 * MIB)
    fill(disk, leave_bytes=3 * MIB)
    reserve.look(nothing)
    assert reserve.is_given_up

    reserve.look(lambda: FileSpace(0, MIB - 8192))
    just_below = reserve.is_given_up
    # Pages in the database that hold nothing are space as well.
    reserve.look(lambda: FileSpace(0, MIB + 8192))

    assert (just_below, reserve.is_given_up) == (True, False)


def test_what_the_log_has_yet_to_write_is_used_already(disk: Path) -> None:
    reserve = Reserve(disk, 2 * MIB)
    reserve.look(nothing)
    fill(disk, leave_bytes=4 * MIB)

    reserve.look(lambda: FileSpace(4 * MIB, 0))

    assert reserve.is_given_up


def test_the_reserve_holds_what_is_there(disk: Path) -> None:
    """The database has pages to spare, but the disk has not the whole reserve."""
    reserve = Reserve(disk, 2 * MIB)
    fill(disk, leave_bytes=2 * MIB + 512 * 1024)

    reserve.look(lambda: FileSpace(0, 20 * MIB))

    assert not reserve.is_given_up
    assert 1.5 * MIB - 8192 <= held(disk) <= 1.5 * MIB + 8192


def test_without_a_reserve_its_file_is_removed(disk: Path) -> None:
    Reserve(disk, 2 * MIB).look(nothing)
    assert held(disk)

    reserve = Reserve(disk, 0)
    fill(disk)
    reserve.look(nothing)

    assert held(disk) == 0
    assert not reserve.is_given_up


def test_a_command_leaves_the_reserve_alone(disk: Path) -> None:
    SqliteStore.open(disk, reserve_bytes=2 * MIB).close()
    assert held(disk) == 2 * MIB

    open_store(disk).close()

    assert held(disk) == 2 * MIB


def test_a_store_that_stopped_goes_on_with_the_reserve(disk: Path) -> None:
    """Another program has filled the disk between two commits."""
    store = SqliteStore.open(disk, reserve_bytes=2 * MIB)
    store.begin()
    queue = store.insert_entity("queue", "q", "{}", NOW.wall_ms)
    store.append(queue, [Record(b"", BODY)], NOW)
    store.commit()
    fill(disk)
    store.begin()
    # More than the log has room for.
    store.append(queue, [Record(b"", BODY)] * 10, NOW)
    with pytest.raises(StoreFault, match="disk is full"):
        store.commit()

    recovered = store.recover()
    store.begin()
    nonce, messages = store.lock(queue, 10, NOW.steady_ms + 1000, NOW)
    completed = store.complete([Lock(m.id, nonce) for m in messages], NOW)
    store.commit()

    assert (recovered, store.is_nearly_full()) == (True, True)
    assert completed == [True]
    store.close()
