"""Connections that are cut at any byte: every send says truly what became of it.

The server is real; a proxy in front of it breaks the stream at a place that the test
chooses. Whatever happens, a send ends long before its deadline, one that says that it
was not sent is not in the queue, one that was accepted is there once, and the next send
works.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import count

import pytest

from tests.client.quiet import quiet
from tests.client.site import QUEUE, Site, body_of, message
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.message import Message
from twinbus.client.receiver import ReceiveOptions, Receiver
from twinbus.client.sender import Sender
from twinbus.client.transport.endpoint import Endpoint
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.errors import OutcomeUnknown, RemoteError, SendRefused
from twinbus.testing.proxy import Fault, FaultyProxy
from twinbus.testing.proxy_stream import Then, Towards

TIMEOUT_SECONDS = 15.0
# All that a server says until a first message is accepted, and some more.
_FIRST_BYTES = 1500
_SENDS_MAX = 5


@pytest.fixture
async def proxy(namespace: Site) -> AsyncIterator[FaultyProxy]:
    with FaultyProxy("127.0.0.1", namespace.server.port) as running:
        yield running


class Tale:
    """What senders were told, to be compared with what is in the queue."""

    def __init__(self) -> None:
        self.accepted: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self.refused: set[bytes] = set()
        self._bodies = (b"body-%d" % number for number in count())

    async def send(self, sender: Sender, size: int = 1) -> bool:
        """Send one message or a batch; says whether it was accepted."""
        bodies = [next(self._bodies) for _ in range(size)]
        sent = [message(body) for body in bodies]
        try:
            await sender.send(sent[0] if size == 1 else sent)
        except OutcomeUnknown:
            self.unknown.update(bodies)
            return False
        except SendRefused as error:
            for place, why in error.failures.items():
                is_unknown = isinstance(why, OutcomeUnknown)
                group = self.unknown if is_unknown else self.refused
                group.add(bodies[place])
            return False
        except RemoteError:
            self.refused.update(bodies)
            return False
        self.accepted.update(bodies)
        return True

    def check(self, found: Iterable[Message]) -> None:
        """Compare."""
        there = Counter(body_of(each) for each in found)
        assert self.accepted <= there.keys()
        assert not self.refused & there.keys()
        assert there.keys() <= self.accepted | self.unknown
        assert set(there.values()) <= {1}


def client_of(proxy: FaultyProxy) -> Connection:
    endpoint = Endpoint("127.0.0.1", proxy.port)
    key = SasKey(DEV_KEY_NAME, DEV_KEY_TEXT)
    return Connection(endpoint, key, timeout_seconds=TIMEOUT_SECONDS)


async def all_in(namespace: Site) -> list[Message]:
    found: list[Message] = []
    async with namespace.client() as client:
        while True:
            start = found[-1].sequence_number + 1 if found else 1
            more = await client.management(QUEUE).peek(250, start)
            if not more:
                return found
            found += more


async def broken_at(
    proxy: FaultyProxy, fault: Fault, tale: Tale, sender: Sender
) -> bool:
    """Send until the fault has struck, then heal and send once more."""
    proxy.inject(fault)
    before = proxy.strikes
    for _ in range(_SENDS_MAX):
        accepted = await tale.send(sender)
        if proxy.strikes > before:
            break
        assert accepted
    struck = proxy.strikes > before
    proxy.heal()
    for _ in range(2):
        # It may learn only by this that the connection is gone.
        if await tale.send(sender):
            break
    else:
        pytest.fail("a send through a sound proxy was not accepted")
    return struck


@pytest.mark.parametrize("then", ["reset", "close"])
@pytest.mark.parametrize("towards", ["client", "server"])
async def test_a_stream_that_ends_at_any_byte(
    namespace: Site, proxy: FaultyProxy, then: Then, towards: Towards
) -> None:
    tale = Tale()
    struck = 0
    async with quiet():
        for after_bytes in range(0, _FIRST_BYTES, 23):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                async with client_of(proxy) as client:
                    fault = Fault(then, towards, after_bytes, connections=1)
                    sender = client.sender(QUEUE)
                    struck += await broken_at(proxy, fault, tale, sender)

    tale.check(await all_in(namespace))
    assert struck > 40
    assert tale.refused
    assert tale.unknown


@pytest.mark.parametrize(
    # Both ends are in the test above, at any byte.
    "then",
    ["reset", pytest.param("close", marks=pytest.mark.campaign)],
)
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    "frame",
    [
        "sasl header",
        "sasl mechanisms",
        "sasl outcome",
        "amqp header",
        "open",
        "begin",
        "attach",
        "flow",
        "transfer",
        "disposition",
    ],
)
async def test_a_stream_that_ends_in_or_after_a_frame_of_the_server(
    namespace: Site, proxy: FaultyProxy, frame: str, inside: bool, then: Then
) -> None:
    tale = Tale()
    async with quiet(), client_of(proxy) as client:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            fault = Fault(
                then, "client", after_frame=frame, inside=inside, connections=1
            )
            assert await broken_at(proxy, fault, tale, client.sender(QUEUE))

    tale.check(await all_in(namespace))


async def test_many_tasks_send_while_connections_break(
    namespace: Site, proxy: FaultyProxy
) -> None:
    tale = Tale()
    chance = random.Random(20_260_101)
    stop = asyncio.Event()

    async def work(sender: Sender) -> None:
        while not stop.is_set():
            # Until the next one breaks; no client waits for a proxy that is sound.
            await tale.send(sender, chance.choice((1, 1, 1, 20)))

    async with quiet(), client_of(proxy) as client:
        senders = [client.sender(QUEUE) for _ in range(3)]
        tasks = [asyncio.ensure_future(work(senders[n % 3])) for n in range(60)]
        for _ in range(25):
            aim = len(tale.accepted) + 30
            towards: Towards = "client" if chance.random() < 0.5 else "server"
            size = chance.randrange(20_000)
            proxy.inject(Fault("reset", towards, size, connections=1))
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while len(tale.accepted) < aim:
                    await asyncio.wait(tasks, timeout=0.01)
            proxy.heal()
        stop.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.gather(*tasks)
        # Few: those who wait share one attempt.
        assert proxy.accepted < 200

    tale.check(await all_in(namespace))
    assert tale.unknown


@pytest.mark.parametrize("prefetch", [0, 20])
async def test_messages_are_received_and_completed_while_connections_break(
    namespace: Site, proxy: FaultyProxy, prefetch: int
) -> None:
    chance = random.Random(20_260_103)
    bodies = {b"%d" % number for number in range(120)}
    async with namespace.client() as filling:
        await filling.sender(QUEUE).send([message(body) for body in bodies])
    found: set[bytes] = set()
    async with quiet(), client_of(proxy) as client:
        receiver = client.receiver(QUEUE, ReceiveOptions(prefetch=prefetch))
        async with asyncio.timeout(2 * TIMEOUT_SECONDS):
            while await all_in(namespace):
                # Every connection gets so far, also those that the client makes itself.
                proxy.inject(Fault("reset", "both", chance.randrange(3000, 8000)))
                with suppress(RemoteError):
                    await _take_all(receiver, found)
                proxy.heal()
                # What was lost on its way comes again when its lock has ended.
                namespace.server.advance(6000)
        with suppress(RemoteError):
            await receiver.close()

    assert found == bodies
    assert proxy.strikes > 3


async def _take_all(receiver: Receiver, found: set[bytes]) -> None:
    while taken := await receiver.receive(10, wait_seconds=0.1):
        found.update(body_of(each) for each in taken)
        await receiver.complete(taken)


# -- bytes that are changed ------------------------------------------------------------


class Mangler:
    """A relay that changes one byte of what the server says."""

    def __init__(self, port: int, place: int, change: int) -> None:
        self.port = 0
        self._target = port
        self._place = place
        self._change = change
        self._relays: set[asyncio.Task[None]] = set()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        writers = [writer]
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
            writers.append(there[1])
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, there[1], None))
                both.create_task(self._carry(there[0], writer, self._place))
        finally:
            for each in writers:
                each.close()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        place: int | None,
    ) -> None:
        passed = 0
        with suppress(OSError):
            while data := await reader.read(65536):
                if place is not None and passed <= place < passed + len(data):
                    changed = bytearray(data)
                    changed[place - passed] ^= self._change
                    data = bytes(changed)
                passed += len(data)
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def ended(self) -> None:
        """Until every relay has ended."""
        await asyncio.gather(*self._relays)


@asynccontextmanager
async def mangling(port: int, place: int, change: int) -> AsyncIterator[Mangler]:
    mangler = Mangler(port, place, change)
    server = await asyncio.start_server(mangler.serve, "127.0.0.1", 0)
    mangler.port = server.sockets[0].getsockname()[1]
    async with server:
        yield mangler
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await mangler.ended()


async def test_changed_bytes_of_a_server_raise_only_our_errors(
    namespace: Site,
) -> None:
    chance = random.Random(20_260_102)
    async with quiet():
        for _ in range(60):
            place, change = chance.randrange(_FIRST_BYTES), chance.randrange(1, 256)
            async with mangling(namespace.server.port, place, change) as mangler:
                await _send_twice(mangler.port)


async def _send_twice(port: int) -> None:
    endpoint = Endpoint("127.0.0.1", port)
    key = SasKey(DEV_KEY_NAME, DEV_KEY_TEXT)
    async with Connection(endpoint, key, timeout_seconds=0.3) as client:
        sender = client.sender(QUEUE)
        for _ in range(2):
            with suppress(RemoteError):
                await sender.send(message())
