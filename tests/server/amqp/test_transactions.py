"""Transactions: sends and settlements happen together, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.cbs import RequestLinks
from tests.server.desk import BODY, section
from tests.server.raw import RawClient, RawServer, serving
from twinbus import limits
from twinbus.core.entity import QueueDescription
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.store.base import Counts
from twinbus.wire.codec import encode
from twinbus.wire.events import Delivered, Detached
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Rejected,
    Source,
    TransactionalState,
)
from twinbus.wire.performatives_codec import encode_composite
from twinbus.wire.session import Session
from twinbus.wire.types import Symbol, Timestamp, ULong

pytestmark = pytest.mark.turns

CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription("in"),
        QueueDescription("out"),
        QueueDescription("small", max_size_in_megabytes=1),
    ),
)


class Desk:
    """A client with a coordinator."""

    def __init__(
        self, server: RawServer, client: RawClient, session: Session, link: Link
    ) -> None:
        self.server = server
        self.client = client
        self.session = session
        self.coordinator = link

    async def ask(self, request: Any) -> Any:
        body = b"\x00" + encode(ULong(sections.VALUE)) + encode_composite(request)
        return await self.client.send(self.coordinator, body)

    async def declare(self) -> bytes:
        outcome = await self.ask(Declare())
        assert isinstance(outcome, Declared)
        assert outcome.txn_id is not None
        return outcome.txn_id

    def counts(self, queue: str) -> Counts:
        namespace = self.server.host.namespace
        entity = namespace.entities.find(queue)
        assert entity is not None
        return namespace.store.counts(entity.id)

    def active(self, queue: str) -> int:
        return self.counts(queue).active

    async def held(self, queue: str) -> Delivered:
        """Send a message and receive it."""
        sender = await self.client.sender(self.session, queue)
        await self.client.send(sender, sections.encode_message(b"work"))
        await self.client.receiver(self.session, queue, credit=1)
        delivery: Delivered = await self.client.wait(Delivered)
        return delivery

    def dispose(self, delivery: Delivered, state: Any) -> None:
        number = delivery.delivery_id
        delivery.link.session.dispose(number, number, False, state)
        self.client.flush()


@asynccontextmanager
async def serving_desk(folder: Path, config: NamespaceConfig) -> AsyncIterator[Desk]:
    """A server, and a client with a link to the coordinator."""
    async with serving(folder, config) as server:
        client = await RawClient.connect(server.port)
        session = await client.session()
        assert await client.authorize(session) == 202
        attach = Attach(source=Source(), target=Coordinator())
        link = await client.attach(session, True, attach)
        yield Desk(server, client, session, link)
        client.abort()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with serving_desk(tmp_path, CONFIG) as found:
        yield found


async def test_sends_of_several_entities_commit_together(desk: Desk) -> None:
    transaction = await desk.declare()
    state = TransactionalState(txn_id=transaction)
    for queue in ("in", "out"):
        sender = await desk.client.sender(desk.session, queue)
        outcome = await desk.client.send(sender, sections.encode_message(b"x"), state)
        assert isinstance(outcome, TransactionalState)
    assert (desk.active("in"), desk.active("out")) == (0, 0)

    outcome = await desk.ask(Discharge(txn_id=transaction, fail=False))

    assert isinstance(outcome, Accepted)
    assert (desk.active("in"), desk.active("out")) == (1, 1)


async def test_a_transaction_is_declared_before_a_claim(tmp_path: Path) -> None:
    async with serving(tmp_path, CONFIG) as server:
        client = await RawClient.connect(server.port)
        session = await client.session()
        attach = Attach(source=Source(), target=Coordinator())
        desk = Desk(server, client, session, await client.attach(session, True, attach))

        state = TransactionalState(txn_id=await desk.declare())

        # The claim is needed where the message goes.
        await client.sender(session, "in")
        refused = await client.wait(Detached)
        assert refused.error.condition == "amqp:unauthorized-access"
        assert await client.authorize(session) == 202
        sender = await client.sender(session, "in")
        await client.send(sender, sections.encode_message(b"x"), state)
        outcome = await desk.ask(Discharge(txn_id=state.txn_id, fail=False))
        assert isinstance(outcome, Accepted)
        assert desk.active("in") == 1
        client.abort()


async def test_requests_to_management_are_refused_in_a_transaction(
    desk: Desk,
) -> None:
    links = await RequestLinks.open(desk.client, desk.session, "in/$management")
    state = TransactionalState(txn_id=await desk.declare())
    at = Timestamp(desk.server.clock.now_ms() + 60_000)
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): at}
    message = section(sections.MESSAGE_ANNOTATIONS, annotations) + BODY
    payload = sections.encode_request(
        f"answers-{links.sender.handle}",
        {"operation": "com.microsoft:schedule-message"},
        {"messages": [{"message-id": "1", "message": message}]},
    )

    await desk.client.send(links.sender, payload, state)

    reply: Delivered = await desk.client.wait(Delivered)
    properties = sections.Request(reply.payload).application_properties
    assert properties["statusCode"] == 501
    assert properties["errorCondition"] == "amqp:not-implemented"
    assert "transaction" in properties["statusDescription"]
    assert desk.counts("in").scheduled == 0


async def test_a_failed_discharge_leaves_nothing(desk: Desk) -> None:
    transaction = await desk.declare()
    sender = await desk.client.sender(desk.session, "in")
    state = TransactionalState(txn_id=transaction)
    await desk.client.send(sender, sections.encode_message(b"x"), state)

    outcome = await desk.ask(Discharge(txn_id=transaction, fail=True))

    assert isinstance(outcome, Accepted)
    assert desk.active("in") == 0


async def test_settlement_and_send_happen_together(desk: Desk) -> None:
    delivery = await desk.held("in")
    transaction = await desk.declare()
    state = TransactionalState(txn_id=transaction)
    sender = await desk.client.sender(desk.session, "out")
    await desk.client.send(sender, sections.encode_message(b"done"), state)
    desk.dispose(delivery, TransactionalState(txn_id=transaction, outcome=Accepted()))
    await desk.ask(Discharge(txn_id=transaction, fail=False))

    assert (desk.active("in"), desk.active("out")) == (0, 1)


async def test_a_lost_lock_rolls_everything_back(desk: Desk) -> None:
    delivery = await desk.held("in")
    transaction = await desk.declare()
    state = TransactionalState(txn_id=transaction)
    sender = await desk.client.sender(desk.session, "out")
    await desk.client.send(sender, sections.encode_message(b"done"), state)
    desk.dispose(delivery, TransactionalState(txn_id=transaction, outcome=Accepted()))
    desk.server.clock.advance(61_000)

    outcome = await desk.ask(Discharge(txn_id=transaction, fail=False))

    assert isinstance(outcome, Rejected)
    assert (desk.active("in"), desk.active("out")) == (1, 0)


async def test_one_refused_send_rolls_everything_back(desk: Desk) -> None:
    transaction = await desk.declare()
    state = TransactionalState(txn_id=transaction)
    big = sections.encode_message(b"x" * 60_000)
    out = await desk.client.sender(desk.session, "out")
    await desk.client.send(out, sections.encode_message(b"x"), state)
    small = await desk.client.sender(desk.session, "small")
    for _ in range(18):
        await desk.client.send(small, big, state)

    outcome = await desk.ask(Discharge(txn_id=transaction, fail=False))

    assert isinstance(outcome, Rejected)
    assert (desk.active("out"), desk.active("small")) == (0, 0)


@pytest.mark.parametrize("transaction", [b"", b"nonsense", b"\0" * 7 + b"\x09"])
async def test_an_unknown_transaction_is_refused(
    desk: Desk, transaction: bytes
) -> None:
    outcome = await desk.ask(Discharge(txn_id=transaction, fail=False))

    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:transaction:unknown-id"


async def test_a_transaction_is_discharged_once(desk: Desk) -> None:
    transaction = await desk.declare()
    await desk.ask(Discharge(txn_id=transaction, fail=False))

    outcome = await desk.ask(Discharge(txn_id=transaction, fail=False))

    assert isinstance(outcome, Rejected)


async def test_a_transaction_has_a_bounded_number_of_messages(desk: Desk) -> None:
    transaction = await desk.declare()
    state = TransactionalState(txn_id=transaction)
    sender = await desk.client.sender(desk.session, "in")
    for _ in range(limits.TRANSACTION_MESSAGES_MAX):
        outcome = await desk.client.send(sender, sections.encode_message(b"x"), state)
        assert isinstance(outcome, TransactionalState)

    outcome = await desk.client.send(sender, sections.encode_message(b"x"), state)

    assert isinstance(outcome, Rejected)


async def test_a_transaction_with_a_refused_part_is_not_committed(desk: Desk) -> None:
    transaction = await desk.declare()
    state = TransactionalState(txn_id=transaction)
    sender = await desk.client.sender(desk.session, "in")
    await desk.client.send(sender, sections.encode_message(b"taken"), state)

    # Some clients do not look at this outcome.
    assert isinstance(await desk.client.send(sender, b"no message", state), Rejected)
    outcome = await desk.ask(Discharge(txn_id=transaction, fail=False))

    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:transaction:rollback"
    assert desk.active("in") == 0


async def test_a_message_that_is_no_request_is_refused(desk: Desk) -> None:
    outcome = await desk.client.send(
        desk.coordinator, sections.encode_message(b"not a declare")
    )

    assert isinstance(outcome, Rejected)
