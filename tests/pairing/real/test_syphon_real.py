"""The syphon of an application between two real servers: polls, rules and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusMessage

from tests.pairing.real.site import PATIENCE_SECONDS, Leftovers, Paired, RealPair
from tests.pairing.real.site import message as named
from twinbus import MessageTooLargeForBacklog, limits
from twinbus.aio import EventKind, PairedFactoryError
from twinbus.client.connection import Connection
from twinbus.client.message import Message
from twinbus.errors import PeerError
from twinbus.pairing.rules import envelope
from twinbus.pairing.rules.naming import backlog_path
from twinbus.pairing.sdk.conversion import payloads_of
from twinbus.testing.proxy import FaultyProxy
from twinbus.wire.frames import Frame, FrameReader
from twinbus.wire.message.sections import MESSAGE_ID, encode_message
from twinbus.wire.performatives import Attach, Begin, Flow, SaslInit

HOUR_MS = 3_600_000


@pytest.fixture
def label() -> str:
    return f"p-{uuid4().hex[:12]}"


@asynccontextmanager
async def connected(text: str) -> AsyncIterator[Connection]:
    async with Connection.from_connection_string(text) as connection:
        yield connection


async def put(pair: RealPair, queue: str, text: str, path: str) -> None:
    """Put a message into a backlog queue, as a sender would divert it."""
    payload = encode_message(b"body", {MESSAGE_ID: text})
    diverted = envelope.divert(payload, path, 0)
    async with connected(pair.secondary.server.connection_string) as connection:
        await connection.sender(queue).send(diverted)


async def came_home(pair: RealPair, path: str, count: int) -> list[Message]:
    """Take so many messages from an entity of the primary, waiting for them."""
    found: list[Message] = []
    async with connected(pair.primary.server.connection_string) as connection:
        receiver = connection.receiver(path)
        while len(found) < count:
            chunk = await receiver.receive(count, PATIENCE_SECONDS)
            assert chunk, found
            await receiver.complete(chunk)
            found += chunk
    return found


async def divert(pair: RealPair, label: str, queue: str, *messages: Any) -> None:
    """Send while the primary is away; it is back when this returns."""
    async with pair.pair(primary_name=label) as paired:
        pair.primary.server.kill()
        for each in messages:
            await paired.sender(queue).send_messages(each)
    pair.mend()


# -- queues ------------------------------------------------------------------------


async def test_every_queue_is_drained_also_beyond_the_count(
    pair: RealPair, label: str
) -> None:
    home = pair.queue()
    paths = [backlog_path(label, index) for index in (0, 1, 17)]
    for path in paths:
        pair.secondary.admin.create_queue(path)
        await put(pair, path, path, home)

    async with Leftovers(), pair.pair(primary_name=label, enable_syphon=True):
        found = await came_home(pair, home, 3)

    assert sorted(str(each.message_id) for each in found) == sorted(paths)


async def test_a_queue_that_is_made_later_is_found(
    pair: RealPair, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SYPHON_LOOK_SECONDS", 0.2)
    home, path = pair.queue(), backlog_path(label, 5)

    async with Leftovers(), pair.pair(primary_name=label, enable_syphon=True):
        pair.secondary.admin.create_queue(path)
        await put(pair, path, "late", home)
        found = await came_home(pair, home, 1)

    assert [each.message_id for each in found] == ["late"]


# -- polls -------------------------------------------------------------------------


class Polls:
    """The tap of a proxy: what a client asks of the backlog queues."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._readers: dict[int, FrameReader] = {}
        # Frames to the server after the attach of a backlog queue, by its path.
        self.frames: dict[str, list[str]] = {}
        self._paths: dict[tuple[int, int], str] = {}
        self._news = asyncio.Event()

    def __call__(self, number: int, side: str, data: bytes, _: int) -> None:
        if side != "server":
            return
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = FrameReader(1 << 20)
            reader.expect_header()
        reader.feed(data)
        try:
            while (frame := reader.next()) is not None:
                if isinstance(frame, Frame):
                    self._note(reader, number, frame)
        except PeerError:
            raise AssertionError("the proxy saw no AMQP") from None
        self._loop.call_soon_threadsafe(self._news.set)

    def _note(self, reader: FrameReader, number: int, frame: Frame) -> None:
        body: Any = frame.performative
        key = (number, frame.channel)
        if isinstance(body, SaslInit):
            reader.expect_header()
        elif isinstance(body, Begin):
            self._paths.pop(key, None)
        elif isinstance(body, Attach):
            # Every link has a session of its own. Those with a source receive.
            source: Any = body.source
            if body.role and "x-servicebus-transfer" in str(source.address):
                self._paths[key] = source.address
                self.frames[source.address] = []
        elif key in self._paths:
            word = type(body).__name__.lower()
            if isinstance(body, Flow):
                word = "drain" if body.drain else "credit" if body.link_credit else ""
            self.frames[self._paths[key]].append(word)

    async def until(self, path: str, polls: int) -> None:
        """Until a client has begun so many polls of a queue."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.frames.get(path, []).count("credit") < polls:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def polled(pair: RealPair, label: str) -> AsyncIterator[tuple[Polls, Paired]]:
    """A pair with a syphon whose polls are watched."""
    polls = Polls()
    server = pair.secondary.server
    with FaultyProxy("127.0.0.1", server.ports["amqp"], tap=polls) as proxy:
        text = server.connection_string_through(proxy.port)
        async with pair.pair(
            "", text, primary_name=label, enable_syphon=True
        ) as paired:
            yield polls, paired


async def test_an_idle_queue_is_polled_once_and_a_message_ends_the_poll(
    pair: RealPair, label: str
) -> None:
    home = pair.queue()
    first, second = backlog_path(label, 0), backlog_path(label, 1)

    async with Leftovers(), polled(pair, label) as (polls, paired):
        await polls.until(first, 1)
        await polls.until(second, 1)
        assert polls.frames == {first: ["credit"], second: ["credit"]}
        await put(pair, first, "m", home)
        found = await came_home(pair, home, 1)
        await polls.until(first, 2)
        syphon = paired.factory.pairing.status().syphon

    assert [each.message_id for each in found] == ["m"]
    assert polls.frames[second][:1] == ["credit"]
    assert syphon is not None
    assert {path: each.receives for path, each in syphon.queues.items()} == {
        first: 2,
        second: 1,
    }


async def test_a_poll_that_is_over_costs_a_credit_and_a_drain(
    pair: RealPair, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same link is asked again; nothing else crosses the wire."""
    assert limits.SYPHON_POLL_SECONDS == 15 * 60
    monkeypatch.setattr(limits, "SYPHON_POLL_SECONDS", 0.1)
    path = backlog_path(label, 0)

    async with Leftovers(), polled(pair, label) as (polls, _):
        await polls.until(path, 4)
        frames = polls.frames[path][:7]

    assert frames == ["credit", "drain"] * 3 + ["credit"]


