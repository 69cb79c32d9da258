"""Bounds on peers, at the limit, one below and one above.

Connections, sessions, links, frames, credit, replies, idle time, and who does not read.
Limits that are large in life are made small here; the code reads them when it needs
them. What a message may be is in `test_limits_messages.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.cbs import RequestLinks, wait_for
from tests.server.raw import RawClient, RawServer, connections_of, serving
from tests.server.strangers import Stranger, meet, until
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.server.access.port import NamespacePort
from twinbus.server.amqp.connection import ServerConnection
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.wire.events import Closed, Delivered, Detached, Ended, Flowed
from twinbus.wire.frames import HEARTBEAT, encode_frame
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import Accepted, Attach, Source, Target, Transfer
from twinbus.wire.session import Session
from twinbus.wire.types import Int

pytestmark = pytest.mark.turns

CONFIG = NamespaceConfig("contoso", queues=(QueueDescription("q"),))
AROUND = pytest.mark.parametrize("extra", [-1, 0, 1])
EXCEEDED = "amqp:resource-limit-exceeded"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RawServer]:
    async with serving(tmp_path, CONFIG) as started:
        yield started


@pytest.fixture
def port(server: RawServer) -> NamespacePort:
    return server.ports["contoso"]


@pytest.fixture
async def client(server: RawServer) -> AsyncIterator[RawClient]:
    connected = await RawClient.connect(server.port)
    yield connected
    connected.abort()


@pytest.fixture
async def session(client: RawClient) -> Session:
    """A session of a client that has a claim."""
    session = await client.session()
    assert await client.authorize(session) == 202
    return session


def connection_of(port: NamespacePort) -> ServerConnection:
    """The server's end of the only connection."""
    (connection,) = connections_of(port)
    return connection


async def works(client: RawClient, session: Session) -> bool:
    """Whether a message can be sent."""
    sender = await client.sender(session, "q")
    outcome = await client.send(sender, sections.encode_message(b"x"))
    return isinstance(outcome, Accepted)


# -- connections -----------------------------------------------------------------------


@AROUND
async def test_connections(
    server: RawServer, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 4)
    clients = []
    for _ in range(min(4, 4 + extra)):
        clients.append(client := await RawClient.connect(server.port))
        assert await client.authorize(await client.session()) == 202

    if extra > 0:
        # All have a claim, so none is dropped.
        stranger = await Stranger.connect(server.port)
        await stranger.wait_lost()
        assert not stranger.received

    for client in clients:
        assert await works(client, await client.session())
        client.abort()


