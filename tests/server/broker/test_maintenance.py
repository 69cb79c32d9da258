"""Purge and reset: what is gone, what stays, and what clients are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.raw import RawClient, RawServer, serving
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.names import EntityPath, parse_address
from twinbus.core.rule import default_rule
from twinbus.errors import EntityNotFound
from twinbus.server.broker.directory import maintenance
from twinbus.server.broker.directory.config import (
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.server.broker.host import Host
from twinbus.wire.codec import encode
from twinbus.wire.events import Answered, Delivered, Detached
from twinbus.wire.message import sections
from twinbus.wire.performatives import Accepted, Attach, Modified, Rejected, Source
from twinbus.wire.performatives import Target as Sink
from twinbus.wire.session import Session
from twinbus.wire.types import Described, Symbol, Timestamp, ULong

pytestmark = pytest.mark.turns

GROUP_ID = 10
CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription("q"),
        QueueDescription("other"),
        QueueDescription("sessions", requires_session=True),
    ),
    topics=(
        TopicConfig(
            TopicDescription("t", requires_duplicate_detection=True),
            (
                SubscriptionConfig(
                    SubscriptionDescription("t", "s"), (default_rule(0),)
                ),
            ),
        ),
    ),
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RawServer]:
    async with serving(tmp_path, CONFIG) as started:
        yield started


@pytest.fixture
async def client(server: RawServer) -> AsyncIterator[RawClient]:
    connected = await RawClient.connect(server.port)
    assert await connected.authorize(await connected.session()) == 202
    yield connected
    connected.abort()


def held(server: RawServer, address: str) -> tuple[int, int, int]:
    """Active, deferred and scheduled messages at an address."""
    namespace = server.host.namespace
    path = parse_address(address)
    container = namespace.entities.get(path).container(path.sub_queue)
    counts = namespace.store.counts(container)
    return counts.active, counts.deferred, counts.scheduled


async def fill(client: RawClient, session: Session, due_ms: int) -> list[Delivered]:
    """Leave a message in every state in `q`; returns the one that is locked."""
    sender = await client.sender(session, "q")
    for _ in range(4):
        await client.send(sender, sections.encode_message(b"x"))
    later = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(due_ms)}
    annotations = encode(Described(ULong(sections.MESSAGE_ANNOTATIONS), later))
    await client.send(sender, annotations + sections.encode_message(b"later"))
    receiver = await client.receiver(session, "q", credit=3)
    got = [await client.wait(Delivered) for _ in range(3)]
    for delivery, state in zip(
        got, (Modified(undeliverable_here=True), Rejected()), strict=False
    ):
        number = delivery.delivery_id
        receiver.session.dispose(number, number, False, state)
        client.flush()
        await client.wait(Answered)
    return got[2:]


async def emptied(host: Host, path: EntityPath) -> int:
    """Purge while clients are there."""
    return await host.run(
        lambda namespace, turn: maintenance.purge(namespace, path, turn)
    )


async def test_a_purge_takes_messages_in_every_state(
    server: RawServer, client: RawClient
) -> None:
    session = await client.session()
    [locked] = await fill(client, session, server.clock.now_ms() + 60_000)
    other = await client.sender(session, "other")
    await client.send(other, sections.encode_message(b"stays"))
    assert held(server, "q") == (2, 1, 1)
    assert held(server, "q/$DeadLetterQueue") == (1, 0, 0)

    purged = await emptied(server.host, parse_address("q"))

    assert purged == 5
    assert held(server, "q") == held(server, "q/$DeadLetterQueue") == (0, 0, 0)
    assert held(server, "other") == (1, 0, 0)
    locked.link.session.dispose(
        locked.delivery_id, locked.delivery_id, False, Accepted()
    )
    client.flush()
    late = await client.wait(Answered)
    assert isinstance(late.state, Rejected)
    server.advance(120_000)
    assert await server.host.run(lambda _, turn: turn.now.wall_ms) > 0
    assert held(server, "q") == (0, 0, 0)


async def test_a_sub_queue_is_purged_alone(
    server: RawServer, client: RawClient
) -> None:
    await fill(client, await client.session(), server.clock.now_ms() + 60_000)

    assert await emptied(server.host, parse_address("q/$deadletterqueue")) == 1

    assert held(server, "q") == (2, 1, 1)


async def test_a_purged_topic_has_empty_subscriptions_and_no_memory_of_ids(
    server: RawServer, client: RawClient
) -> None:
    sender = await client.sender(await client.session(), "t")
    message = sections.encode_message(b"x", {sections.MESSAGE_ID: "one"})
    await client.send(sender, message)
    await client.send(sender, message)
    assert held(server, "t/Subscriptions/s") == (1, 0, 0)

    assert await emptied(server.host, parse_address("t")) == 1
    await client.send(sender, message)

    assert held(server, "t/Subscriptions/s") == (1, 0, 0)


async def test_a_purge_tells_holders_of_sessions(
    server: RawServer, client: RawClient
) -> None:
    session = await client.session()
    chosen = {Symbol("com.microsoft:session-filter"): "s"}
    asked = Attach(source=Source(address="sessions", filter=chosen), target=Sink())
    link = await client.attach(session, False, asked)

    await emptied(server.host, parse_address("sessions"))
    detached = await client.wait(Detached)

    assert detached.link is link
    assert detached.error.condition == "com.microsoft:session-lock-lost"
    sender = await client.sender(session, "sessions")
    await client.send(sender, sections.encode_message(b"x", {GROUP_ID: "s"}))
    again = Attach(source=Source(address="sessions", filter=chosen), target=Sink())
    link = await client.attach(session, False, again)
    link.grant(1)
    client.flush()
    assert (await client.wait(Delivered)).link is link


async def test_a_reset_leaves_what_the_configuration_makes(
    server: RawServer, client: RawClient
) -> None:
    session = await client.session()
    await fill(client, session, server.clock.now_ms() + 60_000)
    made = QueueDescription("made-by-a-test")
    await server.host.run(
        lambda namespace, turn: namespace.entities.create(made, turn.now.wall_ms)
    )

    await server.host.run(
        lambda namespace, turn: maintenance.reset(namespace, CONFIG, turn)
    )
    detached = await client.wait(Detached)

    assert detached.error.condition == "amqp:not-found"
    keys = sorted(entity.key for entity in server.host.namespace.entities)
    assert keys == ["other", "q", "sessions", "t", "t/subscriptions/s"]
    assert held(server, "q") == held(server, "q/$DeadLetterQueue") == (0, 0, 0)
    sender = await client.sender(session, "q")
    assert isinstance(
        await client.send(sender, sections.encode_message(b"new")), Accepted
    )
    assert held(server, "q") == (1, 0, 0)


async def test_a_purge_of_a_missing_entity_is_not_found(server: RawServer) -> None:
    with pytest.raises(EntityNotFound):
        await emptied(server.host, parse_address("nowhere"))