# -- rules -------------------------------------------------------------------------


def ttl_ms(found: Message) -> int:
    return int(found.header[2])


@pytest.mark.parametrize("rule", ["remaining", "restart"])
async def test_the_time_in_the_backlog_counts_unless_the_ttl_restarts(
    pair: RealPair, label: str, rule: str
) -> None:
    queue = pair.queue()
    hour = ServiceBusMessage("m", time_to_live=timedelta(hours=1))
    await divert(pair, label, queue, hour)

    async with (
        Leftovers(),
        pair.pair(primary_name=label, enable_syphon=True, ttl=rule),
    ):
        (found,) = await came_home(pair, queue, 1)

    # The primary had to be started meanwhile, which takes longer than that.
    most_ms = HOUR_MS - 100 if rule == "remaining" else HOUR_MS
    least_ms = HOUR_MS // 2 if rule == "remaining" else HOUR_MS
    assert least_ms <= ttl_ms(found) <= most_ms


async def test_a_message_whose_ttl_is_over_is_dead_lettered_and_others_come_home(
    pair: RealPair, label: str
) -> None:
    queue = pair.queue()
    short = ServiceBusMessage(
        "m", message_id="short", time_to_live=timedelta(milliseconds=1)
    )
    await divert(pair, label, queue, short, named("long"))

    async with (
        Leftovers(),
        pair.pair(primary_name=label, enable_syphon=True),
    ):
        found = await came_home(pair, queue, 1)
        dead = await dead_letter(pair, label)

    assert [each.message_id for each in found] == ["long"]
    assert dead.message_id == "short"
    reason = dead.application_properties["DeadLetterReason"]
    assert reason == "TTLExpiredException"


async def dead_letter(pair: RealPair, label: str) -> Message:
    """The one dead letter of the backlog queues, waiting for it."""
    async with connected(pair.secondary.server.connection_string) as connection:
        waits = {
            asyncio.ensure_future(
                connection.receiver(f"{path}/$DeadLetterQueue").receive(
                    1, PATIENCE_SECONDS
                )
            )
            for path in (backlog_path(label, index) for index in (0, 1))
        }
        done, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        (found,) = done.pop().result()
        return found


