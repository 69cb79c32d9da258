"""Many of everything: senders, tasks, threads, loops, processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import warnings
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.client.peer import peering
from tests.client.quiet import quiet
from tests.client.site import QUEUE, Site, body_of, message
from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.message import Message
from twinbus.client.sender import Sender
from twinbus.client.transport.endpoint import Endpoint
from twinbus.errors import (
    CallerError,
    DeadlineExceeded,
    OutcomeUnknown,
    RemoteError,
)
from twinbus.testing.server_process import ServerProcess

SENDERS = 1000
_WAIT_SECONDS = 60.0


async def test_a_thousand_senders_share_one_connection(namespace: Site) -> None:
    client = namespace.client(timeout_seconds=_WAIT_SECONDS)
    async with quiet():
        senders = [client.sender(QUEUE) for _ in range(SENDERS)]

        await asyncio.gather(*(each.send(message()) for each in senders))

        (port,) = namespace.server.ports.values()
        assert len(port.connections) == 1
        live = client._live
        assert live is not None
        # A session for each, and one for tokens.
        assert len(live.engine.sessions) == SENDERS + 1
        await asyncio.gather(*(each.close() for each in senders))
        # The sessions follow their links; this waits behind them.
        await client.sender(QUEUE).send(message())
        assert len(live.engine.sessions) == 2
        assert len(live.links) == 3
        await client.close()


async def test_one_link_too_many_is_refused_before_it_costs_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SESSIONS_PER_CONNECTION_MAX", 4)
    async with peering() as peer:
        endpoint = Endpoint("127.0.0.1", peer.port)
        async with Connection(endpoint, SasKey("n", "k")) as client:
            senders = [client.sender("q") for _ in range(4)]
            for each in senders[:3]:
                await each.send(message())

            with pytest.raises(RemoteError, match="4 links on one") as refused:
                await senders[3].send(message())

            assert refused.value.condition == "amqp:resource-limit-exceeded"
            await senders[0].send(message())
            await senders[0].close()
            await senders[3].send(message())
            assert len(peer.connections) == 1


# -- processes -----------------------------------------------------------------------


def test_a_child_process_is_told_to_make_its_own_connection(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with ServerProcess(tmp_path / "server", {"queues": [QUEUE]}) as server:
        asyncio.run(_fork(server, said))

    text = said.read_text()
    assert "After a fork, make a new" in text


async def _fork(server: ServerProcess, said: Path) -> None:
    async with Connection.from_connection_string(server.connection_string) as client:
        sender = client.sender(QUEUE)
        await sender.send(message())
        child = multiprocessing.get_context("fork").Process(
            target=_in_child, args=(sender, said)
        )
        with warnings.catch_warnings():
            # That a fork is dangerous is what this is about.
            warnings.simplefilter("ignore", DeprecationWarning)
            child.start()
        await asyncio.to_thread(child.join, _WAIT_SECONDS)
        assert child.exitcode == 0
        # What the child did has not touched ours.
        await sender.send(message())


def _in_child(sender: Sender, said: Path) -> None:
    try:
        asyncio.run(_send(sender))
    except CallerError as error:
        said.write_text(error.text)
    # Nothing else of the test may run on.
    os._exit(0)


async def _send(sender: Sender) -> None:
    await sender.send(message())


@pytest.fixture
def server(tmp_path: Path) -> ServerProcess:
    return ServerProcess(tmp_path, {"queues": [QUEUE]})


async def test_accepted_messages_survive_kills_of_the_server(
    server: ServerProcess,
) -> None:
    accepted: set[bytes] = set()
    unknown: set[bytes] = set()
    refused: set[bytes] = set()
    stop = asyncio.Event()
    numbers = count()

    async def work(sender: Sender) -> None:
        while not stop.is_set():
            body = b"%d" % next(numbers)
            try:
                await sender.send(message(body))
                accepted.add(body)
            except OutcomeUnknown:
                unknown.add(body)
            except RemoteError:
                refused.add(body)
                # No client listens: the next one would be told so at once.
                await asyncio.wait([stopped], timeout=0.02)

    with server:
        stopped = asyncio.ensure_future(stop.wait())
        text = server.connection_string
        async with Connection.from_connection_string(text) as client:
            sender = client.sender(QUEUE)
            tasks = [asyncio.ensure_future(work(sender)) for _ in range(32)]
            for _ in range(3):
                await _until_more(accepted, stopped)
                server.kill()
                await asyncio.to_thread(server.start)
            stop.set()
            await asyncio.gather(*tasks, stopped)
            found = await _all(client)

    there = Counter(body_of(each) for each in found)
    assert accepted <= there.keys()
    assert there.keys() <= accepted | unknown
    assert not refused & there.keys()
    assert set(there.values()) == {1}
    assert unknown


async def _until_more(accepted: set[bytes], stopped: asyncio.Future[Any]) -> None:
    aim = len(accepted) + 500
    async with asyncio.timeout(_WAIT_SECONDS):
        while len(accepted) < aim:
            await asyncio.wait([stopped], timeout=0.01)


async def _all(client: Connection) -> list[Message]:
    found: list[Message] = []
    while True:
        start = found[-1].sequence_number + 1 if found else 1
        more = await client.management(QUEUE).peek(250, start)
        if not more:
            return found
        found += more


async def test_a_server_that_hangs_costs_each_send_its_deadline_and_no_more(
    server: ServerProcess,
) -> None:
    with server:
        text = server.connection_string
        async with Connection.from_connection_string(text) as client:
            sender = client.sender(QUEUE)
            await sender.send(message())

            server.pause()
            sends = [sender.send(message(), 0.2) for _ in range(50)]
            ended = await asyncio.gather(*sends, return_exceptions=True)
            fresh = client.sender("other").send(message(), 0.2)
            (late,) = await asyncio.gather(fresh, return_exceptions=True)
            server.resume()

            assert {type(each) for each in ended} == {OutcomeUnknown}
            assert isinstance(late, DeadlineExceeded)
            await sender.send(message())
