"""A namespace in the test's own loop, and clients for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.server.raw import RawServer, serving
from twinbus.client.connection import Connection
from twinbus.client.credentials import SasKey
from twinbus.client.message import Message
from twinbus.client.transport.endpoint import Endpoint
from twinbus.core.entity import QueueDescription
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT
from twinbus.server.broker.directory.config import NamespaceConfig
from twinbus.wire.codec import decode
from twinbus.wire.message.sections import (
    DATA,
    GROUP_ID,
    MESSAGE_ID,
    encode_message,
    find_sections,
)

QUEUE = "orders"
SESSIONS = "baskets"
CONFIG = NamespaceConfig(
    "contoso",
    queues=(
        QueueDescription(QUEUE, lock_duration_ms=5000),
        QueueDescription(SESSIONS, lock_duration_ms=5000, requires_session=True),
    ),
)
TIMEOUT_SECONDS = 10.0

_numbers = count(1)


class Site:
    """A served namespace."""

    def __init__(self, server: RawServer) -> None:
        self.server = server
        self._clients: list[Connection] = []

    def client(self, credential: Any = None, **options: Any) -> Connection:
        """A client with the root key, or another credential."""
        endpoint = Endpoint("127.0.0.1", self.server.port)
        credential = credential or SasKey(DEV_KEY_NAME, DEV_KEY_TEXT)
        options.setdefault("timeout_seconds", TIMEOUT_SECONDS)
        made = Connection(endpoint, credential, **options)
        self._clients.append(made)
        return made

    async def close(self) -> None:
        """Close what was made here."""
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    """Serve a namespace, and close its clients before it."""
    async with serving(folder, CONFIG) as server:
        made = Site(server)
        try:
            yield made
        finally:
            await made.close()


def message(body: bytes = b"body", session_id: str | None = None) -> bytes:
    """An encoded message with an id of its own."""
    properties: dict[int, Any] = {MESSAGE_ID: f"id-{next(_numbers)}"}
    if session_id is not None:
        properties[GROUP_ID] = session_id
    return encode_message(body, properties)


def body_of(received: Message) -> bytes:
    """The data of a message."""
    payload = received.payload
    found = [
        decode(payload, start)[0]
        for code, _, start, _ in find_sections(payload)
        if code == DATA
    ]
    return b"".join(found)
