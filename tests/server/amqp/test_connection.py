"""A client's connection: bounds before its claim, tokens that end, entities that go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.raw import RawClient, RawServer, serving
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.core.names import parse_address
from twinbus.errors import Bug, StoreFault
from twinbus.server.amqp.sessions import SESSION_FILTER
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.wire.events import Answered, Closed, Delivered, Detached, Disposed
from twinbus.wire.message import sections
from twinbus.wire.performatives import Accepted, Attach, Rejected, Source, Target
from twinbus.wire.types import Described, Symbol, ULong

pytestmark = pytest.mark.turns

CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription("q", lock_duration_ms=5000),
        QueueDescription("slow", message_rate_per_second=2),
        QueueDescription("s", requires_session=True, lock_duration_ms=5000),
    ),
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RawServer]:
    async with serving(tmp_path, CONFIG) as started:
        yield started


@pytest.fixture
async def client(server: RawServer) -> AsyncIterator[RawClient]:
    connected = await RawClient.connect(server.port)
    yield connected
    connected.abort()


async def _authorized(client: RawClient) -> None:
    session = await client.session()
    assert await client.authorize(session) == 202


async def test_a_client_of_http_is_logged_with_the_right_port_and_seldom(
    server: RawServer, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2 * limits.TOKEN_FAILURES_MAX):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()

    said = [record.getMessage() for record in caplog.records]
    assert len(said) < 2 * limits.TOKEN_FAILURES_MAX
    assert all("HTTP is for the ports of HTTP and HTTPS." in text for text in said)


async def test_without_a_claim_nothing_can_be_attached(client: RawClient) -> None:
    session = await client.session()
    for address in ("q", "q/$management", "q/$DeadLetterQueue", "nowhere"):
        await client.sender(session, address)
        detached = await client.wait(Detached)
        assert detached.error.condition == "amqp:unauthorized-access"


async def test_too_many_bytes_before_a_claim_close_the_connection(
    client: RawClient,
) -> None:
    await client.session()
    for _ in range(limits.HANDSHAKE_BYTES_MAX // 8 + 1):
        client.write(b"\x00\x00\x00\x08\x02\x00\x00\x00")

    closed = await client.wait(Closed)

    assert closed.error.condition == "amqp:resource-limit-exceeded"


async def test_garbage_closes_the_connection_with_a_reason(client: RawClient) -> None:
    client.write(b"\x00\x00\x00\x10\x02\x00\x00\x00garbage!")

    closed = await client.wait(Closed)

    assert closed.error.condition == "amqp:decode-error"
    await client.wait_lost()


async def test_an_ended_token_detaches_its_links(
    server: RawServer, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await client.session()
    expires_s = server.clock.now_ms() // 1000 + 1
    assert await client.authorize(session, expires_s=expires_s) == 202
    await client.sender(session, "q")

    # The loop's timer runs in real time, the claim in the server's.
    server.clock.advance(2000)
    detached = await client.wait(Detached)

    assert detached.error.condition == "amqp:unauthorized-access"


async def test_a_deleted_entity_takes_its_links_along(
    server: RawServer, client: RawClient
) -> None:
    await _authorized(client)
    session = await client.session()
    await client.receiver(session, "q", credit=1)

    await server.host.run(
        lambda namespace, turn: namespace.delete(parse_address("q"), turn)
    )
    detached = await client.wait(Detached)

    assert detached.error.condition == "amqp:not-found"


async def test_a_lock_that_ends_brings_the_message_back(
    server: RawServer, client: RawClient
) -> None:
    await _authorized(client)
    session = await client.session()
    sender = await client.sender(session, "q")
    await client.send(sender, sections.encode_message(b"a"))
    receiver = await client.receiver(session, "q", credit=2)
    first = await client.wait(Delivered)

    server.advance(5001)
    again = await client.wait(Delivered)

    receiver.session.dispose(first.delivery_id, first.delivery_id, False, Accepted())
    client.flush()
    late = await client.wait(Answered)
    assert isinstance(late.state, Rejected)
    assert late.state.error is not None
    assert late.state.error.condition == "com.microsoft:message-lock-lost"
    assert sections.parse(again.payload).bare == sections.parse(first.payload).bare


async def test_a_failing_turn_fails_its_commands_and_the_next_goes_on(
    server: RawServer, client: RawClient
) -> None:
    await _authorized(client)
    session = await client.session()
    sender = await client.sender(session, "q")

    def broken(namespace: Namespace, turn: Turn) -> None:
        raise ZeroDivisionError(f"{namespace.name} {turn.now.wall_ms}")

    failing = asyncio.ensure_future(server.host.run(broken))
    outcome = await client.send(sender, sections.encode_message(b"a"))
    if isinstance(outcome, Rejected):
        outcome = await client.send(sender, sections.encode_message(b"a"))

    assert isinstance(outcome, Accepted)
    with pytest.raises(Bug):
        await failing


async def test_a_store_that_fails_refuses_with_a_counted_condition_and_recovers(
    server: RawServer, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _authorized(client)
    session = await client.session()
    sender = await client.sender(session, "q")
    store = server.host.namespace.store

    def full() -> None:
        raise StoreFault("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", full)
        outcome = await client.send(sender, sections.encode_message(b"lost?"))
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:internal-error"
    assert server.host.fault is not None
    refused = await client.send(sender, sections.encode_message(b"no"))
    assert isinstance(refused, Rejected)

    await server.host.recovery.attempt()
    outcome = await client.send(sender, sections.encode_message(b"yes"))

    assert isinstance(outcome, Accepted)
    entity = server.host.namespace.entities.find("q")
    assert entity is not None
    assert store.counts(entity.id).active == 1


async def test_links_of_one_client_are_independent(client: RawClient) -> None:
    await _authorized(client)
    session = await client.session()
    sender = await client.sender(session, "q")

    await client.sender(session, "nowhere")
    detached = await client.wait(Detached)

    outcome = await client.send(sender, sections.encode_message(b"x"))

    assert detached.error.condition == "amqp:not-found"
    missing = "The messaging entity 'sb://localhost/nowhere' could not be found."
    assert missing in detached.error.description
    assert isinstance(outcome, Accepted)


async def test_a_request_that_cannot_be_read_costs_its_link_alone(
    client: RawClient,
) -> None:
    await _authorized(client)
    session = await client.session()
    management = await client.sender(session, "q/$management")
    management.send(b"\x00\x53\x77", b"tag")
    client.flush()

    detached = await client.wait(Detached)

    assert detached.link is management
    sender = await client.sender(session, "q")
    outcome = await client.send(sender, sections.encode_message(b"x"))
    assert isinstance(outcome, Accepted)


async def test_sends_that_arrive_together_count_each_for_the_rate(
    client: RawClient,
) -> None:
    await _authorized(client)
    session = await client.session()
    sender = await client.sender(session, "slow")
    for _ in range(10):
        sender.send(sections.encode_message(b"x"), b"tag")
    client.flush()

    states: list[object] = []
    while len(states) < 10:
        event = await client.wait(Disposed)
        states += [event.state] * len(event.deliveries)

    assert sum(isinstance(state, Accepted) for state in states) == 2
    busy = [state for state in states if isinstance(state, Rejected)]
    conditions = {state.error.condition for state in busy if state.error is not None}
    assert conditions == {"com.microsoft:server-busy"}


@pytest.mark.parametrize("asked", ["A", None])
async def test_a_session_is_named_in_the_form_of_the_question(
    client: RawClient, asked: str | None
) -> None:
    await _authorized(client)
    session = await client.session()
    sender = await client.sender(session, "s")
    await client.send(sender, sections.encode_message(b"x", {sections.GROUP_ID: "A"}))
    code = ULong(0x137000000C)

    answers = []
    for value in (asked, Described(code, asked)):
        source = Source(address="s", filter={Symbol(SESSION_FILTER): value})
        attach = Attach(source=source, target=Target(), snd_settle_mode=0)
        link = await client.attach(session, False, attach)
        granted = link.peer_attach.source
        assert granted is not None
        answers.append((granted.filter or {})[SESSION_FILTER])
        link.detach()
        client.flush()
        await client.wait(Detached)

    assert answers == ["A", Described(code, "A")]


async def test_a_settlement_after_the_session_ended_says_that_the_session_is_lost(
    server: RawServer, client: RawClient
) -> None:
    await _authorized(client)
    session = await client.session()
    sender = await client.sender(session, "s")
    await client.send(sender, sections.encode_message(b"x", {sections.GROUP_ID: "A"}))
    source = Source(address="s", filter={Symbol(SESSION_FILTER): "A"})
    attach = Attach(source=source, target=Target(), snd_settle_mode=0)
    receiver = await client.attach(session, False, attach)
    receiver.grant(1)
    client.flush()
    held = await client.wait(Delivered)

    # The settlement comes before the server has looked at its clock.
    server.clock.advance(5001)
    session.dispose(held.delivery_id, held.delivery_id, False, Accepted())
    client.flush()
    late = await client.wait(Answered)

    assert isinstance(late.state, Rejected)
    assert late.state.error is not None
    assert late.state.error.condition == "com.microsoft:session-lock-lost"
