"""AMQP inside WebSocket messages.

Owns the framing: bytes of a client's binary messages go to its connection in the order
in which they come, however they were cut, and each write goes out as one message. To
the connection this is a transport like any other; what it lets pile up, and when it
stops reading, is decided there.
Knows nothing about AMQP. The HTTP server hands over the socket with the upgrade
request.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, cast
from urllib.parse import unquote

import wsproto
from uvicorn import Config
from uvicorn.server import ServerState
from wsproto import ConnectionType, events
from wsproto.connection import ConnectionState
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from twinbus.ledger.schema import AMQP_WS
from twinbus.server.access.port import CONNECTION_KIND

PATH = "/$servicebus/websocket"
# The name that most official clients use, and AMQP's own, which Go programs use.
SUBPROTOCOLS = ("AMQPWSB10", "amqp")

_AUTHORITY = re.compile(r"^https?://[^/?]*", re.IGNORECASE)
_GOING_AWAY = 1001
_TEXT_REFUSED = 1003

log = logging.getLogger("twinbus.http")


class WebSocketTransport(asyncio.Transport):
    """Writes messages where a connection writes bytes; the rest is the socket's."""

    def __init__(
        self, socket_transport: asyncio.Transport, messages: wsproto.WSConnection
    ) -> None:
        super().__init__()
        self._socket = socket_transport
        self._messages = messages

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closing() or not data:
            return
        message = events.BytesMessage(data=bytes(data))
        self._socket.write(self._messages.send(message))

    def close(self) -> None:
        self.end(1000)

    def end(self, code: int) -> None:
        """Send a close frame with a code, and close when all is written."""
        if not self.is_closing():
            self._socket.write(self._messages.send(events.CloseConnection(code=code)))
        self._socket.close()

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        is_open = self._messages.state is ConnectionState.OPEN
        return self._socket.is_closing() or not is_open

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == CONNECTION_KIND:
            return AMQP_WS
        return self._socket.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def is_reading(self) -> bool:
        return self._socket.is_reading()

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        self._socket.set_write_buffer_limits(high, low)


class WebSocketProtocol(asyncio.Protocol):
    """One client's WebSocket; made by the HTTP server for each upgrade request."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        del config
        self._open = cast("set[Any]", server_state.connections)
        self._connect = app_state["connect"]
        self._messages = wsproto.WSConnection(ConnectionType.SERVER)
        self._socket: asyncio.Transport
        self._transport: WebSocketTransport
        # The connection; there is none before the request was accepted.
        self._inner: asyncio.Protocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket was handed over."""
        self._socket = cast("asyncio.Transport", transport)
        self._transport = WebSocketTransport(self._socket, self._messages)
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came: the request first, then frames."""
        try:
            self._messages.receive_data(data)
            for event in self._messages.events():
                self._handle(event)
        except RemoteProtocolError as error:
            log.warning("closing a WebSocket: %s", error)
            if isinstance(error.event_hint, events.RejectConnection):
                self._socket.write(self._messages.send(error.event_hint))
            self._socket.close()
        except LocalProtocolError:
            # Frames after the close; no answer is possible.
            self._socket.close()

    def eof_received(self) -> bool:
        """The client will send no more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._open.discard(self)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._inner is not None:
            self._inner.resume_writing()

    def shutdown(self) -> None:
        """End it, as the HTTP server asks of all its connections when it stops."""
        if self._inner is None:
            self._socket.close()
        else:
            self._transport.end(_GOING_AWAY)

    def abort(self) -> None:
        """End it at once, whatever was not read yet."""
        self._socket.abort()

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, events.BytesMessage):
            if self._inner is not None and not self._transport.is_closing():
                self._inner.data_received(bytes(event.data))
        elif isinstance(event, events.Request):
            self._accept(event)
        elif isinstance(event, events.Ping):
            self._socket.write(self._messages.send(event.response()))
        elif isinstance(event, events.CloseConnection):
            if self._messages.state in (
                ConnectionState.OPEN,
                ConnectionState.REMOTE_CLOSING,
            ):
                self._socket.write(self._messages.send(event.response()))
            self._socket.close()
        elif isinstance(event, events.TextMessage):
            self._transport.end(_TEXT_REFUSED)

    def _accept(self, request: events.Request) -> None:
        # The official Java client names the whole URL, which HTTP allows.
        target = _AUTHORITY.sub("", request.target, count=1)
        path = unquote(target.partition("?")[0]).rstrip("/")
        if path.lower() != PATH:
            self._refuse(404, f"WebSockets are served at {PATH}.")
            return
        offered = (name for name in request.subprotocols if name in SUBPROTOCOLS)
        chosen = next(offered, None)
        if chosen is None:
            self._refuse(400, f"The subprotocol must be {' or '.join(SUBPROTOCOLS)}.")
            return
        accept = events.AcceptConnection(subprotocol=chosen)
        self._socket.write(self._messages.send(accept))
        self._inner = cast("asyncio.Protocol", self._connect())
        self._inner.connection_made(self._transport)

    def _refuse(self, status: int, text: str) -> None:
        body = text.encode("ascii")
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode("ascii")),
            (b"connection", b"close"),
        ]
        start = events.RejectConnection(
            status_code=status, headers=headers, has_body=True
        )
        self._socket.write(self._messages.send(start))
        self._socket.write(self._messages.send(events.RejectData(data=body)))
        self._socket.close()
