"""Sending to a real server: outcomes, batches, many tasks on one link."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.site import QUEUE, SESSIONS, Site, body_of, message
from twinbus import limits
from twinbus.client.message import Message
from twinbus.errors import (
    CallerError,
    ClaimRefused,
    MessageTooLarge,
    RemoteError,
)


async def peeked(namespace: Site, count: int, path: str = QUEUE) -> list[Message]:
    """What is in the entity."""
    found: list[Message] = []
    client = namespace.client()
    while len(found) < count:
        start = found[-1].sequence_number + 1 if found else 1
        more = await client.management(path).peek(count, start)
        if not more:
            break
        found += more
    return found


async def test_an_accepted_message_is_in_the_queue(namespace: Site) -> None:
    sender = namespace.client().sender(QUEUE)
    sent = message(b"hello")

    await sender.send(sent)

    (found,) = await peeked(namespace, 2)
    assert found.bare == sent[sent.index(b"\x00\x53\x73") :]


async def test_many_tasks_send_at_once_over_one_link(namespace: Site) -> None:
    sender = namespace.client().sender(QUEUE)

    await asyncio.gather(*(sender.send(message()) for _ in range(2500)))

    assert len(await peeked(namespace, 2501)) == 2500


@pytest.mark.parametrize(("extra", "writes"), [(-1, 0), (0, 1), (1, 1)])
async def test_much_is_written_at_once_and_little_when_the_loop_comes_round(
    extra: int, writes: int, namespace: Site
) -> None:
    """So the server can begin while other tasks still make their messages."""
    sender = namespace.client().sender(QUEUE)
    await sender.open()
    link = sender._link
    assert link is not None
    overhead = len(message(bytes(1000))) - 1000
    body = bytes(limits.CLIENT_WRITE_BYTES + extra - overhead)
    before = link.live.writes

    outcome = sender.submit(message(body))

    assert link.live.writes - before == writes
    await outcome.future
    assert link.live.writes - before == 1


async def test_sends_of_one_task_after_the_other_keep_their_order(
    namespace: Site,
) -> None:
    sender = namespace.client().sender(QUEUE)
    bodies = [b"%d" % number for number in range(50)]

    for body in bodies:
        await sender.send(message(body))

    found = await peeked(namespace, 51)
    assert [body_of(each) for each in found] == bodies


async def test_a_list_goes_in_batches_that_are_filled_by_bytes(namespace: Site) -> None:
    sender = namespace.client().sender(QUEUE)
    sent = [message(b"x" * 1000) for _ in range(600)]

    await sender.send(sent)

    found = await peeked(namespace, 601)
    assert [each.message_id for each in found] == [
        Message(each).message_id for each in sent
    ]


async def test_a_message_that_is_too_large_is_not_sent_and_costs_no_link(
    namespace: Site,
) -> None:
    sender = namespace.client().sender(QUEUE)
    await sender.send(message())

    with pytest.raises(MessageTooLarge):
        await sender.send(message(b"x" * 300_000))
    with pytest.raises(MessageTooLarge):
        await sender.send([message(), message(b"x" * 300_000)])

    await sender.send(message())
    assert len(await peeked(namespace, 3)) == 2


async def test_a_refused_message_says_why_and_leaves_the_link(namespace: Site) -> None:
    sender = namespace.client().sender(SESSIONS)

    with pytest.raises(RemoteError) as refused:
        await sender.send(message())

    assert refused.value.condition == "amqp:not-allowed"
    await sender.send(message(session_id="s"))


async def test_an_unknown_entity_is_told_apart(namespace: Site) -> None:
    sender = namespace.client().sender("nowhere")

    with pytest.raises(ClaimRefused) as refused:
        await sender.send(message())

    assert refused.value.condition == "amqp:not-found"


async def test_a_cancelled_send_leaves_the_link_as_it_was(namespace: Site) -> None:
    sender = namespace.client().sender(QUEUE)
    await sender.open()
    tasks = [asyncio.ensure_future(sender.send(message())) for _ in range(20)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=0)

    for task in tasks[::2]:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)

    assert all(isinstance(each, asyncio.CancelledError) for each in ended[::2])
    assert all(each is None for each in ended[1::2])
    await sender.send(message())


async def test_a_closed_connection_refuses_and_says_so(namespace: Site) -> None:
    client = namespace.client()
    sender = client.sender(QUEUE)
    await sender.send(message())
    await client.close()

    with pytest.raises(CallerError):
        await sender.send(message())


async def test_a_sender_that_was_closed_links_again(namespace: Site) -> None:
    async with namespace.client().sender(QUEUE) as sender:
        await sender.send(message())

    await sender.send(message())

    assert len(await peeked(namespace, 3)) == 2