@AROUND
async def test_connections_of_one_address(
    port: NamespacePort, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_PER_ADDRESS_MAX", 3)

    met = [meet(port, "192.0.2.1") for _ in range(3 + extra)]

    refused = [transport.aborted for _, transport in met]
    assert refused == [False, False, False, True][: 3 + extra]
    assert not meet(port, "192.0.2.2")[1].aborted
    loopback = [meet(port, address)[1] for address in ("127.0.0.1", "::1") * 5]
    assert not any(transport.aborted for transport in loopback)
    # One that goes makes room for another.
    met[0][0].connection_lost(None)
    assert not meet(port, "192.0.2.1")[1].aborted


async def test_a_refused_connection_is_not_counted(
    port: NamespacePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_PER_ADDRESS_MAX", 1)
    first, _ = meet(port, "192.0.2.1")

    for _ in range(5):
        connection, transport = meet(port, "192.0.2.1")
        assert transport.aborted
        connection.connection_lost(None)

    assert port.connections == {first}
    assert port.by_address == {"192.0.2.1": 1}


# -- sessions, links and frames --------------------------------------------------------


@AROUND
async def test_sessions(
    client: RawClient, session: Session, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr(limits, "SESSIONS_PER_CONNECTION_MAX", 20)
    for _ in range(19 + min(extra, 0)):
        await client.session()

    if extra > 0:
        client.engine.begin()
        client.flush()
        closed = await client.wait(Closed)
        assert closed.error.condition == EXCEEDED
    else:
        assert await works(client, session)


@AROUND
async def test_links(
    client: RawClient, session: Session, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr(limits, "LINKS_PER_SESSION_MAX", 20)
    other = await client.session()
    for _ in range(20 + min(extra, 0)):
        await client.receiver(other, "q")

    if extra > 0:
        await client_attaches_one_more(client, other)
    # The session with too many is gone; the others do not mind.
    assert await works(client, session)


async def client_attaches_one_more(client: RawClient, session: Session) -> None:
    session.attach("more", True, Attach(source=Source(), target=Target(address="q")))
    client.flush()
    ended = await client.wait(Ended)
    assert ended.error.condition == EXCEEDED


@AROUND
async def test_frames(client: RawClient, session: Session, extra: int) -> None:
    sender = await client.sender(session, "q")
    transfer = Transfer(
        handle=sender.handle, delivery_id=0, delivery_tag=b"t", message_format=0
    )
    overhead = len(encode_frame(session.channel, transfer, big_message(1000))) - 1000
    size = limits.FRAME_BYTES_MAX + extra
    frame = encode_frame(session.channel, transfer, big_message(size - overhead))
    assert len(frame) == size

    client.write(frame)

    if extra > 0:
        assert (await client.wait(Closed)).error.condition.endswith("framing-error")
    else:
        assert await works(client, session)


def big_message(body_bytes: int) -> bytes:
    """A message with a body of that size; the length always has four bytes."""
    return b"\x00\x53\x75\xb0" + body_bytes.to_bytes(4, "big") + bytes(body_bytes)


# -- credit ----------------------------------------------------------------------------


async def test_a_sender_has_a_window_of_credit_that_is_refilled_at_half(
    client: RawClient, session: Session
) -> None:
    sender = await client.sender(session, "q")
    await wait_for(client, lambda _: sender.credit > 0)
    assert sender.credit == limits.CREDIT_WINDOW
    message = sections.encode_message(b"x")

    half = limits.CREDIT_WINDOW // 2
    for number in range(half - 1):
        sender.send(message, b"%d" % number)
    client.flush()
    await client.session()
    assert sender.credit == half + 1
    sender.send(message, b"last")
    client.flush()

    await wait_for(client, lambda e: isinstance(e, Flowed) and e.link is sender)
    await client.session()
    assert sender.credit == limits.CREDIT_WINDOW


@AROUND
async def test_unsettled_deliveries(
    client: RawClient, session: Session, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr(limits, "UNSETTLED_PER_LINK_MAX", 10)
    await fill(client, session, 10 + extra)

    receiver = await client.receiver(session, "q", credit=1000)
    got = [await client.wait(Delivered) for _ in range(min(10, 10 + extra))]
    await client.session()
    assert not any(isinstance(event, Delivered) for event in client.events)

    number = got[0].delivery_id
    receiver.session.dispose(number, number, True, Accepted())
    client.flush()
    if extra > 0:
        # One that is settled makes room for the one that had to wait.
        assert (await client.wait(Delivered)).link is receiver


async def fill(client: RawClient, session: Session, count: int, size: int = 1) -> None:
    """Put messages into the queue."""
    sender = await client.sender(session, "q")
    for _ in range(count):
        outcome = await client.send(sender, big_message(size))
        assert isinstance(outcome, Accepted)


async def test_a_turn_takes_no_more_than_memory_allows(
    server: RawServer,
    client: RawClient,
    session: Session,
    port: NamespacePort,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STAGE_BYTES_MAX", 350_000)
    await fill(client, session, 12, 100_000)
    store = server.host.namespace.store
    taken: list[int] = []
    lock = store.lock

    def counting(*args: Any) -> Any:
        nonce, messages = lock(*args)
        taken.append(len(messages))
        return nonce, messages

    monkeypatch.setattr(store, "lock", counting)
    for _ in range(3):
        await client.receiver(session, "q", credit=100)

    links = {(await client.wait(Delivered)).link for _ in range(12)}

    assert links
    assert sum(taken) == 12
    assert max(taken) == 3


# -- replies ---------------------------------------------------------------------------


async def requests_without_credit(
    client: RawClient, session: Session
) -> tuple[Link, Link]:
    """A pair of links to the management node, on which no reply can go out."""
    links = await RequestLinks.open(client, session, "q/$management")
    links.receiver.grant(0)
    client.flush()
    return links.sender, links.receiver


@AROUND
async def test_replies_without_credit_are_bounded(
    client: RawClient, session: Session, port: NamespacePort, extra: int
) -> None:
    sender, receiver = await requests_without_credit(client, session)
    request = sections.encode_request(
        f"answers-{sender.handle}", {"operation": "none"}, {}
    )
    count = limits.REPLIES_WAITING_MAX + extra
    for number in range(count):
        sender.send(request, b"%d" % number)
    client.flush()

    if extra > 0:
        detached = await client.wait(Detached)
        assert detached.link is receiver
        assert detached.error.condition == EXCEEDED
        assert connection_of(port).reply_bytes == 0
    else:
        receiver.grant(1000)
        client.flush()
        for _ in range(count):
            assert (await client.wait(Delivered)).link is receiver
    assert await works(client, session)


async def test_requests_are_refused_while_replies_are_unread(
    client: RawClient,
    session: Session,
    port: NamespacePort,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REPLY_BYTES_MAX", 250_000)
    await fill(client, session, 1, 100_000)
    sender, receiver = await requests_without_credit(client, session)
    peek = sections.encode_request(
        f"answers-{sender.handle}",
        {"operation": "com.microsoft:peek-message"},
        {"from-sequence-number": 1, "message-count": Int(1)},
    )
    for number in range(5):
        sender.send(peek, b"%d" % number)
    client.flush()
    await client.session()
    receiver.grant(10)
    client.flush()

    replies = [await client.wait(Delivered) for _ in range(5)]

    statuses = [
        sections.Request(reply.payload).application_properties["statusCode"]
        for reply in replies
    ]
    assert statuses == [200, 200, 200, 503, 503]
    assert connection_of(port).reply_bytes == 0


# -- time ------------------------------------------------------------------------------


@pytest.mark.parametrize(("milliseconds", "ends"), [(-1, False), (1, True)])
async def test_idle_connections(
    client: RawClient,
    session: Session,
    port: NamespacePort,
    milliseconds: int,
    ends: bool,
) -> None:
    connection = connection_of(port)
    idle_ms = 2 * limits.IDLE_TIMEOUT_MS + milliseconds
    connection._received_at = asyncio.get_running_loop().time() - idle_ms / 1000 + 5e-4

    connection._check_idle()

    if ends:
        closed = await client.wait(Closed)
        assert closed.error.condition == "amqp:connection:forced"
        await client.wait_lost()
    else:
        assert await works(client, session)


async def test_a_heartbeat_now_and_then_keeps_a_connection(
    client: RawClient, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_TIMEOUT_MS", 100)
    monkeypatch.setattr(limits, "IDLE_LOOK_SECONDS", 0.02)
    later = asyncio.Event()
    for _ in range(10):
        client.write(HEARTBEAT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(later.wait(), 0.05)

    assert await works(client, session)


# -- who does not read -----------------------------------------------------------------


async def stuffed(client: RawClient, session: Session, port: NamespacePort) -> Link:
    """A receiver that has credit for much and reads nothing of it."""
    await fill(client, session, 80, 200_000)
    receiver = await client.receiver(session, "q")
    assert client._transport is not None
    client._transport.pause_reading()
    receiver.grant(1000)
    client.flush()
    connection = connection_of(port)
    await until(lambda: connection.congested)
    return receiver


async def test_a_client_that_does_not_read_is_paused_and_then_closed(
    client: RawClient,
    session: Session,
    port: NamespacePort,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "WRITE_STALL_SECONDS_MAX", 0.3)
    monkeypatch.setattr(limits, "STAGE_BYTES_MAX", 1_000_000)
    await stuffed(client, session, port)
    connection = connection_of(port)
    transport = connection._transport
    assert transport is not None

    assert not transport.is_reading()
    waiting = transport.get_write_buffer_size()
    assert waiting <= limits.WRITE_BUFFER_BYTES_MAX + 2 * limits.STAGE_BYTES_MAX
    # What it would still be sent stays in the queue.
    assert connection.engine.take() == b""
    await until(lambda: not port.connections)


async def test_a_client_that_reads_again_in_time_is_resumed(
    client: RawClient, session: Session, port: NamespacePort
) -> None:
    await stuffed(client, session, port)
    assert client._transport is not None

    client._transport.resume_reading()
    for _ in range(80):
        await client.wait(Delivered)

    assert not connection_of(port).congested
    assert await works(client, session)


async def test_a_closed_connection_that_does_not_read_is_aborted(
    client: RawClient,
    session: Session,
    port: NamespacePort,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await stuffed(client, session, port)
    monkeypatch.setattr(limits, "WRITE_STALL_SECONDS_MAX", 0.1)
    connection = connection_of(port)
    assert connection._stall is not None
    # It would come to an end by that as well, but later.
    connection._stall.cancel()

    connection.close()
    await until(lambda: not port.connections)
