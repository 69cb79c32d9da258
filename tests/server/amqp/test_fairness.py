"""One client's frames do not keep another from being answered; nothing is lost by it.

Counts what one read and one go of the loop do. No test here looks at a clock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.near import MESSAGE, NearClient
from tests.server.raw import RawClient, RawServer
from tests.server.strangers import until
from twinbus import limits
from twinbus.core.names import CBS
from twinbus.server.access.port import NamespacePort
from twinbus.server.amqp.replies import ReplyNode, reply_node
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.wire.codec import decode
from twinbus.wire.events import Attached, Delivered, Ended
from twinbus.wire.frames import HEARTBEAT, encode_frame
from twinbus.wire.link import Link, LinkState
from twinbus.wire.performatives import (
    SND_SETTLED,
    Attach,
    Flow,
    Source,
    Target,
    Transfer,
)
from twinbus.wire.session import Session

# Attaches, and events other than those and deliveries, that one go takes in.
ATTACHES = limits.READ_WORK_MAX // limits.READ_WORK_OF_ATTACH
EVENTS = limits.READ_WORK_MAX // limits.READ_WORK_OF_EVENT


async def count_messages(server: RawServer) -> int:
    def count(namespace: Namespace, _turn: Turn) -> int:
        entity = namespace.entities.find("q")
        assert entity is not None
        return namespace.store.counts(entity.id).active

    # The commands of one client may come behind the first of all others, and those that
    # did not fit into the turn wait for the next one.
    while list(server.host.pending):
        await server.host.run(count)
    return await server.host.run(count)


@pytest.fixture(autouse=True)
async def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between two goes of a connection, which are over at once."""
    loop = asyncio.get_running_loop()
    later = loop.call_later
    found = []

    def call_later(
        seconds: float, call: Callable[..., object], *values: Any
    ) -> asyncio.Handle:
        if call.__name__ != "_work_off":
            return later(seconds, call, *values)
        found.append(seconds)
        return loop.call_soon(call)

    monkeypatch.setattr(loop, "call_later", call_later)
    return found


# -- one go of a connection ------------------------------------------------------------


async def test_two_thousand_attaches_let_another_client_in(
    port: NamespacePort, client: NearClient, pauses: list[float]
) -> None:
    other = NearClient.connect(port)
    elsewhere = other.session()
    sessions = [client.session() for _ in range(8)]
    before = len(client.heard(Attached))
    for number in range(2000):
        client.sender(sessions[number % 8], "q")

    client.say()

    # One read, one share: no more is read until the rest is taken in.
    assert len([e for e in client.hear() if isinstance(e, Attached)]) == ATTACHES
    assert not client.transport.is_reading()
    other.sender(elsewhere, "q")
    other.say()
    assert type(other.hear()[0]) is Attached
    goes = 1
    while not client.transport.is_reading():
        await asyncio.sleep(0)
        client.hear()
        goes += 1
    assert goes == 2000 // ATTACHES + 1
    # Other clients have some time after each go.
    assert pauses == [limits.READ_PAUSE_SECONDS] * (goes - 1)
    assert len(client.heard(Attached)) == before + 2000


