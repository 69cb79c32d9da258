"""Bounds on messages, transactions and rules, at the limit, one below and one above."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.cbs import RequestLinks, attach
from tests.server.raw import RawClient, RawServer, connections_of, serving
from tests.server.strangers import until
from twinbus import limits
from twinbus.core.entity import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.rule import default_rule
from twinbus.server.broker.directory.config import (
    NamespaceConfig,
    SubscriptionConfig,
    TopicConfig,
)
from twinbus.wire.codec import encode
from twinbus.wire.events import Disposed
from twinbus.wire.frames import encode_transfer
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
    Transfer,
)
from twinbus.wire.performatives_codec import encode_composite
from twinbus.wire.session import Session
from twinbus.wire.types import Described, Symbol, ULong

GROUP_ID = 10
AROUND = pytest.mark.parametrize("extra", [-1, 0, 1])
TOO_LARGE = "amqp:link:message-size-exceeded"
INVALID = "amqp:invalid-field"
EXCEEDED = "amqp:resource-limit-exceeded"


def _subscription(name: str) -> SubscriptionConfig:
    return SubscriptionConfig(SubscriptionDescription("t", name), (default_rule(0),))


CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription("q"),
        QueueDescription("large", max_message_size_in_kilobytes=1024),
    ),
    topics=(
        TopicConfig(TopicDescription("t"), (_subscription("s"), _subscription("z"))),
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


@pytest.fixture
async def session(client: RawClient) -> Session:
    return await client.session()


@pytest.fixture
async def sender(client: RawClient, session: Session) -> Link:
    return await client.sender(session, "q")


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


BODY = section(sections.DATA, b"x")


async def verdict(client: RawClient, link: Link, payload: bytes) -> str | None:
    """Send a message: None if it was accepted, else why not. The link lives on."""
    outcome = await client.send(link, payload)
    if isinstance(outcome, Accepted):
        return None
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    again = await client.send(link, BODY)
    assert isinstance(again, Accepted)
    return outcome.error.condition


# -- sizes -----------------------------------------------------------------------------


@AROUND
@pytest.mark.parametrize(
    ("queue", "most"), [("q", limits.MESSAGE_BYTES_MAX), ("large", 1024 * 1024)]
)
async def test_messages(
    client: RawClient, session: Session, queue: str, most: int, extra: int
) -> None:
    link = await client.sender(session, queue)
    assert link.peer_attach.max_message_size == most
    room = most + extra - 8
    payload = b"\x00\x53\x75\xb0" + room.to_bytes(4, "big") + bytes(room)
    assert len(payload) == most + extra

    assert await verdict(client, link, payload) == (TOO_LARGE if extra > 0 else None)


@AROUND
async def test_one_property(client: RawClient, sender: Link, extra: int) -> None:
    # A long text has five bytes of its own: a constructor and its length.
    text = "x" * (limits.PROPERTY_BYTES_MAX + extra - 5)
    payload = section(sections.APPLICATION_PROPERTIES, {"p": text}) + BODY

    assert await verdict(client, sender, payload) == (TOO_LARGE if extra > 0 else None)


@AROUND
async def test_all_properties_together(
    client: RawClient, sender: Link, extra: int
) -> None:
    def written(room: int) -> bytes:
        values = {"a": "x" * 20_000, "b": "x" * 20_000, "c": "x" * room}
        return section(sections.APPLICATION_PROPERTIES, values)

    room = 20_000 + limits.PROPERTIES_BYTES_MAX + extra - len(written(20_000))
    payload = written(room)
    assert len(payload) == limits.PROPERTIES_BYTES_MAX + extra

    refused = await verdict(client, sender, payload + BODY)

    assert refused == (TOO_LARGE if extra > 0 else None)


@AROUND
@pytest.mark.parametrize(
    ("index", "most"),
    [
        (sections.MESSAGE_ID, limits.MESSAGE_ID_CHARS_MAX),
        (GROUP_ID, limits.SESSION_ID_CHARS_MAX),
    ],
)
async def test_ids(
    client: RawClient, sender: Link, index: int, most: int, extra: int
) -> None:
    payload = sections.encode_message(b"x", {index: "é" * (most + extra)})

    assert await verdict(client, sender, payload) == (INVALID if extra > 0 else None)


@AROUND
async def test_partition_keys(client: RawClient, sender: Link, extra: int) -> None:
    key = "k" * (limits.PARTITION_KEY_CHARS_MAX + extra)
    annotations = {Symbol("x-opt-partition-key"): key}
    payload = section(sections.MESSAGE_ANNOTATIONS, annotations) + BODY

    assert await verdict(client, sender, payload) == (INVALID if extra > 0 else None)


@AROUND
async def test_batches(
    server: RawServer, client: RawClient, sender: Link, extra: int
) -> None:
    count = limits.BATCH_MESSAGES_MAX + extra
    payload = section(sections.DATA, BODY) * count
    session = sender.session
    transfer = Transfer(
        handle=sender.handle,
        delivery_id=session.next_delivery_out,
        delivery_tag=b"t",
        message_format=sections.BATCH_FORMAT,
    )

    outcome = await sent(client, sender, transfer, payload)

    entity = server.host.namespace.entities.find("q")
    assert entity is not None
    assert isinstance(outcome, Rejected if extra > 0 else Accepted)
    assert entity.received == (0 if extra > 0 else count)


async def sent(
    client: RawClient, link: Link, transfer: Transfer, payload: bytes
) -> Any:
    """Send frames of the test's own, as if the engine had; returns the outcome."""
    assert not client.engine.take()
    link.send(b"", b"t")
    client.engine.take()
    client.write(
        encode_transfer(
            link.session.channel,
            link.handle,
            transfer.delivery_id or 0,
            b"t",
            payload,
            False,
            limits.FRAME_BYTES_MAX,
            transfer.message_format or 0,
        )
    )
    return (await client.wait(Disposed)).state


