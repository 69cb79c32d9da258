"""A server that stops at any stage: each wait ends by its deadline, leaving nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator

import pytest

from tests.client import peer as stages
from tests.client.peer import Peer, PeerConnection, peering
from tests.client.site import message
from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.receiver import ReceiveOptions
from twinbus.client.transport.endpoint import Endpoint, Proxy
from twinbus.errors import (
    DeadlineExceeded,
    Disconnected,
    OutcomeUnknown,
    RemoteError,
    Unreachable,
)
from twinbus.wire.events import Delivered

TIMEOUT_SECONDS = 1.0
PROMPT_SECONDS = 20.0


def client_of(peer: Peer, endpoint: Endpoint | None = None) -> Connection:
    endpoint = endpoint or Endpoint("127.0.0.1", peer.port)
    key = SasKey("name", "key")
    return Connection(endpoint, key, timeout_seconds=TIMEOUT_SECONDS)


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """No task outlives a test: what the client started, it has ended."""
    before = asyncio.all_tasks()
    yield
    async with asyncio.timeout(PROMPT_SECONDS):
        while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
            await asyncio.wait(left)


# Where a server stops, and what a send waits for then.
WAITED_FOR = {
    stages.NOTHING: "SASL",
    stages.SASL_HEADER: "SASL",
    stages.SASL_OUTCOME: "SASL",
    stages.OPEN: "open",
    stages.BEGIN: "put-token",
    stages.CBS_ATTACH: "put-token",
    stages.CBS_REPLY: "put-token",
    stages.ATTACH: "attach",
    stages.CREDIT: "credit",
}


async def waited_for(stage: str) -> str:
    """What a send says that it has waited for."""
    async with peering(stage) as peer, client_of(peer) as client:
        with pytest.raises(DeadlineExceeded) as late:
            async with asyncio.timeout(PROMPT_SECONDS):
                await client.sender("q").send(message())

        await client.close()
        await peer.until(lambda: not peer.open_connections)
    return late.value.stage


async def test_a_send_ends_in_time_and_was_not_sent() -> None:
    """At all stages at once, since all that happens is a wait for the deadline."""
    found = await asyncio.gather(*map(waited_for, WAITED_FOR))

    assert dict(zip(WAITED_FOR, found, strict=True)) == WAITED_FOR


async def test_a_send_without_an_outcome_is_unknown() -> None:
    async with peering(stages.OUTCOME) as peer, client_of(peer) as client:
        sender = client.sender("q")

        with pytest.raises(OutcomeUnknown) as unknown:
            await sender.send(message())
        with pytest.raises(OutcomeUnknown):
            await sender.send([message(), message()])

        assert isinstance(unknown.value.reason, DeadlineExceeded)
        assert unknown.value.condition == "com.microsoft:timeout"


async def test_a_close_that_is_not_answered_ends_in_time() -> None:
    async with peering(stages.CLOSE) as peer:
        client = client_of(peer)
        await client.sender("q").send(message())

        async with asyncio.timeout(PROMPT_SECONDS):
            await client.close()

        await peer.until(lambda: not peer.open_connections)


async def test_tls_that_is_not_answered_ends_in_time() -> None:
    async with peering(stages.NOTHING) as peer:
        endpoint = Endpoint("127.0.0.1", peer.port, tls=ssl.create_default_context())
        async with client_of(peer, endpoint) as client:
            with pytest.raises(DeadlineExceeded) as late:
                await client.sender("q").send(message())

            assert late.value.stage == "TLS"
            await peer.until(lambda: not peer.open_connections)


async def test_a_websocket_that_is_not_answered_ends_in_time() -> None:
    async with peering(stages.NOTHING) as peer:
        endpoint = Endpoint("127.0.0.1", peer.port, websocket=True)
        async with client_of(peer, endpoint) as client:
            with pytest.raises(DeadlineExceeded) as late:
                await client.sender("q").send(message())

            assert late.value.stage == "WebSocket"
            await peer.until(lambda: not peer.open_connections)


async def test_a_hanging_resolver_ends_at_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()
    resolvers: list[threading.Thread] = []

    def hang(*_: object, **__: object) -> list[object]:
        resolvers.append(threading.current_thread())
        released.wait(PROMPT_SECONDS)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    async with peering() as peer:
        async with client_of(peer, Endpoint("example.invalid")) as client:
            with pytest.raises(DeadlineExceeded) as late:
                await client.sender("q").send(message())

        assert late.value.stage == "connect"
        # Nor would it hold the process when that ends.
        assert [each.daemon for each in resolvers] == [True]
        released.set()


async def test_a_proxy_that_does_not_answer_ends_in_time() -> None:
    async with peering(stages.NOTHING) as peer:
        proxy = Proxy("127.0.0.1", peer.port)
        endpoint = Endpoint("example.invalid", proxy=proxy)
        async with client_of(peer, endpoint) as client:
            with pytest.raises(DeadlineExceeded) as late:
                await client.sender("q").send(message())

            assert late.value.stage == "proxy"
            await peer.until(lambda: not peer.open_connections)


async def test_a_closed_port_is_unreachable() -> None:
    async with peering() as peer:
        port = peer.port
    async with client_of(peer, Endpoint("127.0.0.1", port)) as client:
        with pytest.raises(Unreachable):
            await client.sender("q").send(message())


async def test_a_frame_that_stops_in_the_middle_ends_in_time() -> None:
    def half(connection: PeerConnection, delivery: Delivered) -> bool:
        connection.transport.write(b"\x00\x00\x00\x40\x02\x00")
        return False

    async with peering() as peer, client_of(peer) as client:
        peer.on_message = half

        with pytest.raises(OutcomeUnknown):
            await client.sender("q").send(message())


async def test_a_connection_cut_in_the_middle_of_a_frame_is_unknown_at_once() -> None:
    def cut(connection: PeerConnection, delivery: Delivered) -> bool:
        connection.transport.write(b"\x00\x00\x00\x40\x02\x00")
        connection.transport.close()
        return False

    async with peering() as peer, client_of(peer) as client:
        peer.on_message = cut

        with pytest.raises(OutcomeUnknown) as unknown:
            await client.sender("q").send(message(), timeout_seconds=60)

        assert isinstance(unknown.value.reason, Disconnected)


async def test_bytes_that_are_no_amqp_end_the_connection() -> None:
    def rubbish(connection: PeerConnection, delivery: Delivered) -> bool:
        connection.transport.write(b"\x00\x00\x00\x08\x01\x00\x00\x00")
        return False

    async with peering() as peer, client_of(peer) as client:
        peer.on_message = rubbish

        with pytest.raises(OutcomeUnknown):
            await client.sender("q").send(message(), timeout_seconds=60)
        await peer.until(lambda: not peer.open_connections)


async def test_a_broken_connection_is_replaced_at_the_next_use() -> None:
    async with peering() as peer, client_of(peer) as client:
        sender = client.sender("q")
        await sender.send(message())
        peer.connections[0].transport.abort()
        await peer.until(lambda: not peer.open_connections)
        # The client may learn of it only by this.
        with contextlib.suppress(RemoteError):
            await sender.send(message())

        await sender.send(message())

        assert len(peer.connections) == 2


async def test_many_tasks_open_one_connection_and_one_link() -> None:
    async with peering() as peer, client_of(peer) as client:
        sender = client.sender("q")

        await asyncio.gather(*(sender.send(message()) for _ in range(50)))

        (connection,) = peer.connections
        assert len(connection.links) == 3
        assert len(peer.tokens) == 1


async def test_sends_do_not_wait_for_each_others_outcomes() -> None:
    async with peering(stages.OUTCOME) as peer, client_of(peer) as client:
        sender = client.sender("q")

        sends = [asyncio.ensure_future(sender.send(message())) for _ in range(50)]

        await peer.until(lambda: bool(peer.connections))
        await peer.until(lambda: len(peer.connections[0].messages) == 50)
        assert not any(each.done() for each in sends)
        peer.connections[0].transport.abort()
        ended = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(each) for each in ended} == {OutcomeUnknown}


async def test_a_server_silent_for_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CLIENT_SILENCE_SECONDS", TIMEOUT_SECONDS / 2)
    async with peering(stages.OUTCOME) as peer, client_of(peer) as client:
        sender = client.sender("q")
        with pytest.raises(OutcomeUnknown):
            await sender.send(message())
        peer.stage = stages.NEVER

        await sender.send(message())

        assert [each.lost for each in peer.connections] == [True, False]


async def test_one_late_answer_does_not_cost_the_connection() -> None:
    async with peering(stages.OUTCOME) as peer, client_of(peer) as client:
        sender = client.sender("q")
        with pytest.raises(OutcomeUnknown):
            await sender.send(message())
        peer.stage = stages.NEVER

        await sender.send(message())

        assert len(peer.connections) == 1


async def test_a_send_that_times_out_does_not_stop_the_others() -> None:
    async with peering(stages.ATTACH) as peer, client_of(peer) as client:
        sender = client.sender("q")
        hasty = asyncio.ensure_future(sender.send(message(), timeout_seconds=0.05))
        patient = asyncio.ensure_future(sender.send(message(), timeout_seconds=2))

        with pytest.raises(DeadlineExceeded):
            await hasty

        assert not patient.done()
        with pytest.raises(DeadlineExceeded):
            await patient


async def test_credit_that_comes_late_sends_what_still_waits() -> None:
    async with peering(stages.CREDIT) as peer, client_of(peer) as client:
        sender = client.sender("q")
        with pytest.raises(DeadlineExceeded):
            await sender.send(message(b"gone"))
        waiting = asyncio.ensure_future(sender.send(message(b"kept")))
        await asyncio.wait([waiting], timeout=0)

        peer.stage = stages.NEVER
        peer.connections[0].links[-1].grant(10)
        peer.connections[0].flush()
        await waiting

        (taken,) = peer.connections[0].messages
        assert taken.payload.endswith(b"kept")


async def test_a_receiver_ends_in_time_without_a_word_of_the_server() -> None:
    async with peering() as peer, client_of(peer) as client:
        receiver = client.receiver("q", ReceiveOptions(prefetch=5))

        assert await receiver.receive(1, wait_seconds=0.01) == []

        async with asyncio.timeout(PROMPT_SECONDS):
            await receiver.close()


async def test_a_heartbeat_keeps_the_connection() -> None:
    async with peering() as peer, client_of(peer) as client:
        peer.idle_time_out = 200
        await client.open()

        await peer.until(lambda: peer.connections[0].heartbeats >= 2)

        assert not peer.connections[0].lost


async def test_a_refused_link_says_why_and_can_be_asked_for_again() -> None:
    async with peering(stages.ATTACH) as peer, client_of(peer) as client:
        sender = client.sender("q")
        with pytest.raises(DeadlineExceeded):
            await sender.send(message())
        connection = peer.connections[0]
        connection.engine.close(None)
        peer.stage = stages.NEVER
        connection.flush()

        with pytest.raises(RemoteError):
            await sender.send(message(), timeout_seconds=0)
        await sender.send(message())
