"""Receiving from a real server: chunks, settlement, locks, sessions, browsing."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.site import QUEUE, SESSIONS, Site, body_of, message
from twinbus.client.receiver import ReceiveOptions
from twinbus.errors import RemoteError, SettleRefused
from twinbus.wire.codec import encode
from twinbus.wire.message.sections import MESSAGE_ANNOTATIONS
from twinbus.wire.types import Described, Symbol, Timestamp, ULong

LOST = "com.microsoft:message-lock-lost"
SESSION_LOST = "com.microsoft:session-lock-lost"


async def fill(namespace: Site, count: int, session_id: str | None = None) -> None:
    path = QUEUE if session_id is None else SESSIONS
    sender = namespace.client().sender(path)
    bodies = [b"%d" % number for number in range(count)]
    await sender.send([message(body, session_id) for body in bodies])


async def depth(namespace: Site, path: str = QUEUE) -> int:
    return len(await namespace.client().management(path).peek(100))


# -- chunks --------------------------------------------------------------------------


async def test_a_receive_returns_at_most_the_given_count(
    namespace: Site,
) -> None:
    await fill(namespace, 7)
    receiver = namespace.client().receiver(QUEUE)

    first = await receiver.receive(5)
    second = await receiver.receive(5)

    assert [body_of(each) for each in first] == [b"0", b"1", b"2", b"3", b"4"]
    assert [body_of(each) for each in second] == [b"5", b"6"]
    assert first[0].delivery_count == 0
    assert first[0].lock_token is not None


async def test_nothing_in_time_is_an_empty_chunk(namespace: Site) -> None:
    receiver = namespace.client().receiver(QUEUE)

    assert await receiver.receive(5, wait_seconds=0.05) == []
    assert await receiver.receive(5, wait_seconds=0) == []


async def test_a_receive_that_ended_leaves_no_credit_behind(namespace: Site) -> None:
    receiver = namespace.client().receiver(QUEUE)
    await receiver.receive(5, wait_seconds=0.01)

    await fill(namespace, 1)

    (found,) = await namespace.client().receiver(QUEUE).receive(1)
    assert body_of(found) == b"0"


async def test_a_message_that_comes_later_ends_the_wait(namespace: Site) -> None:
    receiver = namespace.client().receiver(QUEUE)
    waiting = asyncio.ensure_future(receiver.receive(5, wait_seconds=10))
    await receiver.open()

    await fill(namespace, 1)

    assert len(await waiting) == 1


async def test_a_cancelled_receive_gives_its_credit_back(namespace: Site) -> None:
    receiver = namespace.client().receiver(QUEUE)
    await receiver.open()
    waiting = asyncio.ensure_future(receiver.receive(5, wait_seconds=10))
    await namespace.client().management(QUEUE).peek(1)

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await namespace.client().management(QUEUE).peek(1)
    await fill(namespace, 1)

    assert len(await namespace.client().receiver(QUEUE).receive(1)) == 1


async def test_several_tasks_share_a_receiver(namespace: Site) -> None:
    await fill(namespace, 30)
    receiver = namespace.client().receiver(QUEUE)

    chunks = await asyncio.gather(*(receiver.receive(10) for _ in range(3)))

    found = [int(body_of(each)) for chunk in chunks for each in chunk]
    assert sorted(found) == list(range(30))


async def test_prefetched_messages_are_released_when_the_receiver_closes(
    namespace: Site,
) -> None:
    await fill(namespace, 20)
    receiver = namespace.client().receiver(QUEUE, ReceiveOptions(prefetch=10))
    first = await receiver.receive(3)
    await receiver.complete(first)

    await receiver.close()

    rest = await namespace.client().receiver(QUEUE).receive(100)
    assert [int(body_of(each)) for each in rest] == list(range(3, 20))
    assert {each.delivery_count for each in rest} == {0}


async def test_a_prefetch_is_refilled_until_all_have_come(namespace: Site) -> None:
    await fill(namespace, 100)
    receiver = namespace.client().receiver(QUEUE, ReceiveOptions(prefetch=8))
    found: list[int] = []

    while len(found) < 100:
        chunk = await receiver.receive(5)
        await receiver.complete(chunk)
        found += [int(body_of(each)) for each in chunk]

    assert found == list(range(100))


async def test_receive_and_delete_needs_no_settlement(namespace: Site) -> None:
    await fill(namespace, 5)
    receiver = namespace.client().receiver(QUEUE, ReceiveOptions(deletes=True))

    found = await receiver.receive(3)

    assert [each.lock_token for each in found] == [None, None, None]
    assert await depth(namespace) == 2


# -- settlement ----------------------------------------------------------------------


async def test_completed_messages_are_gone(namespace: Site) -> None:
    await fill(namespace, 10)
    receiver = namespace.client().receiver(QUEUE)

    await receiver.complete(await receiver.receive(10))

    assert await depth(namespace) == 0


async def test_an_abandoned_message_comes_back_counted(namespace: Site) -> None:
    await fill(namespace, 1)
    receiver = namespace.client().receiver(QUEUE)
    (first,) = await receiver.receive()

    await receiver.abandon(first, {"tried": True})

    (again,) = await receiver.receive()
    assert again.delivery_count == 1
    assert again.application_properties["tried"] is True


async def test_a_released_message_comes_back_uncounted(namespace: Site) -> None:
    await fill(namespace, 1)
    receiver = namespace.client().receiver(QUEUE)

    await receiver.release(await receiver.receive())

    (again,) = await receiver.receive()
    assert again.delivery_count == 0


async def test_a_deferred_message_comes_by_its_number(namespace: Site) -> None:
    await fill(namespace, 1)
    receiver = namespace.client().receiver(QUEUE)
    (first,) = await receiver.receive()

    await receiver.defer(first)

    assert await receiver.receive(1, wait_seconds=0) == []
    (again,) = await receiver.receive_deferred([first.sequence_number])
    await receiver.complete(again)
    assert await depth(namespace) == 0


async def test_a_dead_letter_carries_its_reason(namespace: Site) -> None:
    await fill(namespace, 1)
    client = namespace.client()
    receiver = client.receiver(QUEUE)

    await receiver.dead_letter(await receiver.receive(), "broken", "no wheels")

    (found,) = await client.receiver(f"{QUEUE}/$DeadLetterQueue").receive()
    assert found.application_properties["DeadLetterReason"] == "broken"
    assert found.application_properties["DeadLetterErrorDescription"] == "no wheels"


async def test_a_lost_lock_is_refused_and_the_others_are_settled(
    namespace: Site,
) -> None:
    await fill(namespace, 3)
    receiver = namespace.client().receiver(QUEUE)
    (early,) = await receiver.receive(1)
    namespace.server.advance(6000)
    late = await receiver.receive(3)
    assert len(late) == 3

    with pytest.raises(RemoteError) as alone:
        await receiver.complete(early)
    with pytest.raises(SettleRefused) as among:
        await receiver.complete([late[0], early, late[1]])

    assert alone.value.condition == LOST
    assert list(among.value.failures) == [1]
    assert await depth(namespace) == 1


async def test_a_lock_outlives_its_link(namespace: Site) -> None:
    await fill(namespace, 2)
    client = namespace.client()
    receiver = client.receiver(QUEUE)
    found = await receiver.receive(2)
    await receiver.close()

    await client.receiver(QUEUE).complete(found)

    assert await depth(namespace) == 0


async def test_a_renewed_lock_lasts_longer(namespace: Site) -> None:
    await fill(namespace, 1)
    receiver = namespace.client().receiver(QUEUE)
    (found,) = await receiver.receive()
    before_ms = found.locked_until_ms
    assert before_ms is not None
    namespace.server.advance(3000)

    await receiver.renew(found)

    assert found.locked_until_ms == before_ms + 3000
    namespace.server.advance(3000)
    await receiver.complete(found)


# -- sessions ------------------------------------------------------------------------


async def test_a_session_is_received_by_its_id(namespace: Site) -> None:
    await fill(namespace, 2, "a")
    await fill(namespace, 2, "b")
    receiver = namespace.client().receiver(SESSIONS, ReceiveOptions(session_id="b"))

    found = await receiver.receive(10)

    assert [each.session_id for each in found] == ["b", "b"]
    assert receiver.session_id == "b"
    assert receiver.session_locked_until_ms == found[0].locked_until_ms
    await receiver.complete(found)


async def test_the_next_session_is_a_free_one(namespace: Site) -> None:
    await fill(namespace, 1, "a")
    await fill(namespace, 1, "b")
    client = namespace.client()
    options = ReceiveOptions(next_session=True)
    first = client.receiver(SESSIONS, options)
    second = client.receiver(SESSIONS, options)

    await first.open()
    await second.open()

    assert {first.session_id, second.session_id} == {"a", "b"}


async def test_no_next_session_in_time_is_a_timeout_of_the_server(
    namespace: Site,
) -> None:
    options = ReceiveOptions(next_session=True, session_seconds=0.05)
    receiver = namespace.client().receiver(SESSIONS, options)

    with pytest.raises(RemoteError) as refused:
        await receiver.open()

    assert refused.value.condition == "com.microsoft:timeout"


async def test_waiting_for_a_session_can_be_cancelled(namespace: Site) -> None:
    client = namespace.client()
    receiver = client.receiver(SESSIONS, ReceiveOptions(next_session=True))
    waiting = asyncio.ensure_future(receiver.open())
    await client.management(SESSIONS).peek(1)

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    await fill(namespace, 1, "a")
    other = client.receiver(SESSIONS, ReceiveOptions(next_session=True))
    await other.open()
    assert other.session_id == "a"


async def test_session_state_is_set_read_and_cleared(namespace: Site) -> None:
    receiver = namespace.client().receiver(SESSIONS, ReceiveOptions(session_id="a"))
    await receiver.open()

    await receiver.set_session_state(b"step 2")

    assert await receiver.session_state() == b"step 2"
    await receiver.set_session_state(None)
    assert await receiver.session_state() is None


async def test_a_session_lock_can_be_renewed_and_lost(namespace: Site) -> None:
    await fill(namespace, 1, "a")
    receiver = namespace.client().receiver(SESSIONS, ReceiveOptions(session_id="a"))
    (found,) = await receiver.receive()
    before_ms = receiver.session_locked_until_ms
    assert before_ms is not None
    namespace.server.advance(3000)
    assert await receiver.renew_session() == before_ms + 3000

    namespace.server.advance(6000)

    with pytest.raises(RemoteError) as lost:
        await receiver.receive()
    assert lost.value.condition == SESSION_LOST
    with pytest.raises(RemoteError) as lost:
        await receiver.complete(found)
    assert lost.value.condition == SESSION_LOST
    with pytest.raises(RemoteError) as lost:
        await receiver.open()
    assert lost.value.condition == SESSION_LOST


async def test_sessions_are_listed(namespace: Site) -> None:
    await fill(namespace, 1, "a")
    await fill(namespace, 1, "b")

    assert await namespace.client().management(SESSIONS).sessions() == ["a", "b"]


# -- scheduling ----------------------------------------------------------------------


def scheduled(at_ms: int) -> bytes:
    value = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(at_ms)}
    plain = message(b"later")
    at = plain.index(b"\x00\x53\x73")
    section = encode(Described(ULong(MESSAGE_ANNOTATIONS), value))
    return plain[:at] + section + plain[at:]


async def test_a_scheduled_message_comes_at_its_time(namespace: Site) -> None:
    client = namespace.client()
    at_ms = namespace.server.clock.now_ms() + 1000
    receiver = client.receiver(QUEUE)
    (number,) = await client.management(QUEUE).schedule([scheduled(at_ms)])
    (shown,) = await receiver.peek()
    assert shown.sequence_number == number
    assert await receiver.receive(1, wait_seconds=0) == []

    namespace.server.advance(1000)

    assert len(await receiver.receive()) == 1


async def test_a_scheduled_message_can_be_taken_back(namespace: Site) -> None:
    management = namespace.client().management(QUEUE)
    at_ms = namespace.server.clock.now_ms() + 1000
    numbers = await management.schedule([scheduled(at_ms), scheduled(at_ms)])

    await management.cancel_scheduled(numbers)

    assert await management.peek(10) == []
    with pytest.raises(RemoteError) as missing:
        await management.cancel_scheduled(numbers)
    assert missing.value.condition == "com.microsoft:message-not-found"
