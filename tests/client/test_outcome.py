"""Sends that are not waited for: outcomes, leaving them, taking them back."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.client import peer as stages
from tests.client.peer import Peer, peering
from tests.client.site import QUEUE, Site, message
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.outcome import TaskOutcome
from twinbus.client.sender import Sender
from twinbus.client.sending import SendLink
from twinbus.client.transport.endpoint import Endpoint
from twinbus.errors import (
    CallerError,
    DeadlineExceeded,
    Disconnected,
    MessageTooLarge,
    OutcomeUnknown,
    RemoteError,
    SendRefused,
    Unreachable,
)


class Moved(Exception):
    """What a caller is told when it has to leave."""


def client_of(peer: Peer, timeout_seconds: float = 5) -> Connection:
    endpoint = Endpoint("127.0.0.1", peer.port)
    return Connection(endpoint, SasKey("n", "k"), timeout_seconds=timeout_seconds)


def link_of(sender: Sender) -> SendLink:
    link = sender._link
    assert link is not None
    return link


async def others_end() -> None:
    """Until no task is left but the test's own."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


def allow(peer: Peer, credit: int = 100) -> None:
    """The peer goes on: credit, and outcomes from now on."""
    peer.stage = stages.NEVER
    peer.connections[0].links[-1].grant(credit)
    peer.connections[0].flush()


SENDINGS = [
    pytest.param([message()] * 3, id="one batch"),
    pytest.param(message(), id="one message"),
    pytest.param([message(b"x" * 200_000)] * 3, id="three transfers"),
]


@pytest.mark.parametrize("sent", SENDINGS)
@pytest.mark.parametrize("linked", [True, False])
async def test_an_outcome_ends_when_the_server_has_accepted(
    namespace: Site, sent: bytes | list[bytes], linked: bool
) -> None:
    sender = namespace.client().sender(QUEUE)
    if linked:
        await sender.open()

    outcome = sender.submit(sent)

    assert not outcome.done()
    await outcome
    assert outcome.done()
    assert outcome.exception() is None


async def test_nothing_to_send_is_accepted_at_once(namespace: Site) -> None:
    sender = namespace.client().sender(QUEUE)
    await sender.open()

    await sender.submit([])


async def test_messages_submitted_before_the_link_keep_their_order() -> None:
    async with peering() as peer, client_of(peer) as client:
        sender = client.sender("q")
        outcomes = [sender.submit(message(b"%d" % number)) for number in range(50)]

        for outcome in outcomes:
            await outcome

        came = [each.payload for each in peer.connections[0].messages]
        ends = [b"%d" % number for number in range(50)]
        assert all(m.endswith(end) for m, end in zip(came, ends, strict=True))


@pytest.mark.parametrize("sent", SENDINGS)
@pytest.mark.parametrize("stage", [stages.CBS_REPLY, stages.CREDIT, stages.OUTCOME])
async def test_leaving_raises_the_reason_and_the_send_goes_on(
    sent: bytes | list[bytes], stage: str
) -> None:
    async with peering(stage) as peer, client_of(peer) as client:
        sender = client.sender("q")
        if stage != stages.CBS_REPLY:
            await sender.open()
        outcome = sender.submit(sent, 0.2)
        waiting = asyncio.ensure_future(_wait(outcome))
        await asyncio.wait([waiting], timeout=0)

        late = outcome.leave(Moved())

        with pytest.raises(Moved):
            await waiting
        assert not late.done()
        # Its own deadline ends it, and says what is known.
        with pytest.raises(RemoteError) as failed:
            await late
        known = DeadlineExceeded if stage != stages.OUTCOME else OutcomeUnknown
        reasons = {type(failed.value)}
        if isinstance(failed.value, SendRefused):
            reasons = {type(each) for each in failed.value.failures.values()}
        assert reasons == {known}
        peer.stage = stages.NEVER


async def _wait(outcome: object) -> None:
    await outcome  # type: ignore[misc]


@pytest.mark.parametrize("sent", SENDINGS)
async def test_a_late_acceptance_is_reported(sent: bytes | list[bytes]) -> None:
    async with peering(stages.CREDIT) as peer, client_of(peer) as client:
        sender = client.sender("q")
        await sender.open()
        outcome = sender.submit(sent)
        late = outcome.leave(Moved())

        allow(peer)
        await late

        assert isinstance(outcome.exception(), Moved)
        assert peer.connections[0].messages


async def test_a_late_refusal_is_reported(namespace: Site) -> None:
    sender = namespace.client().sender("baskets")
    await sender.open()

    late = sender.submit(message()).leave(Moved())

    with pytest.raises(RemoteError) as refused:
        await late
    assert refused.value.condition == "amqp:not-allowed"


