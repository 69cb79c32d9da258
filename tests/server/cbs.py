"""Tokens over a raw connection: served namespaces with keys, and a desk at `$cbs`.

Owns how a test puts a token and reads the verdict. Nothing here decides who may what.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.server.raw import RawClient, RawServer
from twinbus.clock import ManualClock
from twinbus.core.sas import Secret, make_token
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.server.setup.listener import ListenOptions
from twinbus.server.setup.server import Server, ServerOptions
from twinbus.wire.events import Attached, Delivered, Disposed, Event, Opened
from twinbus.wire.link import Link
from twinbus.wire.message import sections
from twinbus.wire.performatives import Attach, Open, SaslInit, Source, Target
from twinbus.wire.session import Session

WAIT_SECONDS = 10
NEVER_S = 1 << 33


@asynccontextmanager
async def serving_all(
    folder: Path, *configs: NamespaceConfig
) -> AsyncIterator[dict[str, RawServer]]:
    """Serve namespaces without the emulator's key; one clock for all of them."""
    clock = ManualClock()
    listen = ListenOptions("127.0.0.1", {"amqp": 0})
    server = Server(ServerOptions(configs, folder, listen), clock)
    ready = await server.start()
    try:
        yield {
            name: RawServer(server, clock, entry["amqp_port"])
            for name, entry in ready["namespaces"].items()
        }
    finally:
        await server.stop()


async def connect(
    port: int, hostname: str = "localhost", source: str = "127.0.0.1"
) -> RawClient:
    """Connect to a port, from some address, and ask for a host by name."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(
        RawClient, "127.0.0.1", port, local_addr=(source, 0)
    )
    client.engine.start(SaslInit(mechanism="ANONYMOUS"), Open(hostname=hostname))
    client.flush()
    await client.wait(Opened)
    return client


async def wait_for(client: RawClient, wanted: Callable[[Event], bool]) -> Any:
    """The next event that fits; others are kept."""
    while True:
        for event in client.events:
            if wanted(event):
                client.events.remove(event)
                return event
        assert not client.lost, "lost while waiting"
        client._news.clear()
        await asyncio.wait_for(client._news.wait(), WAIT_SECONDS)


async def attach(
    client: RawClient, session: Session, sends: bool, attach: Attach
) -> Link:
    """Attach a link whose answer is told apart from all others."""
    link = session.attach(f"link-{len(session.links)}", sends, attach)
    client.flush()
    await wait_for(client, lambda e: isinstance(e, Attached) and e.link is link)
    return link


class RequestLinks:
    """A pair of links to a node that answers: `$cbs` or a `$management`."""

    def __init__(self, client: RawClient, sender: Link, receiver: Link) -> None:
        self._client = client
        self.sender = sender
        self.receiver = receiver

    @classmethod
    async def open(
        cls, client: RawClient, session: Session, address: str
    ) -> RequestLinks:
        """Attach both; the node may have refused one."""
        target = Target(address=address)
        sender = await attach(
            client, session, True, Attach(source=Source(), target=target)
        )
        answers = Target(address=f"answers-{sender.handle}")
        receiver = await attach(
            client,
            session,
            False,
            Attach(source=Source(address=address), target=answers),
        )
        if not is_refused(receiver):
            receiver.grant(100)
            client.flush()
        return cls(client, sender, receiver)

    async def ask(self, properties: dict[str, Any], body: Any) -> sections.Request:
        """Send a request; returns the answer."""
        reply_to = f"answers-{self.sender.handle}"
        self.sender.send(sections.encode_request(reply_to, properties, body), b"ask")
        self._client.flush()
        reply = await wait_for(
            self._client,
            lambda e: isinstance(e, Delivered) and e.link is self.receiver,
        )
        # That it was taken is of no interest any more.
        await wait_for(self._client, self._is_taken)
        return sections.Request(reply.payload)

    def _is_taken(self, event: Event) -> bool:
        if not isinstance(event, Disposed):
            return False
        return any(each.link is self.sender for each in event.deliveries)


def is_refused(link: Link) -> bool:
    """Whether the answer to an attach was an attach to nowhere."""
    return link.peer_attach.source is None and link.peer_attach.target is None


class Cbs:
    """A client's desk at `$cbs`."""

    def __init__(self, links: RequestLinks) -> None:
        self.links = links

    @classmethod
    async def open(cls, client: RawClient, session: Session | None = None) -> Cbs:
        """Open it in a session, a new one unless one is given."""
        session = session or await client.session()
        return cls(await RequestLinks.open(client, session, "$cbs"))

    async def put(self, audience: str, token: Any) -> tuple[int, str]:
        """Put a token; returns the status and its text."""
        properties = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
        }
        answer = (await self.links.ask(properties, token)).application_properties
        return int(answer["status-code"]), str(answer["status-description"])

    async def sign(
        self, path: str, key_name: str, key: str, expires_s: int = NEVER_S
    ) -> tuple[int, str]:
        """Sign for a path of the namespace and put it."""
        audience = f"sb://localhost/{path}"
        token = make_token(audience, key_name, Secret(key), expires_s)
        return await self.put(audience, token)
