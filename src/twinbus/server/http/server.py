"""HTTP of a namespace: messages, health, metrics, and the way in for WebSockets.

Owns the list of routes, which other parts may extend, and the time that a client may
take for the head of each request, for its body, and to read the answer. Runs in the
server's own loop, on sockets that it is given; it installs no signal handlers, no log
and no timers that tick while nothing happens.
Knows nothing about AMQP: `websocket.py` hands bytes to a connection.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import h11
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from twinbus import limits
from twinbus.server.access.port import NamespacePort
from twinbus.server.http.admin.route import admin_route
from twinbus.server.http.console.route import Console
from twinbus.server.http.faults import faults_route
from twinbus.server.http.head import HeadRefused, check_head
from twinbus.server.http.health import health_route
from twinbus.server.http.metrics import metrics_route
from twinbus.server.http.rest.route import HEADERS_AS_SENT, RestRoute
from twinbus.server.http.strangers import PacedStrangers
from twinbus.server.http.upkeep import upkeep_route
from twinbus.server.http.websocket import WebSocketProtocol

log = logging.getLogger("twinbus.http")


class _Reader(h11.Connection):
    """Reads requests, and remembers how they spelled the names of their headers."""

    def __init__(self, state: dict[str, Any], port: NamespacePort) -> None:
        # Properties of messages are headers; before a claim no peer may send more.
        super().__init__(h11.SERVER, limits.HANDSHAKE_BYTES_MAX)
        self._state = state
        self._port = port
        # Why a request is refused, and whether its answer has no body.
        self.refused: HeadRefused | None = None
        self.is_head = False
        # Whether it is no request at all.
        self.is_amqp = False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """The next part of a request."""
        if self.their_state is h11.IDLE and self.trailing_data[0].startswith(b"AMQP"):
            # Its header has no end of line, for which a client would wait in vain.
            self.is_amqp = True
            raise HeadRefused("AMQP was spoken to the port for HTTP.")
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._state[HEADERS_AS_SENT] = event.headers.raw_items()
            self.is_head = event.method == b"HEAD"
            try:
                check_head(event, self._port)
            except HeadRefused as error:
                self.refused = error
                raise
        return event


@dataclass(frozen=True, slots=True)
class HttpTimeouts:
    """How long a client may take, in seconds."""

    # For the head of a request; also for the rest of a body that is not read.
    head: float = limits.HANDSHAKE_SECONDS_MAX
    # For a body, and a second more for each of so many bytes.
    body: float = limits.HTTP_BODY_SECONDS_MAX
    body_bytes_per_second: int = limits.HTTP_BODY_BYTES_PER_SECOND_MIN
    # Without reading its answer.
    stall: float = limits.WRITE_STALL_SECONDS_MAX


class _Expected(enum.Enum):
    """What the client must send next."""

    NOTHING = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    # The rest of a body whose request is answered already.
    REST = enum.auto()


class _Http(H11Protocol):
    """A client of the HTTP server, with deadlines for its requests.

    Between requests uvicorn keeps the time (keep-alive), and after an upgrade the AMQP
    connection does.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        timeouts: HttpTimeouts | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._reader = _Reader(app_state, app_state["port"])
        self.conn = self._reader
        self._timeouts = timeouts or HttpTimeouts()
        self._expected = _Expected.NOTHING
        self._expected_since = 0.0
        self._expected_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    # -- what the transport calls ------------------------------------------------------

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self._expect(_Expected.HEAD)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._expected_bytes += len(data)
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        self._expect(_Expected.NOTHING)
        self._end_stall()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        super().pause_writing()
        self._begin_stall()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._end_stall()

    # -- what uvicorn calls ------------------------------------------------------------

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """The WebSocket protocol takes the socket and its deadlines over."""
        self._expect(_Expected.NOTHING)
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request whose head cannot be used; the connection closes."""
        refused = self._reader.refused
        if self._reader.is_amqp:
            self._refuse_amqp()
            return
        if refused is None:
            super().send_400_response(msg)
            return
        body = f"{refused}\n".encode()
        headers = {
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        head = h11.Response(
            status_code=refused.error_status_hint, headers=list(headers.items())
        )
        answer = [head, h11.Data(data=body), h11.EndOfMessage()]
        if self._reader.is_head:
            del answer[1]
        for event in answer:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _refuse_amqp(self) -> None:
        """Close without a word: one of HTTP would be a broken frame to the client."""
        port: NamespacePort = self.app_state["port"]
        address = self.client[0] if self.client else ""
        if port.failures.may_log(address, port.host.token_clock.now().steady_ms):
            text = "closing %s: it speaks AMQP; this port is for HTTP"
            log.warning(text, self.client)
        self.transport.close()

    def on_response_complete(self) -> None:
        """An answer was written; the next request may be here already."""
        super().on_response_complete()
        self._look()

    # -- time ------------------------------------------------------------------------

    def _look(self) -> None:
        """Find what is expected now; what was expected before keeps its deadline."""
        if self.transport.get_protocol() is not self:
            return
        if self.transport.is_closing():
            # A client that does not read the last answer would keep the socket.
            self._expect(_Expected.NOTHING)
            self._begin_stall()
            return
        expected = self._find_expected()
        if expected is not self._expected:
            self._expect(expected)

    def _find_expected(self) -> _Expected:
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            return _Expected.REST if self.cycle.response_complete else _Expected.BODY
        if state is not h11.IDLE:
            return _Expected.NOTHING
        # The first head is expected at once, later ones when they have begun.
        is_first = cast("Any", self.cycle) is None
        return (
            _Expected.HEAD
            if is_first or self.conn.trailing_data[0]
            else _Expected.NOTHING
        )

    def _expect(self, expected: _Expected) -> None:
        self._expected = expected
        self._expected_since = self.loop.time()
        self._expected_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if expected is not _Expected.NOTHING:
            self._deadline = self.loop.call_at(self._end(), self._check)

    def _end(self) -> float:
        """When what is expected must have arrived."""
        timeouts = self._timeouts
        if self._expected is not _Expected.BODY:
            return self._expected_since + timeouts.head
        earned = self._expected_bytes / timeouts.body_bytes_per_second
        return self._expected_since + timeouts.body + earned

    def _check(self) -> None:
        if self.flow.read_paused:
            # The server has paused reading until the store catches up.
            self._expected_since = self.loop.time()
        end = self._end()
        if self.loop.time() < end:
            self._deadline = self.loop.call_at(end, self._check)
        elif not self.transport.is_closing():
            log.warning("closing %s: its request did not come in time", self.client)
            self.transport.abort()

    def abort(self) -> None:
        """End it at once."""
        self.transport.abort()

    def _begin_stall(self) -> None:
        if self._stall is None:
            self._stall = self.loop.call_later(
                self._timeouts.stall, self.transport.abort
            )

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


class HttpServer:
    """The HTTP side of a namespace; serves any number of sockets."""

    def __init__(
        self,
        port: NamespacePort,
        connect: Callable[[NamespacePort], asyncio.Protocol],
        timeouts: HttpTimeouts | None = None,
    ) -> None:
        self._timeouts = timeouts or HttpTimeouts()
        self._rest = RestRoute(port)
        self.routes: list[BaseRoute] = [
            health_route(port.host),
            metrics_route(port),
            upkeep_route(port),
            faults_route(port),
            self._rest,
        ]
        self._console = Console(port) if port.has_console else None
        if self._console is not None:
            self.routes += self._console.routes()
        self._connect = connect
        self._port = port
        self._state = ServerState()
        self._config: Config | None = None

    def protocol(self) -> asyncio.Protocol:
        """A protocol for a new connection."""
        config = self._config or self._load()
        app_state: dict[str, Any] = {
            "connect": lambda: self._connect(self._port),
            "port": self._port,
        }
        return _Http(config, self._state, app_state, self._timeouts)

    def _load(self) -> Config:
        # The last one takes every path that the others leave.
        surfaces = Starlette(routes=[*self.routes, admin_route(self._port)])
        app = PacedStrangers(self._port, surfaces)
        if self._console is not None:
            app = PacedStrangers(self._port, surfaces, self._console.knows)
        self._config = Config(
            app,
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
        loop = asyncio.get_running_loop()
        self._rest.close()
        if self._console is not None:
            await self._console.close()
        for connection in list(self._state.connections):
            cast("Any", connection).shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=limits.HTTP_CLOSE_SECONDS_MAX)
        end = loop.time() + limits.HTTP_CLOSE_SECONDS_MAX
        # They go by themselves when the last answer is read: there is no event for it.
        while self._state.connections and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(limits.HTTP_CLOSE_LOOK_SECONDS)
        for connection in list(self._state.connections):
            cast("Any", connection).abort()
