"""HTTP of a namespace: its health, and the way in for WebSockets.

Owns the list of routes, which other parts may extend, and the bounds on a client that
asks for none of them. Runs in the server's own loop, on sockets that it is given; it
installs no signal handlers, no log and no timers that tick while nothing happens.
Knows nothing about AMQP: `websocket.py` hands bytes to a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from twinbus import limits
from twinbus.server.host import Host
from twinbus.server.port import NamespacePort
from twinbus.server.websocket import WebSocketProtocol

# What Microsoft's emulator answers, word for word.
_HEALTHY = {"status": "healthy", "message": "Service is healthy."}


def health_route(host: Host) -> Route:
    """`GET /health`: 200 while the store accepts, else 503 and why not."""

    async def health(request: Request) -> Response:
        del request
        if host.fault is None:
            return JSONResponse(_HEALTHY)
        body = {"status": "unhealthy", "message": host.fault.text}
        return JSONResponse(body, status_code=503)

    return Route("/health", health, methods=["GET"])


class _Http(H11Protocol):
    """A client of the HTTP server, which must ask for something in time."""

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
        self.routes: list[BaseRoute] = [health_route(port.host)]
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
            Starlette(routes=self.routes),
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
        for connection in list(self._state.connections):
            cast("Any", connection).shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=1.0)
