"""Two namespaces in the test's own loop, one clock for all, and pumps between them.

The servers are the real ones. Time stands still until `advance`, which moves the clocks
of both servers and of the pumps, and wakes tasks that sleep by them. What a test waits
for is an answer or an event, never an amount of real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.client.peer import Peer
from tests.server.raw import RawServer, serving
from twinbus import limits
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.message import Message
from twinbus.client.transport.endpoint import Endpoint
from twinbus.clock import ManualClock
from twinbus.core.entity import ActiveStatus, QueueDescription
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.pump.destinations import Senders
from twinbus.pairing.pump.pump import Pump, PumpSettings
from twinbus.pairing.pump.settling import Journal
from twinbus.pairing.rules import envelope
from twinbus.pairing.rules.naming import backlog_path
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.broker.namespace import Namespace
from twinbus.server.broker.turn import Turn
from twinbus.wire.message.sections import GROUP_ID, MESSAGE_ID, encode_message

LABEL = "contoso"
BACKLOG = backlog_path(LABEL, 0)
LOCK_MS = 60_000
TIMEOUT_SECONDS = 10.0
# A wait that is never over in a test that passes.
LONG_SECONDS = 30.0


def backlog_queue(index: int = 0, lock_ms: int = LOCK_MS) -> QueueDescription:
    """A backlog queue as pairing makes it."""
    return QueueDescription(
        backlog_path(LABEL, index),
        lock_duration_ms=lock_ms,
        max_size_in_megabytes=5120,
        max_delivery_count=limits.DELIVERY_COUNT_MAX,
        dead_lettering_on_message_expiration=True,
    )


SECONDARY = NamespaceConfig("fabrikam", queues=(backlog_queue(0), backlog_queue(1)))
PRIMARY = NamespaceConfig(
    LABEL,
    queues=(
        QueueDescription("orders"),
        QueueDescription("invoices"),
        QueueDescription("baskets", requires_session=True),
        QueueDescription("closed", status=ActiveStatus.DISABLED),
        QueueDescription("slow", message_rate_per_second=1),
        QueueDescription("full", max_size_in_megabytes=1),
        QueueDescription("once", requires_duplicate_detection=True),
        QueueDescription("large", max_message_size_in_kilobytes=1024),
    ),
)


class Time:
    """The clock and the sleep of the pumps, in step with the servers."""

    def __init__(self, servers: Sequence[RawServer]) -> None:
        self.clock = ManualClock(servers[0].clock.now_ms())
        self._servers = servers
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []
        self._news = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved as far."""
        until_ms = self.clock.now_ms() + int(seconds * 1000)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((until_ms, future))
        self._news.set()
        await future

    def advance(self, milliseconds: int) -> None:
        """Let time pass for both namespaces."""
        self.clock.advance(milliseconds)
        for server in self._servers:
            server.advance(milliseconds)
        now_ms = self.clock.now_ms()
        due = [each for each in self._sleepers if each[0] <= now_ms]
        self._sleepers = [each for each in self._sleepers if each[0] > now_ms]
        for _, future in due:
            if not future.done():
                future.set_result(None)

    @property
    def pauses_ms(self) -> list[int]:
        """How long those who sleep still have to."""
        now_ms = self.clock.now_ms()
        return sorted(
            until_ms - now_ms for until_ms, each in self._sleepers if not each.done()
        )

    async def until_asleep(self, least_ms: int, most_ms: int | None = None) -> None:
        """Until a task sleeps for so long."""
        most_ms = least_ms if most_ms is None else most_ms
        while not any(least_ms <= each <= most_ms for each in self.pauses_ms):
            self._news.clear()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._news.wait()


class Wire:
    """What is between a client and a server: it can be cut at any of its bytes."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        # Cut it instead of carrying the data of this event.
        self.cut_at: int | None = None
        self.events = 0
        # No new connections.
        self.is_down = False
        # Bytes that arrive as others.
        self.swap = (b"", b"")
        self._target_port = target_port
        self._ends: set[_End] = set()
        self._news = asyncio.Event()
        self._server: asyncio.Server

    async def open(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _End(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and end what is there."""
        self._server.close()
        # Also for a client that comes in the last moment.
        self.is_down = True
        self.cut()

    async def until(self, events: int) -> None:
        """Until data came so often."""
        while self.events < events:
            self._news.clear()
            await self._news.wait()

    def cut(self) -> None:
        """End all connections."""
        for end in list(self._ends):
            end.transport.abort()

    def made(self, end: _End) -> None:
        """A connection was made, by a client or to the server."""
        self._ends.add(end)
        if self.is_down:
            end.transport.abort()
        elif end.peer is None:
            end.connecting = asyncio.create_task(self._connect(end))

    async def _connect(self, end: _End) -> None:
        loop = asyncio.get_running_loop()
        other = _End(self, end)
        await loop.create_connection(lambda: other, "127.0.0.1", self._target_port)
        end.peer = other
        if end.transport.is_closing():
            other.transport.abort()
        other.transport.write(b"".join(end.early))

    def carry(self, end: _End, data: bytes) -> None:
        """Data came."""
        self.events += 1
        self._news.set()
        if self.swap[0]:
            data = data.replace(*self.swap)
        if self.events == self.cut_at:
            self.cut()
        elif end.peer is None:
            end.early.append(data)
        elif not end.peer.transport.is_closing():
            end.peer.transport.write(data)

    def lost(self, end: _End) -> None:
        """A connection is gone, and its other half with it."""
        self._ends.discard(end)
        if end.peer is not None:
            end.peer.transport.abort()


