"""Clients that play games with credit, windows and settlement.

What a client says twice counts once, what it does not read is not taken for it, and
what it has lost does not stand in its way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.raw import RawClient, RawServer, connections_of, serving
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.core.names import EntityPath
from twinbus.server.amqp.connection import ServerConnection
from twinbus.server.amqp.receiving import ReceiveNode
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.wire.codec import encode
from twinbus.wire.events import (
    Answered,
    Attached,
    Begun,
    Delivered,
    Detached,
    Disposed,
    Ended,
)
from twinbus.wire.frames import encode_frame
from twinbus.wire.link import Link, LinkState
from twinbus.wire.message import sections
from twinbus.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Declare,
    Declared,
    Disposition,
    Flow,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from twinbus.wire.performatives_codec import encode_composite
from twinbus.wire.session import Session
from twinbus.wire.types import Symbol, ULong

pytestmark = pytest.mark.turns

CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription("orders", lock_duration_ms=5_000, max_delivery_count=100),
        QueueDescription("talks", requires_session=True),
    ),
)


class Desk:
    """A client with every right, and the server's end of its connection."""

    def __init__(self, server: RawServer, client: RawClient, session: Session) -> None:
        self.server = server
        self.client = client
        self.session = session

    async def fill(self, count: int, body: bytes = b"x") -> None:
        """Put messages into `orders`, without a client."""

        def send(namespace: Namespace, turn: Turn) -> None:
            entity = namespace.entities.get(EntityPath("orders"))
            payload = sections.encode_message(body)
            messages = [sections.parse(payload) for _ in range(count)]
            namespace.send(entity, messages, turn)

        await self.server.host.run(send)

    async def turn(self) -> None:
        await self.server.host.run(lambda _namespace, _now_ms: None)

    @property
    def connection(self) -> ServerConnection:
        port = next(iter(self.server.ports.values()))
        return connections_of(port)[0]

    @property
    def node(self) -> ReceiveNode:
        """The server's end of the only receiver."""
        return next(
            link.owner
            for session in self.connection.engine.sessions.values()
            for link in session.links.values()
            if isinstance(link.owner, ReceiveNode)
        )

    def active(self) -> int:
        namespace = self.server.host.namespace
        entity = namespace.entities.get(EntityPath("orders"))
        return namespace.store.counts(entity.id).active

    def write(self, performative: Any) -> None:
        """Send a frame that the engine would not."""
        self.client.flush()
        self.client.write(encode_frame(self.session.channel, performative))

    def dispose(self, first: int, last: int, settled: bool, state: Any) -> None:
        self.write(
            Disposition(role=True, first=first, last=last, settled=settled, state=state)
        )


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with serving(tmp_path, CONFIG) as server:
        client = await RawClient.connect(server.port)
        session = await client.session()
        assert await client.authorize(session) == 202
        yield Desk(server, client, session)


async def narrow_session(desk: Desk) -> Session:
    """A session with a window for no transfer at all."""
    session = desk.client.engine.begin()
    desk.client.engine.take()
    begin = Begin(next_outgoing_id=0, incoming_window=0, outgoing_window=100)
    desk.client.write(encode_frame(session.channel, begin))
    await desk.client.wait(Begun)
    return session


def narrow_flow(desk: Desk, link: Link, credit: int) -> None:
    """Give credit, but no window."""
    desk.client.flush()
    flow = Flow(
        next_incoming_id=0,
        incoming_window=0,
        next_outgoing_id=0,
        outgoing_window=100,
        handle=link.handle,
        delivery_count=0,
        link_credit=credit,
    )
    desk.client.write(encode_frame(link.session.channel, flow))


# -- settlement ----------------------------------------------------------------------


async def test_a_repeated_disposition_is_ignored(desk: Desk) -> None:
    await desk.fill(3)
    await desk.client.receiver(desk.session, "orders", credit=3)
    first = (await desk.client.wait(Delivered)).delivery_id
    for _ in range(2):
        await desk.client.wait(Delivered)
    frame = Disposition(
        role=True, first=first, last=first + 2, settled=False, state=Accepted()
    )
    desk.client.write(encode_frame(desk.session.channel, frame) * 100)
    answer = await desk.client.wait(Answered)
    assert isinstance(answer.state, Accepted)
    await desk.turn()
    assert desk.node.unsettled == 0
    assert not any(isinstance(event, Answered) for event in desk.client.events)


@pytest.mark.parametrize("state", [Received(section_number=0, section_offset=0), None])
async def test_a_received_state_settles_nothing(desk: Desk, state: Any) -> None:
    await desk.fill(1)
    await desk.client.receiver(desk.session, "orders", credit=2)
    number = (await desk.client.wait(Delivered)).delivery_id
    desk.dispose(number, number, False, state)
    desk.dispose(number, number, False, Accepted())
    answer = await desk.client.wait(Answered)
    assert isinstance(answer.state, Accepted)
    assert desk.active() == 0