def sized(size_bytes: int) -> ServiceBusMessage:
    """A message that is so large when it is encoded."""
    probe = payloads_of(ServiceBusMessage(b"x" * 1000, message_id="large"), True)
    assert isinstance(probe, bytes)
    body = b"x" * (size_bytes - len(probe) + 1000)
    return ServiceBusMessage(body, message_id="large")


async def test_a_message_that_leaves_the_headroom_fails_over_and_comes_home(
    pair: RealPair, label: str
) -> None:
    queue = pair.queue()
    async with pair.pair(primary_name=label) as paired:
        headroom = paired.factory.pairing.options.size_headroom
        large = sized(limits.MESSAGE_BYTES_MAX - headroom)
        await paired.sender(queue).send_messages(large)
        assert paired.events == []
    await divert(pair, label, queue, large)

    async with Leftovers(), pair.pair(primary_name=label, enable_syphon=True):
        sent, diverted = await came_home(pair, queue, 2)

    assert len(sent.bare) == len(diverted.bare)


async def test_a_message_without_headroom_is_told_of_and_cannot_fail_over(
    pair: RealPair, label: str
) -> None:
    queue = pair.queue()
    large = sized(limits.MESSAGE_BYTES_MAX - 50)

    async with Leftovers(), pair.pair(primary_name=label) as paired:
        sender = paired.sender(queue)
        await sender.send_messages(large)
        await sender.send_messages(large)
        assert paired.kinds(queue) == [EventKind.MESSAGE_TOO_LARGE]
        pair.primary.server.kill()
        with pytest.raises(MessageTooLargeForBacklog) as raised:
            await sender.send_messages(large)

    assert raised.value.limit_bytes == limits.MESSAGE_BYTES_MAX
    assert raised.value.size_bytes > limits.MESSAGE_BYTES_MAX
    assert pair.backlog() == []


# -- close and fault ---------------------------------------------------------------


async def drains(pair: RealPair, label: str) -> None:
    """Until the syphon has brought something home."""
    home = pair.queue()
    await put(pair, backlog_path(label, 0), "m", home)
    await came_home(pair, home, 1)


async def is_free(pair: RealPair, label: str) -> None:
    """The first backlog queue is not received from by anything else."""
    path = backlog_path(label, 0)
    await put(pair, path, "free", "anywhere")
    async with connected(pair.secondary.server.connection_string) as connection:
        receiver = connection.receiver(path)
        (found,) = await receiver.receive(1, PATIENCE_SECONDS)
        assert (found.message_id, found.delivery_count) == ("free", 0)
        await receiver.complete(found)


async def test_closing_the_primary_stops_the_syphon_and_closes_the_secondary(
    pair: RealPair, label: str
) -> None:
    async with (
        Leftovers(),
        pair.pair(primary_name=label, enable_syphon=True) as paired,
    ):
        await drains(pair, label)
        secondary = paired.factory.pairing.options.secondary_messaging_factory

        await paired.factory.close()

        assert (paired.factory.state, secondary.state) == ("closed", "closed")
        await is_free(pair, label)


async def test_closing_the_secondary_stops_the_syphon_and_faults_the_primary(
    pair: RealPair, label: str
) -> None:
    async with (
        Leftovers(),
        pair.pair(primary_name=label, enable_syphon=True) as paired,
    ):
        await drains(pair, label)
        primary = paired.factory
        secondary = primary.pairing.options.secondary_messaging_factory
        began = asyncio.get_running_loop().time()

        await secondary.close()
        await is_free(pair, label)
        await paired.until(EventKind.FAULTED, primary.endpoint.host)

        assert asyncio.get_running_loop().time() - began >= 5
        assert (primary.state, secondary.state) == ("faulted", "closed")
        with pytest.raises(PairedFactoryError, match="secondary"):
            await paired.sender("orders").send_messages(named("refused"))


@pytest.mark.parametrize("which", ["primary", "secondary"])
async def test_faulting_one_factory_stops_the_syphon_and_faults_the_other(
    pair: RealPair, label: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PARTNER_GRACE_SECONDS", 0.5)
    async with (
        Leftovers(),
        pair.pair(primary_name=label, enable_syphon=True) as paired,
    ):
        await drains(pair, label)
        primary = paired.factory
        secondary = primary.pairing.options.secondary_messaging_factory
        both = {"primary": primary, "secondary": secondary}
        faulted = both.pop(which)
        (other,) = both.values()
        syphon = primary._syphon
        assert syphon is not None

        faulted.fault(RuntimeError("broken"))
        await is_free(pair, label)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while syphon._tasks:
                await asyncio.wait(syphon._tasks)

        assert (faulted.state, other.state) == ("faulted", "faulted")
        with pytest.raises(PairedFactoryError, match=which):
            other.check_alive()