async def test_a_client_with_much_that_is_unfinished_is_read_slowly(
    client: NearClient, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PACED_ASSEMBLY_BYTES", 1000)
    session = client.session()
    link = client.sender(session, "q")
    client.say()
    await until(client.transport.is_reading)
    client.hear()

    def say_part() -> None:
        part = Transfer(
            handle=link.handle,
            delivery_id=0,
            delivery_tag=b"t",
            message_format=0,
            more=True,
        )
        client.engine.write_bytes(encode_frame(session.channel, part, b"x" * 600))
        client.say()

    say_part()
    assert client.transport.is_reading()
    assert pauses == []
    say_part()
    assert not client.transport.is_reading()
    assert pauses == [limits.READ_PAUSE_SECONDS]
    await until(client.transport.is_reading)


async def test_frames_that_say_nothing_are_divided_as_well(client: NearClient) -> None:
    session = client.session()
    echo = encode_frame(session.channel, Flow(incoming_window=1, echo=True))

    client.connection.data_received((echo + HEARTBEAT) * 2000)

    written = client.transport.written.count(b"\x00\x53\x13")
    assert written <= EVENTS * limits.QUIET_FRAMES_MAX // 2
    assert not client.transport.is_reading()
    await until(client.transport.is_reading)
    assert client.transport.written.count(b"\x00\x53\x13") == 2000


async def test_data_that_comes_meanwhile_waits_for_the_next_go(
    client: NearClient,
) -> None:
    """A WebSocket hands over all messages of a read, though asked to pause."""
    sessions = [client.session() for _ in range(2)]
    for session in sessions:
        for _ in range(2 * ATTACHES):
            client.sender(session, "q")
        client.say()

    answered = len([e for e in client.hear() if isinstance(e, Attached)])
    assert answered == ATTACHES
    await asyncio.sleep(0)
    answered = len([e for e in client.hear() if isinstance(e, Attached)])
    assert answered == ATTACHES
    await until(client.transport.is_reading)


@pytest.mark.parametrize("reason", ["crowded", "congested"])
async def test_reading_waits_for_every_reason_not_to_read(
    server: RawServer, client: NearClient, reason: str
) -> None:
    session = client.session()
    for _ in range(2 * ATTACHES):
        client.sender(session, "q")
    connection = client.connection
    # No turn is on its way that would tell of room.
    await count_messages(server)
    client.say()
    if reason == "crowded":
        connection.wait_for_room(server.host)
    else:
        connection.pause_writing()

    # It has taken everything in, and the other reason is still there.
    attached = len(client.heard(Attached)) + 2 * ATTACHES
    while len(client.heard(Attached)) < attached:
        await asyncio.sleep(0)
        client.hear()
    await asyncio.sleep(0)
    assert not client.transport.is_reading()

    if reason == "crowded":
        (has_room,) = server.host.on_room
        server.host.on_room.clear()
        has_room()
    else:
        connection.resume_writing()
    assert client.transport.is_reading()


async def test_after_a_long_read_the_loop_comes_round_before_the_next(
    monkeypatch: pytest.MonkeyPatch, client: NearClient
) -> None:
    session = client.session()
    client.say()
    assert client.transport.is_reading()
    monkeypatch.setattr(limits, "READ_GO_BYTES", 1)

    client.sender(session, "q")
    client.say()
    is_reading = client.transport.is_reading()
    await asyncio.sleep(0)

    assert (is_reading, client.transport.is_reading()) == (False, True)


async def test_room_at_a_host_does_not_let_a_connection_read_that_is_behind(
    server: RawServer, client: NearClient
) -> None:
    session = client.session()
    for _ in range(3 * ATTACHES):
        client.sender(session, "q")
    client.say()
    client.connection.wait_for_room(server.host)
    (has_room,) = server.host.on_room
    server.host.on_room.clear()

    has_room()

    assert not client.transport.is_reading()
    await until(client.transport.is_reading)


def settled_sends(session: Session, link: Link, count: int) -> bytes:
    return b"".join(
        encode_frame(
            session.channel,
            Transfer(
                handle=link.handle,
                delivery_id=number,
                delivery_tag=b"t",
                message_format=0,
                settled=True,
            ),
            MESSAGE,
        )
        for number in range(count)
    )


async def test_an_end_after_a_burst_of_settled_sends_loses_none(
    server: RawServer,
) -> None:
    count = 3 * limits.READ_WORK_MAX
    client = await RawClient.connect(server.port)
    session = await client.session()
    assert await client.authorize(session) == 202
    link = await client.sender(session, "q")

    client.write(settled_sends(session, link, count))
    assert client._transport is not None
    client._transport.write_eof()
    await client.wait_lost()

    await until(lambda: not server.ports["contoso"].connections)
    assert await count_messages(server) == count


async def test_what_was_read_before_the_socket_went_is_taken_in(
    server: RawServer, port: NamespacePort, client: NearClient
) -> None:
    count = 3 * limits.READ_WORK_MAX
    session = client.session()
    link = client.sender(session, "q", snd_settle_mode=SND_SETTLED)
    client.talk()

    client.connection.data_received(settled_sends(session, link, count))
    client.transport.abort()

    await until(lambda: not port.connections)
    assert await count_messages(server) == count


# -- the end of a connection with many links -------------------------------------------


async def with_receivers(client: NearClient, count: int) -> list[Link]:
    """So many links to receive on, ten to a session, each with credit."""
    links = []
    for number in range(count):
        if number % 10 == 0:
            session = client.session()
            await until(client.transport.is_reading)
        links.append(client.receiver(session, "q"))
        client.talk()
        links[-1].grant(1)
        client.talk()
        await until(client.transport.is_reading)
    return links


def owned(client: NearClient) -> int:
    """Consumers that the host knows of the client and of others."""
    return len(client.connection.host._consumers)


async def test_the_links_of_a_connection_that_is_gone_are_closed_in_goes(
    port: NamespacePort, client: NearClient
) -> None:
    most = limits.LINKS_CLOSED_PER_GO_MAX
    await with_receivers(client, 3 * most)
    sessions = list(client.connection.engine.sessions.values())

    client.connection.connection_lost(None)

    assert not port.connections
    # Nothing is taken for those that are left, and what was taken goes back.
    assert client.connection.room.closed
    states = {link.state for each in sessions for link in each.links.values()}
    assert states == {LinkState.DETACHED}
    assert owned(client) >= 2 * most
    goes = 1
    while owned(client):
        before = owned(client)
        await asyncio.sleep(0)
        assert before - owned(client) <= most
        goes += 1
    assert goes >= 3
    await until(lambda: not port.memory.by_address)


async def receive_one(client: NearClient) -> Delivered:
    session = client.session()
    link = client.receiver(session, "q")
    client.talk()
    link.grant(1)
    client.say()

    def is_there() -> bool:
        client.hear()
        return any(each.link is link for each in client.heard(Delivered))

    await until(is_there)
    return client.heard(Delivered)[-1]


@pytest.mark.parametrize("when", ["before the turn", "in the turn"])
async def test_a_connection_that_is_gone_takes_no_message_from_others(
    server: RawServer, client: NearClient, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(limits, "LINKS_CLOSED_PER_GO_MAX", 1)
    await with_receivers(client, 300)
    other = NearClient.connect(server.ports["contoso"])
    sender = other.sender(other.session(), "q")
    other.talk()
    await count_messages(server)
    store, may_commit = server.host.namespace.store, threading.Event()
    commit = store.commit

    def commit_later() -> None:
        assert may_commit.wait(10)
        commit()

    store.commit = commit_later  # type: ignore[method-assign]
    sender.send(MESSAGE, b"t")
    other.say()
    turns = server.host.turns
    if when == "in the turn":
        await until(lambda: server.host.turns > turns)

    client.connection.connection_lost(None)
    may_commit.set()

    delivery = await receive_one(other)
    header, _ = decode(delivery.payload)
    assert header.value[4] == 0, "it was delivered before"


# -- the number of links ---------------------------------------------------------------


async def test_links_are_counted_over_their_lives(client: NearClient) -> None:
    engine = client.connection.engine
    at_first = engine.link_count
    sessions = [client.session() for _ in range(3)]
    links = [client.sender(session, "q") for session in sessions for _ in range(4)]
    client.talk()
    assert engine.link_count == at_first + 12

    links[0].detach()
    client.talk()
    assert engine.link_count == at_first + 11
    sessions[1].end()
    client.talk()
    assert engine.link_count == at_first + 7

    # A handle that is in use: the server ends the session, and the client answers.
    attach = Attach(name="again", handle=links[8].handle, role=False)
    client.connection.data_received(encode_frame(sessions[2].channel, attach))
    assert isinstance(client.hear()[-1], Ended)
    client.talk()
    assert engine.link_count == at_first + 3
    for link in links[1:4]:
        link.detach()
    client.talk()
    held = sum(len(session.links) for session in engine.sessions.values())
    assert engine.link_count == held == at_first


# -- where replies go ------------------------------------------------------------------


def answers_at(client: NearClient, session: Session, address: str) -> Link:
    """A link for replies of `$cbs` that is known by an address."""
    attach = Attach(source=Source(address="$cbs"), target=Target(address=address))
    link = session.attach(f"link-{len(session.links)}", False, attach)
    client.talk()
    return link


def found(client: NearClient, session: Session, reply_to: str | None) -> Any:
    """The name and channel of the link on which a request is answered."""
    engine = client.connection.engine
    node = reply_node(
        client.connection, engine.sessions_by_peer[session.channel], CBS, reply_to
    )
    if node is None:
        return None
    return node.link.name, node.link.session.peer_channel


async def test_replies_go_by_address_then_name_then_session(
    client: NearClient,
) -> None:
    first, second, third = (client.session() for _ in range(3))
    here = answers_at(client, first, "here")
    there = answers_at(client, second, "here")
    named = answers_at(client, second, here.name)

    assert found(client, first, "here") == (here.name, first.channel)
    # Of two with that address, the one of the session that asks.
    assert found(client, second, "here") == (there.name, second.channel)
    # An address goes before a name.
    assert found(client, first, here.name) == (named.name, second.channel)
    assert found(client, third, there.name) is not None
    # Without a word on it, a link of the same session alone.
    assert found(client, first, None) == (here.name, first.channel)
    assert found(client, third, None) is None
    assert found(client, first, "unknown") == (here.name, first.channel)


async def test_replies_do_not_go_to_links_that_are_gone(client: NearClient) -> None:
    first, second = (client.session() for _ in range(2))
    here = answers_at(client, first, "here")
    there = answers_at(client, second, "here")
    at_first = len(client.connection.reply_nodes)

    here.detach()
    client.talk()
    assert found(client, first, "here") == (there.name, second.channel)
    assert found(client, first, None) is None
    second.end()
    client.talk()

    assert found(client, first, "here") is None
    assert len(client.connection.reply_nodes) < at_first
    nodes = client.connection.reply_nodes.values()
    left = {node for each in nodes for node in each}
    owners = {
        link.owner
        for session in client.connection.engine.sessions.values()
        for link in session.links.values()
    }
    assert left <= owners
    assert all(isinstance(node, ReplyNode) for node in left)
