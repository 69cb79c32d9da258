"""The sync twin: generated, safe for threads, bound to a process."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from tests.client import peer as stages
from tests.client.peer import Peer, peering
from tests.client.site import body_of, message
from tests.sdk.servers import Server, serving
from tools.async_to_sync import SOURCES, TWINS, generate, target
from twinbus.client.credentials import SasKey
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.sync.connection import Connection
from twinbus.client.transport.endpoint import Endpoint
from twinbus.errors import (
    CallerError,
    ClaimRefused,
    DeadlineExceeded,
    OutcomeUnknown,
)

NAME = "contoso"
THREAD = "twinbus-client"

_unused = (f"q{number}" for number in count())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    queues = [{"name": f"q{number}"} for number in range(8)]
    sessions = [{"name": "sessions", "requires_session": True}]
    config = {"namespaces": [{"name": NAME, "queues": queues + sessions}]}
    with serving(tmp_path_factory.mktemp("sync"), config) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Connection]:
    text = server.namespaces[NAME].connection_string
    with Connection.from_connection_string(text, timeout_seconds=10) as connection:
        yield connection


@pytest.fixture
def queue() -> str:
    """A queue that no other test uses."""
    return next(_unused)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    # Clients of other tests may be at work in this process.
    before = set(threading.enumerate())
    yield
    new = set(threading.enumerate()) - before
    assert not [each for each in new if each.name == THREAD]


@pytest.mark.parametrize("name", TWINS)
def test_the_twin_is_as_it_was_generated(name: str) -> None:
    assert target(name).read_text() == generate(name)


def test_there_is_nothing_else_among_the_twins() -> None:
    found = {path.stem for path in (SOURCES / "client" / "sync").glob("*.py")}

    twins = {name.removeprefix("client.") for name in TWINS if "client." in name}
    assert found == {*twins, "__init__"}


def test_what_is_sent_is_received_and_completed(client: Connection, queue: str) -> None:
    with client.sender(queue) as sender:
        sender.send([message(b"%d" % number) for number in range(10)])
        sender.send(message(b"10"))

    with client.receiver(queue, ReceiveOptions(prefetch=20)) as receiver:
        found: list[Message] = []
        while len(found) < 11:
            chunk = receiver.receive(20)
            receiver.complete(chunk)
            found += chunk

    assert [int(body_of(each)) for each in found] == list(range(11))
    assert client.management(queue).peek(1) == []


def test_threads_send_at_once_over_one_link(client: Connection, queue: str) -> None:
    sender = client.sender(queue)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: sender.send(message()), range(400)))

    found = client.receiver(queue, ReceiveOptions(deletes=True)).receive(500)
    assert len(found) == 400


def test_a_session_is_locked_and_keeps_its_state(client: Connection) -> None:
    client.sender("sessions").send(message(b"a", session_id="s"))
    with client.receiver("sessions", ReceiveOptions(next_session=True)) as receiver:
        receiver.open()
        receiver.set_session_state(b"half way")

        (found,) = receiver.receive()
        receiver.complete(found)

        assert receiver.session_id == "s"
        assert receiver.session_state() == b"half way"


def test_errors_come_through_as_they_are(client: Connection) -> None:
    with pytest.raises(ClaimRefused) as refused:
        client.sender("nowhere").send(message())

    assert refused.value.condition == "amqp:not-found"


def test_a_closed_client_refuses_and_can_be_closed_again(client: Connection) -> None:
    client.close()
    client.close()

    with pytest.raises(CallerError):
        client.sender("q0").send(message())


def test_a_forked_child_gets_an_error(client: Connection) -> None:
    client.open()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn that only one thread lives on: that is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        # Only this thread lives here; nothing of the test may run on.
        try:
            client.open(1)
        except CallerError as error:
            os.write(writing, error.text.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)

    assert "fork" in text
    client.open()


def blocking_send(peer: Peer, timeout_seconds: float) -> None:
    endpoint = Endpoint("127.0.0.1", peer.port)
    key = SasKey("name", "key")
    with Connection(endpoint, key, timeout_seconds=timeout_seconds) as client:
        client.sender("q").send(message())


@pytest.mark.parametrize("stage", [stages.NOTHING, stages.OPEN, stages.ATTACH])
async def test_a_silent_server_does_not_hold_a_thread(stage: str) -> None:
    async with peering(stage) as peer:
        with pytest.raises(DeadlineExceeded):
            await asyncio.to_thread(blocking_send, peer, 1.0)

        await peer.until(lambda: not peer.open_connections)


async def test_no_outcome_in_time_is_unknown() -> None:
    async with peering(stages.OUTCOME) as peer:
        with pytest.raises(OutcomeUnknown):
            await asyncio.to_thread(blocking_send, peer, 1.0)
