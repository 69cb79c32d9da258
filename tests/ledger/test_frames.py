"""What a server counts for clients that the official ones are not: frames by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.amqp.test_transactions import Desk, serving_desk
from twinbus.core.entity import QueueDescription
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.wire.events import Delivered, Detached
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import (
    Accepted,
    Discharge,
    TransactionalState,
)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    folder = tmp_path / "ledger"
    config = NamespaceConfig("contoso", (QueueDescription("in"),), ledger=folder)
    async with serving_desk(tmp_path / "data", config) as found:
        yield found


def counted(desk: Desk) -> dict[tuple[str, str], int]:
    """Operations so far, by operation and outcome."""
    counts = desk.server.host.namespace.ledger
    assert counts is not None
    return {key[1:3]: cell[0] for key, cell in counts.cells.items()}


def flow(desk: Desk, link: Link, credit: int, *, drain: bool = False) -> None:
    link.drain = drain
    link.grant(credit)
    desk.client.flush()


async def drained(desk: Desk, link: Link) -> None:
    """Drain a link, and wait for the answer."""
    flow(desk, link, link.credit, drain=True)
    while link.credit:
        desk.client._news.clear()
        await asyncio.wait_for(desk.client._news.wait(), 10)


async def send(desk: Desk, count: int = 1) -> None:
    sender = await desk.client.sender(desk.session, "in")
    for _ in range(count):
        payload = sections.encode_message(b"x")
        assert isinstance(await desk.client.send(sender, payload), Accepted)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_transaction_counts_when_its_outcome_is_known(
    desk: Desk, commits: bool
) -> None:
    delivery = await desk.held("in")
    transaction = await desk.declare()
    state = TransactionalState(txn_id=transaction)
    sender = await desk.client.sender(desk.session, "in")
    await desk.client.send(sender, sections.encode_message(b"x"), state)
    desk.dispose(delivery, TransactionalState(txn_id=transaction, outcome=Accepted()))
    before = {("send", "accepted"): 1, ("receive", "accepted"): 1}
    assert counted(desk) == before

    await desk.ask(Discharge(txn_id=transaction, fail=not commits))

    if commits:
        after = {("send", "accepted"): 2, ("settle", "accepted"): 1}
    else:
        after = {("send", "refused"): 1, ("settle", "refused"): 1}
    assert counted(desk) == before | after


async def test_credit_that_is_drained_without_a_message_is_a_poll(desk: Desk) -> None:
    link = await desk.client.receiver(desk.session, "in", credit=5)

    await drained(desk, link)
    await drained(desk, link)

    assert counted(desk) == {("poll", "accepted"): 1}


async def test_credit_that_has_brought_a_message_is_no_poll(desk: Desk) -> None:
    await send(desk)
    link = await desk.client.receiver(desk.session, "in", credit=5)
    await desk.client.wait(Delivered)

    await drained(desk, link)

    assert counted(desk) == {("send", "accepted"): 1, ("receive", "accepted"): 1}


async def test_credit_on_top_goes_on_with_the_same_poll(desk: Desk) -> None:
    link = await desk.client.receiver(desk.session, "in", credit=1)
    for credit in (2, 3, 4):
        flow(desk, link, credit)

    await drained(desk, link)

    assert counted(desk) == {("poll", "accepted"): 1}


async def test_credit_that_is_asked_for_again_or_withdrawn_is_a_poll(
    desk: Desk,
) -> None:
    link = await desk.client.receiver(desk.session, "in", credit=2)
    flow(desk, link, 2)
    flow(desk, link, 0)

    # The server has read all of it when it answers another link.
    await send(desk)

    assert counted(desk)["poll", "accepted"] == 2


async def test_a_link_that_ends_while_it_waits_is_a_poll(desk: Desk) -> None:
    link = await desk.client.receiver(desk.session, "in", credit=1)
    link.detach()
    desk.client.flush()
    await desk.client.wait(Detached)

    assert counted(desk) == {("poll", "accepted"): 1}
