"""The client's connection to a namespace: opened when needed, replaced when broken.

One connection carries the links of any number of senders and receivers. Nothing runs
in the background to bring a broken one back: the next call that needs it opens another,
once for all who wait. Belongs to one event loop and one process, and refuses calls from
another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

from twinbus import limits
from twinbus.client.claims import ClientClaims
from twinbus.client.credentials import credential_of, source_of
from twinbus.client.live import LiveConnection
from twinbus.client.management import Management
from twinbus.client.metering import ClientLedger
from twinbus.client.receiver import ReceiveOptions, Receiver
from twinbus.client.sender import Sender
from twinbus.client.transport.deadline import Deadline
from twinbus.client.transport.endpoint import Endpoint, endpoint_of
from twinbus.client.transport.shared import Shared
from twinbus.clock import Clock, SystemClock
from twinbus.core.sas import parse_connection_string
from twinbus.errors import ClientUnusable, Disconnected, RemoteError
from twinbus.ledger.counts import LedgerAccount
from twinbus.wire.message.names import PING_CAPABILITY

_T = TypeVar("_T")
_UNAUTHORIZED = "amqp:unauthorized-access"


class Connection:
    """A namespace, as a client sees it."""

    def __init__(
        self,
        endpoint: Endpoint,
        credential: Any,
        *,
        name: str = "twinbus",
        timeout_seconds: float = limits.CLIENT_TIMEOUT_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self.endpoint = endpoint
        # What a call may take where it does not say.
        self.timeout_seconds = timeout_seconds
        self._source = source_of(credential)
        self._name = name
        self._clock = clock or SystemClock()
        self._live: LiveConnection | None = None
        self._claims: ClientClaims
        self._opening = Shared(self._open)
        self._managements: dict[str, Management] = {}
        # Counts what is done on it; None without a ledger.
        self._ledger: ClientLedger | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()

    @classmethod
    def from_connection_string(
        cls,
        text: str,
        way: Endpoint | None = None,
        *,
        timeout_seconds: float = limits.CLIENT_TIMEOUT_SECONDS,
    ) -> Self:
        """The namespace that a connection string names.

        `way` brings what the string cannot say: WebSocket, proxy, address, TLS.
        """
        given = parse_connection_string(text)
        endpoint = endpoint_of(given, way)
        return cls(endpoint, credential_of(given), timeout_seconds=timeout_seconds)

    # -- what it is for ----------------------------------------------------------------

    def sender(self, path: str) -> Sender:
        """A sender for a queue or topic; it links when it is first used."""
        return Sender(self, path)

    def receiver(self, path: str, options: ReceiveOptions | None = None) -> Receiver:
        """A receiver for a queue, subscription or dead-letter queue."""
        return Receiver(self, path, options or ReceiveOptions())

    def management(self, path: str) -> Management:
        """Management operations on an entity; one object for each."""
        found = self._managements.get(path)
        if found is None:
            found = self._managements[path] = Management(self, path)
        return found

    @property
    def capabilities(self) -> list[str]:
        """What the server said that it can do, as far as it has been asked."""
        if self._live is None:
            return []
        return list(self._live.engine.peer_open.offered_capabilities or [])

    @property
    def container_id(self) -> str:
        """What the server calls itself, as far as it has been asked."""
        return "" if self._live is None else self._live.engine.peer_open.container_id

    @property
    def properties(self) -> dict[str, Any]:
        """What the server said of itself in `open`, as far as it has been asked."""
        if self._live is None:
            return {}
        return dict(self._live.engine.peer_open.properties or {})

    async def open(self, timeout_seconds: float | None = None) -> None:
        """Connect now; any call would."""
        await self._connected(self.deadline(timeout_seconds))

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Say goodbye and let go; what is still under way fails."""
        self.check_place(asyncio.get_running_loop())
        self._closed = True
        self._opening.stop()
        live, self._live = self._live, None
        if live is not None:
            seconds = self.timeout_seconds
            if timeout_seconds is not None:
                seconds = timeout_seconds
            await live.close(Deadline(seconds))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- for senders, receivers and management -----------------------------------------

    def count_in(self, ledger: ClientLedger | None) -> None:
        """Count in that ledger what links that are made from now on do."""
        self._ledger = ledger
        self._name_ledger()

    def account(self, path: str, source: str) -> LedgerAccount | None:
        """Where operations on an entity are counted."""
        return None if self._ledger is None else self._ledger.account(path, source)

    def deadline(self, timeout_seconds: float | None) -> Deadline:
        """When a call that starts now has to end; refused where it cannot start."""
        if self._closed:
            raise ClientUnusable("The connection was closed. Make another.")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.check_place(loop)
        if timeout_seconds is None:
            timeout_seconds = self.timeout_seconds
        return Deadline(timeout_seconds, loop.time())

    async def link(
        self,
        path: str,
        work: Shared[Any],
        attach: Callable[[LiveConnection], Awaitable[_T]],
    ) -> _T:
        """Attach something for an entity: connection, claim, link, in this order.

        `work` is the shared work that this is part of; it is told how far it is.
        """
        work.stage = self._opening
        live = await self._connected(None)
        claims = self._claims
        audience = self.endpoint.audience(path)
        while True:
            work.stage = "put-token"
            is_new = await claims.need(audience)
            work.stage = "attach"
            try:
                return await attach(live)
            except RemoteError as error:
                if is_new or error.condition != _UNAUTHORIZED:
                    raise
                # The server no longer honours an old claim: show it a new one.
                claims.forget(audience)

    async def _connected(self, deadline: Deadline | None) -> LiveConnection:
        if self._closed:
            # It was closed while this was on its way here.
            raise Disconnected("The connection was closed.")
        live = self._live
        if live is None or live.failure is not None:
            live = await self._opening.get(deadline)
        return live

    async def _open(self) -> LiveConnection:
        live = LiveConnection(self.endpoint, self._name)
        await live.open(self._say)
        self._claims = ClientClaims(live, self._source, self._clock)
        live.on_failed.append(self._claims.stop)
        self._live = live
        self._name_ledger()
        return live

    def _name_ledger(self) -> None:
        """A server of ours is called as its namespace, whatever its address is."""
        if self._ledger is not None and PING_CAPABILITY in self.capabilities:
            self._ledger.named(self.container_id)

    def _say(self, stage: str) -> None:
        self._opening.stage = stage

    def check_place(self, loop: asyncio.AbstractEventLoop) -> None:
        """Refuse to be used from another process or another event loop."""
        if self._pid != os.getpid():
            raise ClientUnusable(
                "The connection was made in another process. After a fork, make a new "
                "one in the child."
            )
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise ClientUnusable(
                "The connection belongs to another event loop. Make one for each loop."
            )
