"""HTTP of a namespace: messages, health, metrics, and the way in for WebSockets.

Owns the list of routes, which other parts may extend, and the bounds on a client that
asks for none of them. Runs in the server's own loop, on sockets that it is given; it
installs no signal handlers, no log and no timers that tick while nothing happens.
Knows nothing about AMQP: `websocket.py` hands bytes to a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import h11
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from twinbus import limits
from twinbus.server.admin import admin_route
from twinbus.server.health import health_route
from twinbus.server.metrics import metrics_route
from twinbus.server.port import NamespacePort
from twinbus.server.rest import HEADERS_AS_SENT, RestRoute
from twinbus.server.websocket import WebSocketProtocol


class _Reader(h11.Connection):
    """Reads requests, and remembers how they spelled the names of their headers."""

    def __init__(self, state: dict[str, Any]) -> None:
        # Properties of messages are headers; before a claim no peer may send more.
        super().__init__(h11.SERVER, limits.HANDSHAKE_BYTES_MAX)
        self._state = state

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """The next part of a request."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._state[HEADERS_AS_SENT] = event.headers.raw_items()
        return event


class _Http(H11Protocol):
    """A client of the HTTP server, which must ask for something in time."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.conn = _Reader(app_state)

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self.loop.call_later(limits.HANDSHAKE_SECONDS_MAX, self._check_asked)

    def _check_asked(self) -> None:
        # Once there was a request, others keep the time: keep-alive, or the AMQP login.
        asked = cast("Any", self.scope) is not None
        if not asked and not self.transport.is_closing():
            self.transport.abort()


class HttpServer:
    """The HTTP side of a namespace; serves any number of sockets."""

    def __init__(
        self,
        port: NamespacePort,
        connect: Callable[[NamespacePort], asyncio.Protocol],
    ) -> None:
        self._rest = RestRoute(port)
        self.routes: list[BaseRoute] = [
            health_route(port.host),
            metrics_route(port),
            self._rest,
        ]
        self._connect = connect
        self._port = port
        self._state = ServerState()
        self._config: Config | None = None

    def protocol(self) -> asyncio.Protocol:
        """A protocol for a new connection."""
        config = self._config or self._load()
        app_state: dict[str, Any] = {"connect": lambda: self._connect(self._port)}
        return _Http(config, self._state, app_state)

    def _load(self) -> Config:
        self._config = Config(
            # The last one takes every path that the others leave.
            Starlette(routes=[*self.routes, admin_route(self._port)]),
            http=_Http,
            ws=WebSocketProtocol,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=limits.CONNECTIONS_MAX,
        )
        self._config.load()
        return self._config

    async def close(self) -> None:
        """End all connections; requests in hand are answered first."""
        self._rest.close()
        for connection in list(self._state.connections):
            cast("Any", connection).shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=1.0)
