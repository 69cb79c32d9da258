"""The backlog queues as the syphon's driver sees them, on a real namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.client.peer import peering
from tests.client.site import message
from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.transport.endpoint import Endpoint
from twinbus.errors import RemoteError
from twinbus.pairing.rules.naming import backlog_path
from twinbus.spark.syphon_job.backlog import Backlog
from twinbus.testing.namespace import ServedNamespace, serve_namespace
from twinbus.wire.performatives import Error
from twinbus.wire.types import Symbol

PRIMARY = "contoso"


def path(index: int) -> str:
    return backlog_path(PRIMARY, index)


@pytest.fixture(scope="module")
def namespace() -> Iterator[ServedNamespace]:
    with serve_namespace() as served:
        yield served


@pytest_asyncio.fixture
async def connection(namespace: ServedNamespace) -> AsyncIterator[Connection]:
    """A connection to a namespace that has nothing."""
    await asyncio.to_thread(namespace.reset)
    text = namespace.connection_string
    async with Connection.from_connection_string(text) as made:
        yield made


def make(namespace: ServedNamespace, *indexes: int) -> None:
    for index in indexes:
        namespace.create_queue(path(index), lock_duration="PT5M")


async def send(connection: Connection, index: int, count: int) -> None:
    async with connection.sender(path(index)) as sender:
        await sender.send([message() for _ in range(count)])


async def test_every_queue_is_found_beyond_gaps(
    namespace: ServedNamespace, connection: Connection
) -> None:
    wanted = [0, 1, 9, 10, 19, 29, 120]
    make(namespace, *wanted)

    assert await Backlog(connection, PRIMARY).find() == wanted


async def test_queues_of_others_are_not_found(
    namespace: ServedNamespace, connection: Connection
) -> None:
    make(namespace, 0)

    assert await Backlog(connection, "fabrikam").find() == []


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 1000, 1025])
async def test_the_depth_is_found_at_any_depth(
    namespace: ServedNamespace, connection: Connection, count: int
) -> None:
    make(namespace, 0, 1)
    if count:
        await send(connection, 1, count)

    found = await Backlog(connection, PRIMARY).depths([0, 1])

    assert found == {0: 0, 1: count}


async def test_depth_is_from_the_first_that_is_left(
    namespace: ServedNamespace, connection: Connection
) -> None:
    make(namespace, 0)
    await send(connection, 0, 50)
    async with connection.receiver(path(0)) as receiver:
        await receiver.complete(await receiver.receive(20))

    assert await Backlog(connection, PRIMARY).depths([0]) == {0: 30}


async def test_a_queue_with_a_locked_message_is_not_empty(
    namespace: ServedNamespace, connection: Connection
) -> None:
    make(namespace, 0)
    await send(connection, 0, 1)
    backlog = Backlog(connection, PRIMARY)
    async with connection.receiver(path(0)) as receiver:
        held = await receiver.receive(1)

        assert await backlog.empty([0]) == set()
        assert await backlog.wait([0], 0.2) == set()

        await receiver.complete(held)
    assert await backlog.empty([0]) == {0}


async def test_a_queue_with_deferred_messages_only_is_empty(
    namespace: ServedNamespace, connection: Connection
) -> None:
    make(namespace, 0)
    await send(connection, 0, limits.PEEK_MESSAGES_MAX + 2)
    backlog = Backlog(connection, PRIMARY)
    async with connection.receiver(path(0)) as receiver:
        held = await receiver.receive(limits.PEEK_MESSAGES_MAX + 1)
        await receiver.defer(held)
        assert await backlog.empty([0]) == set()
        await receiver.complete(await receiver.receive(1))

    assert await backlog.empty([0]) == {0}


async def test_waiting_takes_nothing_and_counts_nothing(
    namespace: ServedNamespace, connection: Connection
) -> None:
    make(namespace, 0, 1, 2)
    backlog = Backlog(connection, PRIMARY)
    waiting = asyncio.create_task(backlog.wait([0, 1, 2], 30))
    async with connection.receiver(path(1)) as other:
        # Receivers are served in order: once this one has asked, the wait has.
        asked = asyncio.create_task(other.receive(1, 0.2))
        await asked
    await send(connection, 1, 1)

    assert await waiting == {1}

    async with connection.receiver(path(1)) as receiver:
        [back] = await receiver.receive(1, 5)
        assert back.delivery_count == 0
        await receiver.complete(back)


async def test_waiting_ends_with_nothing_after_its_time(
    namespace: ServedNamespace, connection: Connection
) -> None:
    make(namespace, 0, 1)

    assert await Backlog(connection, PRIMARY).wait([0, 1], 0.1) == set()


async def test_a_queue_that_is_gone_is_an_error(
    namespace: ServedNamespace, connection: Connection
) -> None:
    make(namespace, 0)

    with pytest.raises(RemoteError) as caught:
        await Backlog(connection, PRIMARY).wait([0, 1], 30)

    assert caught.value.condition == "amqp:not-found"


async def test_a_wait_that_a_service_ends_as_idle_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "IDLE_LINK_MS_MIN", 0)
    ended = Error(Symbol("amqp:link:detach-forced"), "Idle timeout: 00:10:00.")
    async with (
        peering() as peer,
        Connection(Endpoint("127.0.0.1", peer.port), SasKey("a", "b")) as connection,
    ):
        waiting = asyncio.create_task(Backlog(connection, PRIMARY).wait([0, 1], 900))

        await peer.until(lambda: len(peer.polls) == 2)
        for connection_there, link in peer.polls:
            link.detach(ended)
            connection_there.flush()

        assert await waiting == set()
