"""Cancellation at every step of every call: nothing is left, and the next call works.

A call is started again and again, and cancelled one step of the loop later each time,
until it is quick enough to end by itself. So every place where it waits is met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from tests.client.quiet import quiet
from tests.client.site import QUEUE, SESSIONS, Site, body_of, message
from twinbus.client.connection import Connection
from twinbus.client.live import LiveConnection
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions, Receiver

_STEPS_MAX = 500
_SECONDS_MAX = 10.0


async def cancel_at(call: Awaitable[object], steps: int) -> bool:
    """Cancel a call after so many steps; says whether there was something to cancel."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        await asyncio.sleep(0)
    cancelled = task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return cancelled


async def at_every_step(call: Callable[[], Awaitable[object]]) -> int:
    """Cancel a call at each of its steps; returns how many there were."""
    for steps in range(_STEPS_MAX):
        if not await cancel_at(call(), steps):
            return steps
    raise AssertionError("The call never ends.")


def live_of(client: Connection) -> LiveConnection:
    assert client._live is not None
    return client._live


async def until(ready: Callable[[], bool]) -> None:
    """Until something is so; there is no event for what an engine has forgotten."""
    async with asyncio.timeout(_SECONDS_MAX):
        while not ready():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_first_send(namespace: Site) -> None:
    port = next(iter(namespace.server.ports.values()))

    async def call() -> None:
        async with namespace.client() as client:
            await client.sender(QUEUE).send(message())

    async with quiet():
        assert await at_every_step(call) > 10
        await until(lambda: not port.connections)


async def test_links_that_are_opened_and_closed(namespace: Site) -> None:
    client = namespace.client()
    await client.sender(QUEUE).open()
    await client.management(QUEUE).peek(1)
    live = live_of(client)
    before = len(live.links), len(live.engine.sessions)

    async def send() -> None:
        async with client.sender(QUEUE) as sender:
            await sender.send([message(), message()])

    async def receive() -> None:
        async with client.receiver(QUEUE, ReceiveOptions(prefetch=10)) as receiver:
            await receiver.receive(1, wait_seconds=0)

    async def session() -> None:
        options = ReceiveOptions(session_id="s")
        async with client.receiver(SESSIONS, options) as receiver:
            await receiver.open()
            await receiver.set_session_state(b"x")

    async with quiet():
        await client.management(SESSIONS).peek(1)
        # One more entity: its claim is put and its two links stay.
        before = before[0] + 2, before[1] + 1
        for call in (send, receive, session):
            assert await at_every_step(call) > 3
            await until(lambda: len(live.engine.sessions) == before[1])
            assert len(live.links) == before[0]
        assert live.failure is None


@pytest.mark.parametrize("size", [1, 3, 600])
async def test_sends_on_a_link_survive_cancellation_at_every_step(
    namespace: Site, size: int
) -> None:
    client = namespace.client()
    sender = client.sender(QUEUE)
    await sender.open()
    link = sender._link
    numbers = count()

    async def call() -> None:
        bodies = [b"%04d" % next(numbers) + b"x" * 1000 for _ in range(size)]
        sent = [message(body) for body in bodies]
        await sender.send(sent[0] if size == 1 else sent)

    async with quiet():
        assert await at_every_step(call) > 1
        await sender.send(message())
        assert sender._link is link
        assert link is not None
        await until(lambda: not link.pending)
        assert not link.link.session.unsettled


async def test_no_message_is_lost_by_a_receive(namespace: Site) -> None:
    client = namespace.client()
    bodies = [b"%d" % number for number in range(40)]
    await client.sender(QUEUE).send([message(body) for body in bodies])
    receiver = client.receiver(QUEUE)
    found: list[Message] = []

    async def call() -> None:
        found.extend(await receiver.receive(3))

    async with quiet():
        await at_every_step(call)
        while len(found) < len(bodies):
            found.extend(await receiver.receive(10))
        # Each came once: what a cancelled call had received was kept for the next.
        assert sorted(map(body_of, found)) == sorted(bodies)
        await receiver.complete(found)
        await receiver.close()
    assert await client.management(QUEUE).peek(1) == []


async def test_settlements_survive_cancellation_at_every_step(namespace: Site) -> None:
    client = namespace.client()
    receiver = client.receiver(QUEUE)
    sender = client.sender(QUEUE)

    async def fresh() -> list[Message]:
        await sender.send([message(), message()])
        return await receiver.receive(2)

    calls: tuple[Callable[[Receiver, list[Message]], Awaitable[object]], ...] = (
        lambda receiver, found: receiver.complete(found),
        lambda receiver, found: receiver.abandon(found),
        lambda receiver, found: receiver.dead_letter(found),
        lambda receiver, found: receiver.renew(found),
        lambda receiver, _: receiver.peek(5),
        lambda receiver, _: client.management(receiver.path).delete(1, 1),
    )
    async with quiet():
        for call in calls:
            for steps in range(_STEPS_MAX):
                if not await cancel_at(call(receiver, await fresh()), steps):
                    break
            assert steps > 1
        link = receiver._link
        assert link is not None
        assert link.failure is None
        await until(lambda: not link._settling)


async def test_closing_a_client(namespace: Site) -> None:
    port = next(iter(namespace.server.ports.values()))
    async with quiet():
        # A task that is cancelled before its first step does nothing at all.
        for steps in range(1, _STEPS_MAX):
            client = namespace.client()
            await client.sender(QUEUE).send(message())
            more = await cancel_at(client.close(), steps)
            # Cancelled or not, the socket is gone.
            await until(lambda: not port.connections)
            if not more:
                break