class _End(asyncio.Protocol):
    """One half of a connection."""

    def __init__(self, wire: Wire, peer: _End | None = None) -> None:
        self.wire = wire
        self.peer = peer
        self.early: list[bytes] = []
        self.transport: asyncio.Transport
        self.connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.wire.made(self)

    def data_received(self, data: bytes) -> None:
        self.wire.carry(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.wire.lost(self)


class Namespaces:
    """A primary and a secondary, and what a test does with them."""

    def __init__(self, primary: RawServer, secondary: RawServer) -> None:
        self.primary = primary
        self.secondary = secondary
        self.time = Time((primary, secondary))
        self.events: list[PairingEvent] = []
        self.settings = PumpSettings(
            stop_seconds=1,
            clock=self.time.clock,
            sleep=self.time.sleep,
            on_event=self._event,
        )
        self._news = asyncio.Event()
        self._open: list[Any] = []
        self.target = self.connect(primary)
        self.source = self.connect(secondary)
        # The test's own.
        self.at_primary = self.connect(primary)
        self.at_backlog = self.connect(secondary)

    def _event(self, event: PairingEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def until_event(self, wanted: Callable[[PairingEvent], bool]) -> None:
        """Until such an event has been told."""
        while not any(wanted(event) for event in self.events):
            self._news.clear()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._news.wait()

    async def wire(self, server: RawServer) -> Wire:
        """A way to a server that can be cut."""
        made = Wire(server.port)
        await made.open()
        self._open.append(made)
        return made

    def connect(self, server: RawServer | Wire | Peer, **options: Any) -> Connection:
        """A client with the root key, or another credential."""
        endpoint = Endpoint("127.0.0.1", server.port)
        key = SasKey(DEV_KEY_NAME, DEV_KEY_TEXT)
        options.setdefault("timeout_seconds", TIMEOUT_SECONDS)
        made = Connection(endpoint, options.pop("credential", key), **options)
        self._open.append(made)
        return made

    def pump(
        self,
        journal: Journal | None = None,
        source: Connection | None = None,
        target: Connection | None = None,
        **changes: Any,
    ) -> Pump:
        """A pump for the first backlog queue."""
        pump = Pump(
            source or self.source,
            Senders(target or self.target),
            BACKLOG,
            replace(self.settings, **changes),
            journal,
        )
        self._open.insert(0, _Stops(pump))
        return pump

    async def close(self) -> None:
        """Stop the pumps, then close what was opened."""
        for each in self._open:
            await each.close()

    # -- messages ----------------------------------------------------------------------

    async def divert(self, *messages: tuple[str, bytes], queue: str = BACKLOG) -> None:
        """Put messages into a backlog queue, each with the path of its entity."""
        now_ms = self.time.clock.now_ms()
        diverted = [
            envelope.divert(payload, path, now_ms) for path, payload in messages
        ]
        await self.put(*diverted, queue=queue)

    async def put(self, *payloads: bytes, queue: str = BACKLOG) -> None:
        """Put messages into a backlog queue as they are."""
        await self.at_backlog.sender(queue).send(payloads)

    async def arrived(self, path: str, count: int = 100) -> list[Message]:
        """All messages of an entity, without taking them."""
        return await self.at_primary.management(path).peek(count)

    async def ids(self, path: str, count: int = 100) -> list[Any]:
        """The ids of all messages of an entity, in order."""
        return [each.message_id for each in await self.arrived(path, count)]

    async def backlog(self, queue: str = BACKLOG) -> list[Message]:
        """All messages of a backlog queue, without taking them."""
        return await self.at_backlog.management(queue).peek(250)

    async def dead(self, queue: str = BACKLOG) -> list[tuple[Any, str, str]]:
        """Id, reason and description of the dead letters of a backlog queue."""
        found = await self.at_backlog.management(f"{queue}/$DeadLetterQueue").peek(100)
        return [
            (
                each.message_id,
                each.application_properties["DeadLetterReason"],
                each.application_properties["DeadLetterErrorDescription"],
            )
            for each in found
        ]

    async def ready(self, queue: str = BACKLOG) -> list[Any]:
        """The ids of what is not locked; it is given back uncounted."""
        receiver = self.at_backlog.receiver(queue)
        found = await receiver.receive(1000, 0)
        await receiver.release(found)
        await receiver.close()
        return [each.message_id for each in found]

    async def change(self, server: RawServer, path: str, **changes: Any) -> None:
        """Change the settings of a queue."""

        def work(namespace: Namespace, turn: Turn) -> None:
            entity = namespace.entities.find(path)
            assert entity is not None
            changed = replace(entity.description, **changes)
            namespace.entities.update(changed, turn)

        await server.host.run(work)

    async def create(self, server: RawServer, queue: QueueDescription) -> None:
        """Make a queue."""
        await server.host.run(
            lambda namespace, turn: namespace.entities.create(queue, turn.now.wall_ms)
        )


class _Stops:
    def __init__(self, pump: Pump) -> None:
        self._pump = pump

    async def close(self) -> None:
        await self._pump.stop()


def message(
    message_id: str, body: bytes = b"body", session_id: str | None = None, **more: Any
) -> bytes:
    """An encoded message."""
    properties: dict[int, Any] = {MESSAGE_ID: message_id}
    if session_id is not None:
        properties[GROUP_ID] = session_id
    return encode_message(body, properties, more.get("ttl_ms"))


@asynccontextmanager
async def namespaces(
    folder: Path,
    primary: NamespaceConfig = PRIMARY,
    secondary: NamespaceConfig = SECONDARY,
) -> AsyncIterator[Namespaces]:
    """Serve a pair of namespaces."""
    async with (
        serving(folder / "primary", primary) as first,
        serving(folder / "secondary", secondary) as second,
    ):
        site = Namespaces(first, second)
        try:
            yield site
        finally:
            await site.close()