async def test_transactional_settlement_frees_unsettled_places(desk: Desk) -> None:
    coordinator = await desk.client.attach(
        desk.session, True, Attach(source=Source(), target=Coordinator())
    )
    body = b"\x00" + encode(ULong(sections.VALUE)) + encode_composite(Declare())
    declared = await desk.client.send(coordinator, body)
    assert isinstance(declared, Declared)
    await desk.fill(1)
    await desk.client.receiver(desk.session, "orders", credit=1)
    number = (await desk.client.wait(Delivered)).delivery_id
    state = TransactionalState(txn_id=declared.txn_id, outcome=Accepted())
    desk.dispose(number, number, True, state)
    # An answer that comes after it on the same connection.
    await desk.client.send(coordinator, body)
    assert desk.node.unsettled == 0


async def test_lost_locks_do_not_stall_a_link(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python SDK never settles what it knows to be lost."""
    monkeypatch.setattr(limits, "UNSETTLED_PER_LINK_MAX", 3)
    await desk.fill(3)
    await desk.client.receiver(desk.session, "orders", credit=100)
    lost = [(await desk.client.wait(Delivered)).delivery_id for _ in range(3)]
    await desk.turn()
    assert desk.node.unsettled == 3
    desk.server.advance(6_000)
    for _ in range(3):
        await desk.client.wait(Delivered)
    told: list[int] = []
    while len(told) < 3:
        answer = await desk.client.wait(Answered)
        assert isinstance(answer.state, Released)
        told += range(answer.first, answer.last + 1)
    assert told == lost
    assert desk.node.unsettled == 3


# -- windows and credit --------------------------------------------------------------


async def test_a_closed_window_takes_nothing_more(desk: Desk) -> None:
    """Receive and delete has no bound of its own: the window is it."""
    session = await narrow_session(desk)
    receiver = await desk.client.attach(
        session,
        False,
        Attach(source=Source(address="orders"), target=Target(), snd_settle_mode=1),
    )
    narrow_flow(desk, receiver, 1_000_000)
    await desk.turn()
    for _ in range(4):
        await desk.fill(1_000)
        await desk.turn()
    left = desk.active()
    assert left >= 2_000
    # With the window open everything comes, in order and once.
    opened = Flow(
        next_incoming_id=0,
        incoming_window=1 << 20,
        next_outgoing_id=0,
        outgoing_window=100,
    )
    desk.client.write(encode_frame(session.channel, opened))
    for _ in range(4_000):
        await desk.client.wait(Delivered)
    assert desk.active() == 0
    assert desk.connection.engine.blocked_bytes == 0


async def test_replies_blocked_by_the_window_are_counted(desk: Desk) -> None:
    """A closed window is no way to make the server remember all its answers."""
    session = await narrow_session(desk)
    address = "orders/$management"
    sender = await desk.client.attach(
        session, True, Attach(source=Source(), target=Target(address=address))
    )
    receiver = await desk.client.attach(
        session, False, Attach(source=Source(address=address), target=Target())
    )
    narrow_flow(desk, receiver, 1_000_000)
    request = sections.encode_request(
        "reply", {"operation": "com.microsoft:nothing"}, {}
    )
    for _ in range(limits.REPLIES_WAITING_MAX + 10):
        sender.send(request, b"tag")
        desk.client.flush()
        await desk.client.wait(Disposed)
    detached = await desk.client.wait(Detached)
    assert detached.error.condition == "amqp:resource-limit-exceeded"
    # The last of them may still be on its way to the disk.
    await desk.turn()
    assert desk.connection.reply_bytes == 0


async def test_transfers_do_not_outlive_their_link(desk: Desk) -> None:
    session = await narrow_session(desk)
    receiver = await desk.client.attach(
        session,
        False,
        Attach(source=Source(address="orders"), target=Target(), snd_settle_mode=1),
    )
    narrow_flow(desk, receiver, 10)
    await desk.fill(3)
    await desk.turn()
    receiver.detach()
    desk.client.flush()
    await desk.client.wait(Detached)
    opened = Flow(
        next_incoming_id=0,
        incoming_window=1 << 20,
        next_outgoing_id=0,
        outgoing_window=100,
        echo=True,
    )
    desk.client.write(encode_frame(session.channel, opened))
    again = session.attach("again", True, sender_to("orders"))
    desk.client.flush()
    await desk.client.wait(Attached)
    assert again.name == "again"
    assert not any(isinstance(event, Delivered) for event in desk.client.events)


def sender_to(address: str) -> Attach:
    return Attach(source=Source(), target=Target(address=address))


def test_a_drain_after_reduced_credit_does_not_lower_the_delivery_count() -> None:
    link: Link = bare_link()
    link.delivery_count = 5
    link.credit = -3
    link.drain = True
    link.drained()
    assert (link.delivery_count, link.credit) == (5, 0)


def bare_link() -> Link:
    client = RawClient()
    session = Session(client.engine, 0)
    return Link(session, "link", 0, True)


async def test_an_echo_is_answered_once(desk: Desk) -> None:
    receiver = await desk.client.receiver(desk.session, "orders", credit=1)
    receiver.write_flow(echo=True)
    desk.client.flush()
    await desk.turn()
    assert not desk.node.link.echo


# -- links ---------------------------------------------------------------------------


async def test_a_coordinator_sends_nothing(desk: Desk) -> None:
    """A receiver on the coordinator once ended the connection with a traceback."""
    link = await desk.client.attach(
        desk.session, False, Attach(source=Source(), target=Coordinator())
    )
    link.grant(5)
    desk.client.flush()
    detached = await desk.client.wait(Detached)
    assert detached.error.condition == "amqp:invalid-field"
    assert not desk.client.lost


async def test_a_deleted_entity_ends_a_wait_for_a_session(desk: Desk) -> None:
    """Deleting the entity must answer the attach that waits."""
    wanted = {Symbol("com.microsoft:session-filter"): None}
    source = Source(address="talks", filter=wanted)
    desk.session.attach("wait", False, Attach(source=source, target=Target()))
    desk.client.flush()
    # Something that is answered later, so that the attach was seen.
    await desk.client.sender(desk.session, "orders")
    await desk.turn()
    await desk.server.host.run(
        lambda namespace, turn: namespace.delete(EntityPath("talks"), turn)
    )
    detached = await desk.client.wait(Detached)
    assert detached.error.condition == "amqp:not-found"


async def test_messages_that_were_not_sent_are_returned_uncounted(desk: Desk) -> None:
    """A session's client that vanishes during the commit leaves counts alone."""
    wanted = {Symbol("com.microsoft:session-filter"): "s"}
    source = Source(address="talks", filter=wanted)
    link = await desk.client.attach(
        desk.session, False, Attach(source=source, target=Target())
    )
    link.grant(10)
    desk.client.flush()
    host = desk.server.host

    def send_and_lose(namespace: Namespace, turn: Turn) -> None:
        entity = namespace.entities.get(EntityPath("talks"))
        payload = sections.encode_message(b"x", {sections.GROUP_ID: "s"})
        namespace.send(entity, [sections.parse(payload)], turn)
        # Runs before the commit has returned: the message is taken for the node.
        host._loop.call_soon(desk.connection.close_link, desk.node.link)

    await desk.turn()
    await host.run(send_and_lose)
    await desk.turn()

    def look(namespace: Namespace, _turn: Turn) -> list[int]:
        entity = namespace.entities.get(EntityPath("talks"))
        return [each.deliveries for each in namespace.store.find(entity.id, [1])]

    assert await host.run(look) == [0]


async def test_a_refused_settlement_is_answered(desk: Desk) -> None:
    await desk.fill(1)
    await desk.client.receiver(desk.session, "orders", credit=1)
    number = (await desk.client.wait(Delivered)).delivery_id
    desk.server.advance(6_000)
    await desk.turn()
    desk.dispose(number, number, False, Accepted())
    answer = await desk.client.wait(Answered)
    assert isinstance(answer.state, Rejected)


async def test_unfinished_messages_are_counted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part on each of many links: the link that brings one too many goes."""
    monkeypatch.setattr(limits, "MEMORY_PER_CONNECTION_BYTES_MAX", 120_000)
    links = [await desk.client.sender(desk.session, "orders") for _ in range(3)]
    for number, link in enumerate(links):
        part = Transfer(
            handle=link.handle, delivery_id=100 + number, delivery_tag=b"t", more=True
        )
        desk.client.write(encode_frame(desk.session.channel, part, bytes(45_000)))
    detached = await desk.client.wait(Detached)
    assert detached.link is links[2]
    assert detached.error.condition == "amqp:resource-limit-exceeded"
    engine = desk.connection.engine
    assert engine.assembly_bytes == 90_000
    aborted = Transfer(handle=links[0].handle, aborted=True)
    desk.client.write(encode_frame(desk.session.channel, aborted))
    links[1].detach()
    desk.client.flush()
    await desk.client.wait(Detached)
    assert engine.assembly_bytes == 0


async def test_a_long_session_id_is_refused(desk: Desk) -> None:
    wanted = {Symbol("com.microsoft:session-filter"): "s" * 129}
    source = Source(address="talks", filter=wanted)
    await desk.client.attach(
        desk.session, False, Attach(source=source, target=Target())
    )
    detached = await desk.client.wait(Detached)
    assert detached.error.condition == "amqp:invalid-field"


async def test_a_client_that_closes_takes_nothing_more(desk: Desk) -> None:
    """Its socket may live on while it does not read what is left."""
    await desk.client.receiver(desk.session, "orders", credit=10)
    connection = desk.connection
    links = [
        link
        for session in connection.engine.sessions.values()
        for link in session.links.values()
    ]
    connection.close()
    assert links
    assert all(link.owner is None for link in links)
    assert all(link.state is LinkState.DETACHED for link in links)


async def test_links_of_a_connection_are_counted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINKS_PER_CONNECTION_MAX", 4)
    await desk.client.sender(desk.session, "orders")
    other = await desk.client.session()
    await desk.client.sender(other, "orders")
    other.attach("one too many", True, sender_to("orders"))
    desk.client.flush()
    ended = await desk.client.wait(Ended)
    assert ended.error.condition == "amqp:resource-limit-exceeded"
