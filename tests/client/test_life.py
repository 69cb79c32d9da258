"""The life of a connection: opened, shared, broken, replaced, closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client import peer as stages
from tests.client.peer import PeerConnection, peering
from tests.client.site import QUEUE, SESSIONS, Site, message
from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.transport.endpoint import Endpoint
from twinbus.errors import (
    CallerError,
    DeadlineExceeded,
    Disconnected,
    OutcomeUnknown,
    RemoteError,
    Unreachable,
)
from twinbus.wire.events import Delivered
from twinbus.wire.performatives import (
    ACCEPTED,
    RELEASED,
    Error,
    Modified,
    Rejected,
)
from twinbus.wire.performatives import Received as InTransit


def cut(namespace: Site) -> None:
    """End every connection of the server without a word."""
    for port in namespace.server.ports.values():
        for connection in list(port.connections):
            connection.drop("the test cuts it")


async def test_locks_outlive_a_broken_connection(namespace: Site) -> None:
    client = namespace.client()
    await client.sender(QUEUE).send([message(), message()])
    receiver = client.receiver(QUEUE)
    found = await receiver.receive(2)
    cut(namespace)
    with pytest.raises(Disconnected):
        await receiver.receive(1, wait_seconds=10)

    await receiver.complete(found)

    assert await receiver.peek() == []


async def test_a_session_ends_with_its_connection(namespace: Site) -> None:
    receiver = namespace.client().receiver(SESSIONS, ReceiveOptions(session_id="s"))
    await receiver.open()
    waiting = asyncio.ensure_future(receiver.receive())
    await asyncio.wait([waiting], timeout=0)

    cut(namespace)

    with pytest.raises(Disconnected):
        await waiting
    with pytest.raises(Disconnected):
        await receiver.receive()
    with pytest.raises(Disconnected):
        await receiver.session_state()


async def test_a_send_whose_connection_breaks_is_unknown_and_the_next_one_works(
    namespace: Site,
) -> None:
    sender = namespace.client().sender(QUEUE)
    await sender.send(message())
    sending = asyncio.ensure_future(sender.send(message()))
    await asyncio.wait([sending], timeout=0)

    cut(namespace)

    with pytest.raises(OutcomeUnknown):
        await sending
    await sender.send(message())


async def test_a_server_that_says_why_it_closes_is_quoted(namespace: Site) -> None:
    sender = namespace.client().sender(QUEUE)
    await sender.send(message())
    sending = asyncio.ensure_future(sender.send(message()))
    await asyncio.wait([sending], timeout=0)

    for port in namespace.server.ports.values():
        for connection in list(port.connections):
            connection.close(Error("amqp:connection:forced", "Going down."))

    with pytest.raises(OutcomeUnknown, match=r"Going down\.") as unknown:
        await sending
    assert unknown.value.condition == "amqp:connection:forced"


async def test_closing_ends_an_opening_that_is_under_way() -> None:
    async with peering(stages.OPEN) as peer:
        client = Connection(Endpoint("127.0.0.1", peer.port), SasKey("n", "k"))
        opening = asyncio.ensure_future(client.open())
        sending = asyncio.ensure_future(client.sender("q").send(message()))
        await peer.until(lambda: bool(peer.connections))

        await client.close()

        for each in (opening, sending):
            with pytest.raises(Disconnected):
                await each
        await peer.until(lambda: not peer.open_connections)


async def test_many_tasks_learn_that_the_port_is_closed() -> None:
    async with peering() as peer:
        port = peer.port
    async with Connection(Endpoint("127.0.0.1", port), SasKey("n", "k")) as client:
        sender = client.sender("q")

        ended = await asyncio.gather(
            *(sender.send(message()) for _ in range(20)), return_exceptions=True
        )

    assert {type(each) for each in ended} == {Unreachable}


async def test_a_server_that_does_not_read_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deaf(connection: PeerConnection, delivery: Delivered) -> bool:
        connection.transport.pause_reading()
        return False

    monkeypatch.setattr(limits, "CLIENT_SILENCE_SECONDS", 0.1)
    async with peering() as peer:
        peer.on_message = deaf
        endpoint = Endpoint("127.0.0.1", peer.port)
        async with Connection(endpoint, SasKey("n", "k")) as client:
            sender = client.sender("q")
            large = message(b"x" * 250_000)

            ended = await asyncio.gather(
                *(sender.send(large, timeout_seconds=0.3) for _ in range(80)),
                return_exceptions=True,
            )

            kinds = {type(each) for each in ended}
            assert kinds <= {OutcomeUnknown, DeadlineExceeded, Disconnected}
            assert kinds != {OutcomeUnknown}
            peer.on_message = None
            await sender.send(message())
            assert len(peer.connections) == 2


def test_a_connection_belongs_to_one_event_loop() -> None:
    client = Connection(Endpoint("127.0.0.1", 1), SasKey("n", "k"))
    sender: Any = client.sender("q")

    async def use() -> None:
        with pytest.raises(RemoteError):
            await sender.send(message())

    async def use_elsewhere() -> None:
        with pytest.raises(CallerError, match="event loop"):
            await sender.send(message())

    asyncio.run(use())
    asyncio.run(use_elsewhere())


async def test_the_servers_capabilities_are_known_after_opening(
    namespace: Site,
) -> None:
    client = namespace.client()
    assert client.capabilities == []
    assert (client.container_id, client.properties) == ("", {})

    await client.open()

    assert client.capabilities == ["twinbus:ping"]
    assert client.container_id == "contoso"
    assert client.properties["twinbus:instance"].isalnum()


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        (RELEASED, "amqp:released"),
        (Modified(), "amqp:modified"),
        (Rejected(), "amqp:rejected"),
        (Rejected(Error("com.microsoft:server-busy")), "com.microsoft:server-busy"),
    ],
)
async def test_every_outcome_but_accepted_is_a_refusal(
    state: Any, condition: str
) -> None:
    def decide(connection: PeerConnection, delivery: Delivered) -> bool:
        number = delivery.delivery_id
        delivery.link.session.answer(number, number, state)
        return False

    async with peering() as peer:
        peer.on_message = decide
        endpoint = Endpoint("127.0.0.1", peer.port)
        async with Connection(endpoint, SasKey("n", "k")) as client:
            with pytest.raises(RemoteError) as refused:
                await client.sender("q").send(message())

    assert refused.value.condition == condition
    assert type(refused.value) is RemoteError


async def test_an_outcome_that_is_not_settled_is_settled_by_the_client() -> None:
    def decide(connection: PeerConnection, delivery: Delivered) -> bool:
        number = delivery.delivery_id
        session = delivery.link.session
        session.dispose(number, number, False, InTransit())
        session.dispose(number, number, False, ACCEPTED)
        return False

    async with peering() as peer:
        peer.on_message = decide
        endpoint = Endpoint("127.0.0.1", peer.port)
        async with Connection(endpoint, SasKey("n", "k")) as client:
            await client.sender("q").send(message())

            await peer.until(lambda: peer.connections[0].answered == [True])