# -- transactions ----------------------------------------------------------------------


class Coordination:
    """A client with a coordinator."""

    def __init__(self, client: RawClient, link: Link) -> None:
        self._client = client
        self._link = link

    async def ask(self, request: Any) -> Any:
        """Declare or discharge."""
        body = b"\x00" + encode(ULong(sections.VALUE)) + encode_composite(request)
        return await self._client.send(self._link, body)

    async def declare(self) -> bytes:
        """Declare a transaction."""
        outcome = await self.ask(Declare())
        assert isinstance(outcome, Declared)
        return outcome.txn_id or b""

    async def send(self, link: Link, txn_id: bytes, payload: bytes = BODY) -> bool:
        """Whether a message was taken into a transaction."""
        state = TransactionalState(txn_id=txn_id)
        outcome = await self._client.send(link, payload, state)
        return isinstance(outcome, TransactionalState)


@pytest.fixture
async def coordination(client: RawClient, session: Session) -> Coordination:
    asked = Attach(source=Source(), target=Coordinator())
    return Coordination(client, await attach(client, session, True, asked))


@AROUND
async def test_messages_of_a_transaction(
    coordination: Coordination, sender: Link, extra: int
) -> None:
    txn_id = await coordination.declare()
    count = limits.TRANSACTION_MESSAGES_MAX + extra

    taken = [await coordination.send(sender, txn_id) for _ in range(count)]

    assert taken.count(False) == max(extra, 0)


@AROUND
async def test_open_transactions(
    coordination: Coordination, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONS_OPEN_MAX", 5)
    open_ids = [await coordination.declare() for _ in range(5 + min(extra, 0))]

    if extra > 0:
        refused = await coordination.ask(Declare())
        assert refused.error.condition == EXCEEDED
    done = await coordination.ask(Discharge(txn_id=open_ids[0], fail=True))
    assert isinstance(done, Accepted)
    assert await coordination.declare()


@AROUND
async def test_bytes_of_transactions(
    coordination: Coordination,
    sender: Link,
    monkeypatch: pytest.MonkeyPatch,
    extra: int,
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 3 * len(BODY) - extra)
    first, second = await coordination.declare(), await coordination.declare()

    taken = [
        await coordination.send(sender, first),
        await coordination.send(sender, second),
        await coordination.send(sender, first),
    ]

    assert taken == [True, True, extra <= 0]
    # What is discharged makes room.
    await coordination.ask(Discharge(txn_id=first, fail=True))
    assert await coordination.send(sender, second)


async def test_a_transaction_ends_by_itself(
    server: RawServer,
    coordination: Coordination,
    sender: Link,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_SECONDS_MAX", 0.05)
    txn_id = await coordination.declare()
    assert await coordination.send(sender, txn_id)
    (connection,) = connections_of(server.ports["contoso"])
    await until(lambda: not connection.transactions._open)

    outcome = await coordination.ask(Discharge(txn_id=txn_id, fail=False))

    assert outcome.error.condition == "amqp:transaction:unknown-id"


async def test_a_transaction_leaves_no_timer_behind(
    server: RawServer, client: RawClient, coordination: Coordination
) -> None:
    (connection,) = connections_of(server.ports["contoso"])
    transactions = connection.transactions
    first, second = await coordination.declare(), await coordination.declare()
    timers = [transactions._open[key].timer for key in (first, second)]

    await coordination.ask(Discharge(txn_id=first, fail=True))
    assert [timer is not None and timer.cancelled() for timer in timers] == [
        True,
        False,
    ]
    client.abort()
    await until(lambda: not server.ports["contoso"].connections)

    assert [timer is not None and timer.cancelled() for timer in timers] == [True, True]


# -- rules -----------------------------------------------------------------------------


async def add_rule(links: RequestLinks, name: str, expression: str) -> int:
    body = {
        "rule-name": name,
        "rule-description": {"sql-filter": {"expression": expression}},
    }
    answer = await links.ask({"operation": "com.microsoft:add-rule"}, body)
    return int(answer.application_properties["statusCode"])


@AROUND
async def test_rules_of_a_topic(
    client: RawClient, session: Session, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    """All subscriptions of a topic share the bound; each has one rule at the start."""
    monkeypatch.setattr(limits, "FILTERS_PER_TOPIC_MAX", 6)
    pairs = [
        await RequestLinks.open(client, session, f"t/Subscriptions/{name}/$management")
        for name in ("s", "z")
    ]

    statuses = [
        await add_rule(pairs[number % 2], f"r{number}", "a = 1")
        for number in range(4 + extra)
    ]

    assert statuses == [200, 200, 200, 200, 400][: 4 + extra]


@AROUND
async def test_the_length_of_a_filter(
    client: RawClient, session: Session, extra: int
) -> None:
    links = await RequestLinks.open(client, session, "t/Subscriptions/s/$management")
    start, end = "a = '", "'"
    room = limits.FILTER_CHARS_MAX + extra - len(start) - len(end)

    status = await add_rule(links, "r", start + "x" * room + end)

    assert status == (400 if extra > 0 else 200)


@AROUND
async def test_the_expressions_of_a_filter(
    client: RawClient, session: Session, extra: int
) -> None:
    links = await RequestLinks.open(client, session, "t/Subscriptions/s/$management")
    count = limits.FILTER_EXPRESSIONS_MAX + extra

    status = await add_rule(links, "r", " OR ".join(["a = 1"] * count))

    assert status == (400 if extra > 0 else 200)
