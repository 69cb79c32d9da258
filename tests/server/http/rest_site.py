"""A namespace with all its HTTP on a loopback socket, and a client that spells exactly.

The client writes names of headers as they are and shows them as they came, and it can
hang up in the middle. The clock stands still until a test moves it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11

from twinbus.clock import Clock, ManualClock
from twinbus.core.entity import (
    ActiveStatus,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.core.rights import AuthorizationRule, Right
from twinbus.core.sas import Secret, make_token
from twinbus.server.access.jwt import BearerTokens
from twinbus.server.access.port import NamespacePort
from twinbus.server.broker.clients import Consumer
from twinbus.server.broker.host import Host
from twinbus.server.broker.namespace import Namespace
from twinbus.server.http.server import HttpServer, HttpTimeouts
from twinbus.server.setup import listener
from twinbus.store.base import Counts
from twinbus.store.opening import open_store

AUTHORITY = "contoso.servicebus.windows.net"
KEY = Secret("the key of the namespace")
OWN = Secret("the key of one queue")
RULES = (
    AuthorizationRule("root", Right.MANAGE, KEY),
    AuthorizationRule("sends", Right.SEND, KEY),
    AuthorizationRule("listens", Right.LISTEN, KEY),
)
FOREVER_S = 1 << 33

ENTITIES: tuple[Description, ...] = (
    QueueDescription("q", lock_duration_ms=5000, max_delivery_count=2),
    QueueDescription("q2"),
    QueueDescription("area/orders"),
    QueueDescription(
        "guarded",
        authorization_rules=(AuthorizationRule("own", Right.MANAGE, OWN),),
    ),
    QueueDescription("sessions", requires_session=True),
    QueueDescription("small", max_size_in_megabytes=1),
    QueueDescription("slow", message_rate_per_second=1),
    QueueDescription("closed", status=ActiveStatus.DISABLED),
    TopicDescription("events"),
    SubscriptionDescription("events", "all"),
)


def signed(
    resource: str = f"https://{AUTHORITY}/",
    name: str = "root",
    key: Secret = KEY,
    expires_s: int = FOREVER_S,
) -> str:
    """A header that proves a key."""
    return make_token(resource, name, key, expires_s)


@dataclass
class Answer:
    """What came back; the names of headers are as the server wrote them."""

    status: int
    raw_headers: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.raw_headers}

    @property
    def broker(self) -> dict[str, Any]:
        """The broker properties."""
        found: dict[str, Any] = json.loads(self.headers["brokerproperties"])
        return found

    @property
    def place(self) -> str:
        """The path of the locked message."""
        root = f"http://{AUTHORITY}"
        assert self.headers["location"].startswith(root)
        return self.headers["location"].removeprefix(root)


class Caller:
    """One connection of a client."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader, self.writer = reader, writer
        self._http = h11.Connection(h11.CLIENT, 1 << 20)

    def ask(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> None:
        """Write a request."""
        given = {"Host": AUTHORITY, "Content-Length": str(len(body)), **headers}
        encoded = [(name.encode(), value.encode()) for name, value in given.items()]
        request = h11.Request(method=method, target=target, headers=encoded)
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            self.writer.write(self._http.send(event) or b"")

    async def answer(self) -> Answer:
        """Read the answer."""
        found = Answer(0, [], b"")
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.Response):
                found.status = event.status_code
                found.raw_headers = [
                    (name.decode(), value.decode())
                    for name, value in event.headers.raw_items()
                ]
            elif isinstance(event, h11.Data):
                found.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return found

    async def hang_up(self) -> None:
        """Go away."""
        self.writer.close()
        await self.writer.wait_closed()


class WatchedHost(Host):
    """A host that can be asked who waits."""

    def __init__(self, namespace: Namespace, clock: Clock) -> None:
        super().__init__(namespace, clock)
        self.waiting = 0
        self.changed = asyncio.Event()
        # Set, for other threads, when a receiver goes.
        self.left = threading.Event()

    def add_consumer(self, container: int, consumer: Consumer) -> int:
        key = super().add_consumer(container, consumer)
        self.waiting += 1
        self.changed.set()
        return key

    def remove_consumer(self, container: int, key: int) -> None:
        super().remove_consumer(container, key)
        self.waiting -= 1
        self.changed.set()
        self.left.set()

    async def until_waiting(self, count: int) -> None:
        """Until so many receivers wait for messages."""
        while self.waiting != count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)


class RuledNamespace(Namespace):
    """A namespace whose own authorization rules are those of its site."""

    def __init__(self, rules: Sequence[AuthorizationRule]) -> None:
        super().__init__("contoso", open_store(None))
        self._given = rules

    def rules_of(self, scope_key: str) -> Sequence[AuthorizationRule]:
        """The site's rules, or those of an entity."""
        return super().rules_of(scope_key) if scope_key else self._given


@dataclass
class RestSite:
    """A namespace that is reached over HTTP."""

    clock: ManualClock = field(default_factory=ManualClock)
    tokens: BearerTokens | None = None
    number: int = 0

    def __post_init__(self) -> None:
        self.host = WatchedHost(RuledNamespace(RULES), self.clock)
        self.port = NamespacePort(self.host, lambda _host: self.tokens)
        store = self.host.namespace.store
        store.begin()
        for description in ENTITIES:
            self.host.namespace.entities.create(description, self.clock.now_ms())
        store.commit()

    def counts(self, key: str, sub_queue: int = 0) -> Counts:
        """What a queue holds."""
        entity = self.host.namespace.entities.find(key)
        assert entity is not None
        return self.host.namespace.store.counts(entity.id + sub_queue)

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        self.clock.advance(milliseconds)
        self.host.tick()

    async def call(self) -> Caller:
        """Connect."""
        return Caller(*await asyncio.open_connection("127.0.0.1", self.number))

    async def ask(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """One request on a connection of its own, signed by the root unless it says."""
        caller = await self.call()
        caller.ask(method, target, {"Authorization": signed(), **(headers or {})}, body)
        answer = await caller.answer()
        await caller.hang_up()
        return answer

    async def send(self, body: bytes = b"a", path: str = "/q", **broker: Any) -> None:
        """Send a message."""
        headers = {"BrokerProperties": json.dumps(broker)}
        answer = await self.ask("POST", f"{path}/messages", headers, body)
        assert answer.status == 201, answer

    async def lock(self, path: str = "/q") -> Answer:
        """Lock the next message, which must be there."""
        answer = await self.ask("POST", f"{path}/messages/head?timeout=0")
        assert answer.status == 201, answer
        return answer

    async def take(self, path: str = "/q") -> Answer:
        """Receive and delete the next message, if there is one."""
        return await self.ask("DELETE", f"{path}/messages/head?timeout=0")


@asynccontextmanager
async def serving(
    timeouts: HttpTimeouts | None = None, **fields: Any
) -> AsyncIterator[RestSite]:
    """Serve a namespace over HTTP."""
    site = RestSite(**fields)

    def connect(port: NamespacePort) -> asyncio.Protocol:
        raise AssertionError(port)

    http = HttpServer(site.port, connect, timeouts)
    bound = listener.bind("127.0.0.1", 0, "http")
    server = listener.listen(bound, "http", http.protocol, None)
    site.number = bound.getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        await http.close()
        await site.host.close()