async def test_leaving_twice_or_too_late_changes_nothing(namespace: Site) -> None:
    sender = namespace.client().sender(QUEUE)
    done = sender.submit(message())
    await done
    left = sender.submit(message())
    late = left.leave(Moved())

    assert done.leave(Moved()) is done.future
    assert done.exception() is None
    assert isinstance(left.leave(ValueError()).exception(), Moved)
    await late


@pytest.mark.parametrize("sent", SENDINGS)
@pytest.mark.parametrize("stage", [stages.CBS_REPLY, stages.CREDIT])
async def test_a_cancelled_message_is_not_sent(
    sent: bytes | list[bytes], stage: str
) -> None:
    async with peering(stage) as peer, client_of(peer) as client:
        sender = client.sender("q")
        outcome = sender.submit(sent)
        # The client waits for the token's answer, or it has attached its link.
        links = 2 if stage == stages.CBS_REPLY else 3
        await peer.until(
            lambda: peer.claims_asked > 0 and len(peer.connections[0].links) == links
        )

        assert outcome.cancel()

        with pytest.raises(asyncio.CancelledError):
            await outcome.future
        await others_end()
        peer.stage = stages.NEVER
        if stage == stages.CREDIT:
            allow(peer)
        await sender.send(message(b"last"))
        (only,) = peer.connections[0].messages
        assert only.payload.endswith(b"last")


async def test_nothing_of_a_cancelled_send_is_kept() -> None:
    async with peering(stages.CREDIT) as peer, client_of(peer) as client:
        sender = client.sender("q")
        await sender.open()
        waiting = [asyncio.ensure_future(sender.send(message())) for _ in range(20)]
        await asyncio.wait(waiting, timeout=0)
        link = link_of(sender)
        assert len(link.pending) == 20

        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

        assert not link.pending
        assert not link._waiting
        peer.stage = stages.NEVER


async def test_the_timer_of_a_link_ends_with_it() -> None:
    async with peering(stages.OUTCOME) as peer, client_of(peer) as client:
        sender = client.sender("q")
        await sender.open()
        outcome = sender.submit(message())
        link = link_of(sender)
        timer = link._timer
        assert timer is not None
        peer.stage = stages.NEVER

        await sender.close()

        assert timer.cancelled()
        assert isinstance(outcome.exception(), OutcomeUnknown)


def _note(order: list[float], seconds: float, _: object) -> None:
    order.append(seconds)


async def test_each_send_ends_by_its_own_deadline() -> None:
    async with peering(stages.CREDIT) as peer, client_of(peer) as client:
        sender = client.sender("q")
        await sender.open()
        order: list[float] = []
        outcomes = []
        for seconds in (0.3, 0.1, 5.0, 0.2, 0.0):
            outcome = sender.submit(message(), seconds)
            outcome.add_done_callback(partial(_note, order, seconds))
            outcomes.append(outcome)

        allowed = outcomes.pop(2)
        for outcome in outcomes:
            with pytest.raises(DeadlineExceeded, match="credit"):
                await outcome

        assert order == [0.0, 0.1, 0.2, 0.3]
        allow(peer)
        await allowed


async def test_callbacks_can_be_taken_away(namespace: Site) -> None:
    called: list[object] = []
    outcome = namespace.client().sender(QUEUE).submit(message())
    outcome.add_done_callback(called.append)
    outcome.remove_done_callback(called.append)

    await outcome

    assert called == []


async def test_errors_of_the_caller_are_raised_at_once(namespace: Site) -> None:
    client = namespace.client()
    sender = client.sender(QUEUE)
    await sender.open()
    with pytest.raises(MessageTooLarge):
        sender.submit(message(b"x" * 300_000))
    await client.close()

    with pytest.raises(CallerError):
        sender.submit(message())


async def test_a_server_that_is_not_there_is_an_outcome() -> None:
    async with peering() as peer:
        port = peer.port
    endpoint = Endpoint("127.0.0.1", port)
    async with Connection(endpoint, SasKey("n", "k")) as client:
        with pytest.raises(Unreachable):
            await client.sender("q").submit(message())


async def test_closing_fails_outcomes_that_were_left() -> None:
    async with peering(stages.OUTCOME) as peer:
        client = client_of(peer)
        sender = client.sender("q")
        await sender.open()
        late = sender.submit(message()).leave(Moved())
        unlinked = client.sender("other").submit(message()).leave(Moved())
        peer.stage = stages.NEVER

        await client.close()

        with pytest.raises(RemoteError):
            await late
        with pytest.raises(Disconnected):
            await unlinked


async def test_any_work_has_an_outcome() -> None:
    started = asyncio.Event()
    ended = asyncio.Event()

    async def work() -> None:
        started.set()
        await ended.wait()

    outcome = TaskOutcome(work())
    await started.wait()
    late = outcome.leave(Moved())
    other = TaskOutcome(work())
    other.cancel()

    ended.set()
    await late

    assert other.future.cancelled()
